"""What belongs to nobody any more is deleted.

That is an object whose owners are all gone, and then what belongs to that; and what is left of a namespace.
"""

import asyncio
from collections.abc import Collection

from podpool.lab.apiserver.registry import NAMESPACES, Served
from podpool.lab.apiserver.store import PocketStore
from podpool.lab.apiserver.watch_cache import Object

PAUSE = 1.0
"""Seconds between two looks."""


def collect(store: PocketStore) -> int:
    """Delete orphans until there are none, and tell how many they were; those with finalizers are marked."""
    count = 0
    while orphans := _orphans(store):
        for served, key in orphans:
            store.delete(served, key)
        count += len(orphans)
    return count


async def collecting(store: PocketStore) -> None:
    """Collect for ever; looks only where something was written."""
    looked_at = -1
    while True:
        if store.revision != looked_at:
            collect(store)
            looked_at = store.revision
        await asyncio.sleep(PAUSE)


def _orphans(store: PocketStore) -> list[tuple[Served, str]]:
    living = {obj["metadata"]["uid"] for _, _, obj in store.everything()}
    places = store.objects(*NAMESPACES.id)
    return [(served, key) for served, key, obj in store.everything() if _orphaned(obj, living, places)]


def _orphaned(obj: Object, living: Collection[str], places: Collection[str]) -> bool:
    meta = obj["metadata"]
    if "deletionTimestamp" in meta:
        return False
    if meta.get("namespace", "") and meta["namespace"] not in places:
        return True
    owners = [each["uid"] for each in meta.get("ownerReferences") or ()]
    return bool(owners) and not any(each in living for each in owners)
