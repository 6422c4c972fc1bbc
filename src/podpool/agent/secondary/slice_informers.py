"""Informers of the IPPools and Leases of this Node's slices. Objects of other nodes are not read.

They are selected by a label with the Node's UID. A Node that is registered again has another UID, and new informers.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

from podpool.agent.deps import AgentDeps
from podpool.api.builtin import LEASES, Lease
from podpool.api.meta import Kind, KubeObject, version_number
from podpool.api.whereabouts import IP_POOLS, NODE_UID_LABEL, IPPool
from podpool.kube.errors import ApiNotFound
from podpool.kube.expectations import WATCH_DELAY
from podpool.kube.informer import Informer

T = TypeVar("T", bound=KubeObject)


class SliceInformers:
    """IPPools and Leases by name. `on_change` receives the name of a changed one, or "" after the first lists."""

    def __init__(self, deps: AgentDeps, namespace: str, *, on_change: Callable[[str], None]) -> None:
        self.namespace = namespace
        self._deps = deps
        self._on_change = on_change
        self._uid = ""
        self._pools = self._informer(IP_POOLS)
        self._leases = self._informer(LEASES)
        self._read: dict[str, IPPool] = {}
        self._uid_changed = asyncio.Event()
        self.on_restored: Callable[[], None] = lambda: None
        """Called when the API server was restored from an older backup."""

    @property
    def uid(self) -> str:
        """The UID of the Node; empty before it is known."""
        return self._uid

    @property
    def synced(self) -> bool:
        """Whether both kinds were listed."""
        return bool(self._uid) and self._pools.cache.synced.is_set() and self._leases.cache.synced.is_set()

    def last_contacts(self) -> dict[str, float | None]:
        """Return the loop time of the last message of each watch."""
        return {"ippools": self._pools.last_contact, "leases": self._leases.last_contact}

    def names(self) -> set[str]:
        """Return the names of all IPPools and Leases."""
        return {each.metadata.name for each in (*self._pools.cache.values(), *self._leases.cache.values())}

    def pool(self, name: str) -> IPPool | None:
        """Return an IPPool as the watch shows it, or as the last response showed it if the watch is behind."""
        watched, read = self._pools.cache.get(f"{self.namespace}/{name}"), self._read.get(name)
        watch_version = version_number(self._pools.resource_version)
        if watched and read and version_number(read.metadata.resource_version) > watch_version:
            return read
        self._read.pop(name, None)
        return watched

    def lease(self, name: str) -> Lease | None:
        """Return a Lease as the watch shows it."""
        return self._leases.cache.get(f"{self.namespace}/{name}")

    def observe(self, pool: IPPool) -> None:
        """Record a response. It is dropped if the watch does not reach its version: the server was restored."""
        self._read[pool.metadata.name] = pool
        asyncio.get_running_loop().call_later(WATCH_DELAY, self._drop, pool)

    def _drop(self, pool: IPPool) -> None:
        if self._read.get(pool.metadata.name) is pool:
            del self._read[pool.metadata.name]
            self._on_change(pool.metadata.name)

    async def read_pool(self, name: str) -> IPPool | None:
        """Read an IPPool from the API server."""
        pool = await self._get(IP_POOLS, name)
        if pool:
            self.observe(pool)
        return pool

    async def read_lease(self, name: str) -> Lease | None:
        """Read a Lease from the API server."""
        return await self._get(LEASES, name)

    def follow(self, uid: str) -> None:
        """Watch the objects of the Node with this UID."""
        if uid and uid != self._uid:
            self._uid = uid
            self._pools, self._leases = self._informer(IP_POOLS), self._informer(LEASES)
            self._read.clear()
            self._uid_changed.set()

    async def run(self) -> None:
        """Watch until cancelled, with new informers when the UID changes. Runs again after a failure of the agent."""
        while True:
            self._uid_changed.clear()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in self._watches()]
                await self._uid_changed.wait()
                for each in tasks:
                    each.cancel()

    def _watches(self) -> Iterator[Coroutine[None, None, None]]:
        if self._uid:
            yield self._pools.run()
            yield self._leases.run()
            yield self._report_synced(self._pools, self._leases)

    async def _report_synced(self, *informers: Informer[IPPool] | Informer[Lease]) -> None:
        for each in informers:
            await each.cache.synced.wait()
        self._on_change("")  # empty lists notify no subscriber

    def _informer(self, kind: Kind[T]) -> Informer[T]:
        informer = Informer(
            self._deps.kube,
            kind,
            rng=self._deps.rng,
            namespace=self.namespace,
            labels=f"{NODE_UID_LABEL}={self._uid}",
            relist_interval=self._deps.settings.relist_interval,
        )
        informer.on_restored = self._restored
        informer.cache.subscribe(self._changed)
        return informer

    def _restored(self, _before: int, _now: int) -> None:
        self._read.clear()
        self.on_restored()

    def _changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        changed = new or old
        if changed:
            self._on_change(changed.metadata.name)

    async def _get(self, kind: Kind[T], name: str) -> T | None:
        with contextlib.suppress(ApiNotFound):
            return await self._deps.kube.get(kind, name, namespace=self.namespace)
        return None
