"""All objects of one cluster, in memory.

What must hold: every write takes the next revision and is told to every watch of its kind, in order; an object's
version is the revision of its last write. Objects are never changed in place. Nothing here waits, so that each call
is a transaction. Uids and times come from outside: the same calls make the same history.
"""

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from podpool.api.meta import moment
from podpool.lab.apiserver import status_errors, strategy
from podpool.lab.apiserver.content_negotiation import Form, whole
from podpool.lab.apiserver.registry import BUILTIN, DEFINITIONS, NAMESPACES, Id, Kinds, Served
from podpool.lab.apiserver.selectors import Selects, everything
from podpool.lab.apiserver.watch import USUAL, Terms, Watch
from podpool.lab.apiserver.watch_cache import Event, History, Object
from podpool.runtime.clock import Clock
from podpool.runtime.entropy import new_uuid

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the whole store; cheap, because objects are never changed in place."""

    revision: int
    objects: Mapping[Id, Mapping[str, Object]]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some objects of a list, and how many keys follow: not all of those need be in the selection."""

    found: list[tuple[str, Object]]
    following: int


class Preconditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What must be so for a delete."""

    uid: str | None = None
    resource_version: str | None = None


NONE = Preconditions()


class PocketStore:
    """One cluster's objects."""

    def __init__(self, *, clock: Clock, rng: random.Random) -> None:
        self.lag: Callable[[], int] = lambda: 0
        """How many revisions a cached list is behind. A healthy server is up to date; the simulator's may not be."""
        self.written: list[Callable[[Event], None]] = []
        """Whom to tell of every write, before anybody else can act on it."""
        self.clock = clock
        self._rng = rng
        self._revision = 0
        self._objects: dict[Id, dict[str, Object]] = {each.id: {} for each in BUILTIN}
        self._keys: dict[Id, list[str]] = {each.id: [] for each in BUILTIN}  # sorted, as lists show them
        self._history = History()
        self._watches: dict[Id, dict[Watch, None]] = {}  # a dict keeps their order
        self.kinds = Kinds()
        for name in FIRST_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    @property
    def revision(self) -> int:
        """The version of the last write."""
        return self._revision

    def get(self, served: Served, key: str) -> Object:
        """Find an object by `namespace/name`, or its name alone; refuses when there is none."""
        try:
            return self._objects[served.id][key]
        except KeyError:
            raise status_errors.not_found(served.resource, key.rpartition("/")[2]) from None

    def objects(self, group: str, plural: str) -> Mapping[str, Object]:
        """Look at all objects of a kind, by key, as they are now."""
        return self._objects.get((group, plural), {})

    def list(
        self, served: Served, *, namespace: str = "", selects: Selects = everything, revision: int | None = None
    ) -> list[tuple[str, Object]]:
        """Find objects with their keys, in the keys' order, as they are or as they were at a revision."""
        return self.page(served, namespace=namespace, selects=selects, revision=revision).found

    def page(
        self,
        served: Served,
        *,
        namespace: str = "",
        selects: Selects = everything,
        revision: int | None = None,
        after: str = "",
        limit: int = 0,
    ) -> Page:
        """Find objects that come after a key, up to a limit; costs what the page costs, however long the list is."""
        objects, keys = self._objects[served.id], self._keys[served.id]
        others: Mapping[str, Object | None] = {}
        if revision is not None and revision < self._revision:
            others = self._history.otherwise(revision, served.id)
            keys = _then(keys, others)
        inside = f"{namespace}/" if namespace and served.namespaced else ""
        start = bisect_right(keys, after) if after else bisect_left(keys, inside)
        end = bisect_left(keys, _behind(inside)) if inside else len(keys)
        found: list[tuple[str, Object]] = []
        for position in range(start, end):
            key = keys[position]
            obj = others.get(key) or objects[key]
            if selects(obj):
                if limit and len(found) == limit:
                    return Page(found=found, following=end - position)
                found.append((key, obj))
        return Page(found=found, following=0)

    def cached_revision(self) -> int:
        """The revision that a cached list shows."""
        return max(self._revision - self.lag(), self._history.floor)

    def create(self, served: Served, wanted: Object, *, namespace: str = "") -> Object:
        """Create an object."""
        if served.namespaced and namespace not in self._objects[NAMESPACES.id]:
            raise status_errors.not_found(NAMESPACES.resource, namespace)
        uid = new_uuid(self._rng)
        new = strategy.created(served, wanted, namespace=namespace, uid=uid, now=self._now())
        key = served.key(namespace, strategy.name_of(new))
        if key in self._objects[served.id]:
            raise status_errors.already_exists(served.resource, strategy.name_of(new))
        return self._commit(served, key, None, new)

    def update(self, served: Served, key: str, change: Callable[[Object], Object], *, sub: str | None = None) -> Object:
        """Change an object; what changes nothing is no write."""
        old = self.get(served, key)
        new = strategy.updated(served, old, change(old), sub=sub)
        if new == old:
            return old
        if strategy.ends(new):
            self._commit(served, key, old, new, gone=True)
            return new
        return self._commit(served, key, old, new)

    def delete(
        self, served: Served, key: str, *, preconditions: Preconditions = NONE, grace: int | None = None
    ) -> Object:
        """Delete an object, or mark it while its finalizers or its kubelet hold it."""
        old = self.get(served, key)
        self._refuse_other(served, old, preconditions)
        grace = strategy.grace_of(served, old, grace)
        if not grace and not old["metadata"].get("finalizers"):
            return self._commit(served, key, old, dict(old), gone=True)
        new = strategy.deleting(old, now=self._now(), grace=grace)
        return old if new == old else self._commit(served, key, old, new)

    def watch(
        self,
        served: Served,
        *,
        since: int | None,
        namespace: str = "",
        selects: Selects = everything,
        form: Form | None = None,
        terms: Terms = USUAL,
    ) -> Watch:
        """Watch a kind from a version on, or, with none, from what is there.

        The selection sees objects as they are kept, the form tells how they are written down.
        """
        inside = f"{namespace}/" if namespace and served.namespaced else ""

        def seen(obj: Object) -> bool:
            return (not inside or obj["metadata"].get("namespace") == namespace) and selects(obj)

        after = self._revision if since is None else since
        watch = Watch(
            served,
            seen,
            form or whole(served),
            after=after,
            revision=lambda: self._revision,
            closed=self._unwatch,
            terms=terms,
        )
        self._watches.setdefault(served.id, {})[watch] = None
        if since is None:
            watch.show(obj for _, obj in self.list(served, namespace=namespace, selects=selects))
        else:
            self._catch_up(watch, since)
        return watch

    def compact(self, revision: int | None = None) -> None:
        """Forget writes up to a revision, by default all: who goes on from before must list again."""
        self._history.forget(self._revision if revision is None else revision)

    def end_watches(self) -> None:
        """End all watches, as a server does when it stops."""
        for watch in [each for watches in self._watches.values() for each in watches]:
            watch.end()

    def snapshot(self) -> Snapshot:
        """Copy everything."""
        return Snapshot(revision=self._revision, objects={id_: dict(each) for id_, each in self._objects.items()})

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a copy, as if started from it: watches end, and nothing is known of what was before."""
        self.end_watches()
        self._revision = snapshot.revision
        self._objects = {id_: dict(each) for id_, each in snapshot.objects.items()}
        self._keys = {id_: sorted(each) for id_, each in self._objects.items()}
        self._history = History(floor=snapshot.revision)
        self._learn_kinds()

    def everything(self) -> Iterator[tuple[Served, str, Object]]:
        """Go through all objects of all kinds, as they are now."""
        for served in self.kinds.unversioned():
            for key, obj in tuple(self._objects[served.id].items()):
                yield served, key, obj

    def _commit(
        self, served: Served, key: str, old: Object | None, new: dict[str, Any], *, gone: bool = False
    ) -> Object:
        self._revision += 1
        kept = strategy.with_meta(new, resourceVersion=str(self._revision))
        if gone:
            del self._objects[served.id][key]
            keys = self._keys[served.id]
            del keys[bisect_left(keys, key)]
        else:
            self._objects[served.id][key] = kept
            if old is None:
                insort(self._keys[served.id], key)
        event = Event(revision=self._revision, id=served.id, key=key, old=old, new=kept, gone=gone)
        self._history.add(event)
        for watch in tuple(self._watches.get(served.id, ())):
            watch.offer(event)
        if served.id == DEFINITIONS.id:
            self._learn_kinds()
        for tell in self.written:
            tell(event)
        return kept

    def _learn_kinds(self) -> None:
        """Serve what the definitions say; the objects of a kind that is no longer defined go with it."""
        self.kinds = Kinds(self._objects.get(DEFINITIONS.id, {}).values())
        self._objects = {each.id: self._objects.get(each.id, {}) for each in self.kinds.unversioned()}
        self._keys = {each: self._keys.get(each, []) for each in self._objects}

    def _catch_up(self, watch: Watch, since: int) -> None:
        try:
            for event in self._history.since(since, watch.served.id):
                watch.offer(event)
        except status_errors.Refused as refused:
            watch.refuse(refused)

    def _unwatch(self, watch: Watch) -> None:
        self._watches[watch.served.id].pop(watch, None)

    def _refuse_other(self, served: Served, old: Object, wanted: Preconditions) -> None:
        meta = old["metadata"]
        for what, value, have in (
            ("UID", wanted.uid, meta["uid"]),
            ("ResourceVersion", wanted.resource_version, meta["resourceVersion"]),
        ):
            if value not in {None, have}:
                why = f"Precondition failed: {what} in precondition: {value}, {what} in object meta: {have}"
                raise status_errors.conflict(served.resource, strategy.name_of(old), why)

    def _now(self) -> str:
        return moment(self.clock.wall())


def _behind(inside: str) -> str:
    """Find the first text behind all that begin with this one."""
    return inside[:-1] + chr(ord(inside[-1]) + 1)


def _then(keys: list[str], others: Mapping[str, Object | None]) -> list[str]:
    """Tell which keys there were, from those that there are and what was otherwise."""
    then = list(keys)
    for key, obj in others.items():
        place = bisect_left(then, key)
        there = place < len(then) and then[place] == key
        if obj is None and there:
            del then[place]
        elif obj is not None and not there:
            then.insert(place, key)
    return then
