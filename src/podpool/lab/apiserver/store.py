"""All objects of one cluster, in memory.

Every write takes the next revision and is sent to the watches of its resource in that order; an object's
resourceVersion is the revision of its last write. Objects are never changed in place. Nothing here waits, so each call
is a transaction. UIDs and times are passed in: the same calls produce the same history.
"""

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from podpool.api.meta import rfc3339
from podpool.lab.apiserver import status_errors, strategy
from podpool.lab.apiserver.content_negotiation import Representation, full
from podpool.lab.apiserver.registry import (
    BUILTIN,
    CRDS,
    NAMESPACES,
    ApiResource,
    GroupResource,
    Object,
    ResourceRegistry,
)
from podpool.lab.apiserver.selectors import Selector, match_all
from podpool.lab.apiserver.watch import DEFAULT_OPTIONS, Watch, WatchOptions
from podpool.lab.apiserver.watch_cache import StoreEvent, WatchCache
from podpool.runtime.clock import Clock
from podpool.runtime.entropy import new_uuid

INITIAL_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the whole store; cheap, because objects are never changed in place."""

    revision: int
    objects: Mapping[GroupResource, Mapping[str, Object]]


class ObjectPage(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of a list with their keys, and how many keys remain; not all of those need match the selector."""

    items: list[tuple[str, Object]]
    remaining: int


class Preconditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The preconditions of a delete."""

    uid: str | None = None
    resource_version: str | None = None


NONE = Preconditions()


class ObjectStore:
    """One cluster's objects."""

    def __init__(self, *, clock: Clock, rng: random.Random) -> None:
        self.lag: Callable[[], int] = lambda: 0
        """How many revisions a cached list (resourceVersion=0) lags behind; the simulator sets it."""
        self.on_write: list[Callable[[StoreEvent], None]] = []
        """Called for every write, before anything else can act on it."""
        self.clock = clock
        self._rng = rng
        self._revision = 0
        self._objects: dict[GroupResource, dict[str, Object]] = {each.id: {} for each in BUILTIN}
        self._keys: dict[GroupResource, list[str]] = {each.id: [] for each in BUILTIN}  # sorted, the order of lists
        self._watch_cache = WatchCache()
        self._watches: dict[GroupResource, dict[Watch, None]] = {}  # a dict keeps their order
        self.registry = ResourceRegistry()
        for name in INITIAL_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self._revision

    def get(self, resource: ApiResource, key: str) -> Object:
        """Return an object by `namespace/name`, or by its name alone; raises a 404 if there is none."""
        try:
            return self._objects[resource.id][key]
        except KeyError:
            raise status_errors.not_found(resource.group_resource, key.rpartition("/")[2]) from None

    def objects(self, group: str, plural: str) -> Mapping[str, Object]:
        """Return all objects of a resource by key, as they are now."""
        return self._objects.get((group, plural), {})

    def list(
        self, resource: ApiResource, *, namespace: str = "", selector: Selector = match_all, revision: int | None = None
    ) -> list[tuple[str, Object]]:
        """Return objects with their keys, sorted by key, as they are or as they were at a revision."""
        return self.page(resource, namespace=namespace, selector=selector, revision=revision).items

    def page(
        self,
        resource: ApiResource,
        *,
        namespace: str = "",
        selector: Selector = match_all,
        revision: int | None = None,
        after: str = "",
        limit: int = 0,
    ) -> ObjectPage:
        """Return objects after a key, up to a limit; the cost is that of the page, not of the list."""
        objects, keys = self._objects[resource.id], self._keys[resource.id]
        older: Mapping[str, Object | None] = {}
        if revision is not None and revision < self._revision:
            older = self._watch_cache.differences(revision, resource.id)
            keys = _keys_at(keys, older)
        prefix = f"{namespace}/" if namespace and resource.namespaced else ""
        start = bisect_right(keys, after) if after else bisect_left(keys, prefix)
        end = bisect_left(keys, _after_prefix(prefix)) if prefix else len(keys)
        found: list[tuple[str, Object]] = []
        for position in range(start, end):
            key = keys[position]
            obj = older.get(key) or objects[key]
            if selector(obj):
                if limit and len(found) == limit:
                    return ObjectPage(items=found, remaining=end - position)
                found.append((key, obj))
        return ObjectPage(items=found, remaining=0)

    def cached_revision(self) -> int:
        """The revision that a cached list shows."""
        return max(self._revision - self.lag(), self._watch_cache.floor)

    def create(self, resource: ApiResource, wanted: Object, *, namespace: str = "") -> Object:
        """Create an object."""
        if resource.namespaced and namespace not in self._objects[NAMESPACES.id]:
            raise status_errors.not_found(NAMESPACES.group_resource, namespace)
        uid = new_uuid(self._rng)
        new = strategy.prepare_create(resource, wanted, namespace=namespace, uid=uid, now=self._now())
        key = resource.key(namespace, strategy.name_of(new))
        if key in self._objects[resource.id]:
            raise status_errors.already_exists(resource.group_resource, strategy.name_of(new))
        return self._commit(resource, key, None, new)

    def update(
        self, resource: ApiResource, key: str, change: Callable[[Object], Object], *, subresource: str | None = None
    ) -> Object:
        """Change an object; a change without effect is not a write."""
        old = self.get(resource, key)
        new = strategy.prepare_update(resource, old, change(old), subresource=subresource)
        if new == old:
            return old
        if strategy.is_deletable(new):
            self._commit(resource, key, old, new, deleted=True)
            return new
        return self._commit(resource, key, old, new)

    def delete(
        self, resource: ApiResource, key: str, *, preconditions: Preconditions = NONE, grace: int | None = None
    ) -> Object:
        """Delete an object, or mark it as terminating while it has finalizers or a grace period."""
        old = self.get(resource, key)
        self._check_preconditions(resource, old, preconditions)
        grace = strategy.grace_seconds(resource, old, grace)
        if not grace and not old["metadata"].get("finalizers"):
            return self._commit(resource, key, old, dict(old), deleted=True)
        new = strategy.mark_terminating(old, now=self._now(), grace=grace)
        return old if new == old else self._commit(resource, key, old, new)

    def watch(
        self,
        resource: ApiResource,
        *,
        since: int | None,
        namespace: str = "",
        selector: Selector = match_all,
        representation: Representation | None = None,
        options: WatchOptions = DEFAULT_OPTIONS,
    ) -> Watch:
        """Watch a resource from a revision on, or, without one, starting with the existing objects.

        The selector is applied to objects as stored, the representation to what is sent.
        """
        prefix = f"{namespace}/" if namespace and resource.namespaced else ""

        def matches(obj: Object) -> bool:
            return (not prefix or obj["metadata"].get("namespace") == namespace) and selector(obj)

        after = self._revision if since is None else since
        watch = Watch(
            resource,
            matches,
            representation or full(resource),
            after=after,
            revision=lambda: self._revision,
            on_stop=self._remove_watch,
            options=options,
        )
        self._watches.setdefault(resource.id, {})[watch] = None
        if since is None:
            watch.add_initial(obj for _, obj in self.list(resource, namespace=namespace, selector=selector))
        else:
            self._replay(watch, since)
        return watch

    def compact(self, revision: int | None = None) -> None:
        """Drop writes up to a revision, by default all: a watch that starts earlier must list again."""
        self._watch_cache.compact(self._revision if revision is None else revision)

    def stop_watches(self) -> None:
        """Stop all watches, as a server does when it stops."""
        for watch in [each for watches in self._watches.values() for each in watches]:
            watch.stop()

    def snapshot(self) -> StoreSnapshot:
        """Copy everything."""
        return StoreSnapshot(revision=self._revision, objects={id_: dict(each) for id_, each in self._objects.items()})

    def restore(self, snapshot: StoreSnapshot) -> None:
        """Go back to a copy, as if started from it: watches stop, and earlier writes are not kept."""
        self.stop_watches()
        self._revision = snapshot.revision
        self._objects = {id_: dict(each) for id_, each in snapshot.objects.items()}
        self._keys = {id_: sorted(each) for id_, each in self._objects.items()}
        self._watch_cache = WatchCache(floor=snapshot.revision)
        self._update_registry()

    def everything(self) -> Iterator[tuple[ApiResource, str, Object]]:
        """Iterate over all objects of all resources."""
        for resource in self.registry.unversioned():
            for key, obj in tuple(self._objects[resource.id].items()):
                yield resource, key, obj

    def writes_after(self, revision: int) -> tuple[StoreEvent, ...] | None:
        """Return the writes after a revision, newest first; None if not all of them are known."""
        known = self._watch_cache.floor <= revision <= self._revision
        return tuple(self._watch_cache.after(revision)) if known else None

    def _commit(
        self, resource: ApiResource, key: str, old: Object | None, new: dict[str, Any], *, deleted: bool = False
    ) -> Object:
        self._revision += 1
        stored = strategy.with_meta(new, resourceVersion=str(self._revision))
        if deleted:
            del self._objects[resource.id][key]
            keys = self._keys[resource.id]
            del keys[bisect_left(keys, key)]
        else:
            self._objects[resource.id][key] = stored
            if old is None:
                insort(self._keys[resource.id], key)
        event = StoreEvent(revision=self._revision, id=resource.id, key=key, old=old, new=stored, deleted=deleted)
        self._watch_cache.add(event)
        for watch in tuple(self._watches.get(resource.id, ())):
            watch.on_event(event)
        if resource.id == CRDS.id:
            self._update_registry()
        for callback in self.on_write:
            callback(event)
        return stored

    def _update_registry(self) -> None:
        """Serve what the CRDs define; the objects of a resource without a CRD are removed."""
        self.registry = ResourceRegistry(self._objects.get(CRDS.id, {}).values())
        self._objects = {each.id: self._objects.get(each.id, {}) for each in self.registry.unversioned()}
        self._keys = {each: self._keys.get(each, []) for each in self._objects}

    def _replay(self, watch: Watch, since: int) -> None:
        try:
            for event in self._watch_cache.since(since, watch.resource.id):
                watch.on_event(event)
        except status_errors.StatusError as error:
            watch.fail(error)

    def _remove_watch(self, watch: Watch) -> None:
        self._watches[watch.resource.id].pop(watch, None)

    def _check_preconditions(self, resource: ApiResource, old: Object, wanted: Preconditions) -> None:
        meta = old["metadata"]
        version = ("ResourceVersion", wanted.resource_version, meta["resourceVersion"])
        for field, expected, actual in (("UID", wanted.uid, meta["uid"]), version):
            if expected not in {None, actual}:
                reason = f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {actual}"
                raise status_errors.conflict(resource.group_resource, strategy.name_of(old), reason)

    def _now(self) -> str:
        return rfc3339(self.clock.wall())


def _after_prefix(prefix: str) -> str:
    """Return the smallest string greater than all that start with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _keys_at(keys: list[str], older: Mapping[str, Object | None]) -> list[str]:
    """Return the keys at an earlier revision, from the present keys and what differed."""
    result = list(keys)
    for key, obj in older.items():
        position = bisect_left(result, key)
        exists = position < len(result) and result[position] == key
        if obj is None and exists:
            del result[position]
        elif obj is not None and not exists:
            result.insert(position, key)
    return result
