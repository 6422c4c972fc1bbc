"""Garbage collection: deletes objects whose owners are all gone, and what is in a deleted namespace."""

import asyncio
from collections.abc import Collection

from podpool.lab.apiserver.registry import CRDS, NAMESPACES, ApiResource, Object
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.watch_cache import StoreEvent

INTERVAL = 1.0
"""Seconds between two scans."""


def collect(store: ObjectStore) -> int:
    """Delete orphans until there are none, and return how many; those with finalizers are marked."""
    count = 0
    while orphans := _orphans(store):
        for resource, key in orphans:
            store.delete(resource, key)
        count += len(orphans)
    return count


async def run_garbage_collector(store: ObjectStore) -> None:
    """Collect forever; scans only after a write that may leave an orphan."""
    scanned = -1
    while True:
        writes = store.writes_after(scanned)
        if writes is None or any(map(_may_leave_orphan, writes)):
            collect(store)
        scanned = store.revision
        await asyncio.sleep(INTERVAL)


def _may_leave_orphan(write: StoreEvent) -> bool:
    if write.deleted or write.old is None or write.id == CRDS.id:
        return True
    return bool(write.old["metadata"].get("ownerReferences") != write.new["metadata"].get("ownerReferences"))


def _orphans(store: ObjectStore) -> list[tuple[ApiResource, str]]:
    objects, namespaces = list(store.everything()), store.objects(*NAMESPACES.id)
    uids = {obj["metadata"]["uid"] for _, _, obj in objects}
    return [(resource, key) for resource, key, obj in objects if _is_orphan(obj, uids, namespaces)]


def _is_orphan(obj: Object, uids: Collection[str], namespaces: Collection[str]) -> bool:
    meta = obj["metadata"]
    if "deletionTimestamp" in meta:
        return False
    if meta.get("namespace", "") and meta["namespace"] not in namespaces:
        return True
    owners = meta.get("ownerReferences")
    return bool(owners) and not any(each["uid"] in uids for each in owners)
