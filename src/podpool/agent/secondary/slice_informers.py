"""The IPPools and Leases of this Node, as watches last saw them: nothing that is another node's is read.

They carry the Node's UID as a label. A Node that is registered again has another, so what is followed changes with it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from podpool.agent.deps import AgentDeps
from podpool.api.builtin import LEASES, Lease
from podpool.api.meta import Kind, KubeObject
from podpool.api.whereabouts import IP_POOLS, NODE_UID_LABEL, IPPool
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import Informer

T = TypeVar("T", bound=KubeObject)

WATCH_TIMEOUT = 10.0
"""Seconds after which a watch should show what was answered."""


class SliceInformers:
    """Follows them, by name; `changed` is told which."""

    def __init__(self, deps: AgentDeps, namespace: str, *, changed: Callable[[str], None]) -> None:
        self.namespace = namespace
        self._deps = deps
        self._changed = changed
        self._uid = ""
        self._pools = self._reflector(IP_POOLS)
        self._leases = self._reflector(LEASES)
        self._read: dict[str, IPPool] = {}
        self._turned = asyncio.Event()
        self.restored: Callable[[], None] = lambda: None
        """Whom to tell that the API server went back to an older copy."""

    @property
    def uid(self) -> str:
        """The Node's, whose they are; empty before it is known."""
        return self._uid

    @property
    def known(self) -> bool:
        """Tell whether it is known what there is."""
        return bool(self._uid) and self._pools.cache.synced.is_set() and self._leases.cache.synced.is_set()

    def heard(self) -> dict[str, float | None]:
        """Tell when each watch last told anything, by the loop's time."""
        return {"ippools": self._pools.last_contact, "leases": self._leases.last_contact}

    def names(self) -> set[str]:
        """Name what there is."""
        return {each.metadata.name for each in (*self._pools.cache.values(), *self._leases.cache.values())}

    def pool(self, name: str) -> IPPool | None:
        """Find an IPPool, as it was last seen: by the watch, or in an answer, until the watch has come as far."""
        watched, read = self._pools.cache.get(f"{self.namespace}/{name}"), self._read.get(name)
        if watched and read and _number(read.metadata.resource_version) > _number(self._pools.resource_version):
            return read
        self._read.pop(name, None)
        return watched

    def lease(self, name: str) -> Lease | None:
        """Find a Lease."""
        return self._leases.cache.get(f"{self.namespace}/{name}")

    def see(self, pool: IPPool) -> None:
        """Take note of an answer. Where the watch does not come as far the server was restored meanwhile."""
        self._read[pool.metadata.name] = pool
        asyncio.get_running_loop().call_later(WATCH_TIMEOUT, self._doubt, pool)

    def _doubt(self, pool: IPPool) -> None:
        if self._read.get(pool.metadata.name) is pool:
            del self._read[pool.metadata.name]
            self._changed(pool.metadata.name)

    async def read_pool(self, name: str) -> IPPool | None:
        """Read an IPPool as it is now."""
        found = await self._get(IP_POOLS, name)
        if found:
            self.see(found)
        return found

    async def read_lease(self, name: str) -> Lease | None:
        """Read a Lease as it is now."""
        return await self._get(LEASES, name)

    def follow(self, uid: str) -> None:
        """Follow those of the Node with this UID."""
        if uid and uid != self._uid:
            self._uid = uid
            self._pools, self._leases = self._reflector(IP_POOLS), self._reflector(LEASES)
            self._read.clear()
            self._turned.set()

    async def run(self) -> None:
        """Follow them for ever."""
        while True:
            await self._turned.wait()
            self._turned.clear()
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(each.run()) for each in (self._pools, self._leases)]
                following.append(group.create_task(self._listed(self._pools, self._leases)))
                await self._turned.wait()
                for each in following:
                    each.cancel()

    async def _listed(self, *reflectors: Informer[IPPool] | Informer[Lease]) -> None:
        for each in reflectors:
            await each.cache.synced.wait()
        self._changed("")  # empty lists tell no subscriber

    def _reflector(self, kind: Kind[T]) -> Informer[T]:
        made = Informer(
            self._deps.kube,
            kind,
            rng=self._deps.rng,
            namespace=self.namespace,
            labels=f"{NODE_UID_LABEL}={self._uid}",
            relist_interval=self._deps.settings.relist_interval,
            on_restored=self._restored,
        )
        made.cache.subscribe(self._seen)
        return made

    def _restored(self, _was: int, _is: int) -> None:
        """Believe no answer of the server as it was before."""
        self._read.clear()
        self.restored()

    def _seen(self, old: KubeObject | None, new: KubeObject | None) -> None:
        one = new or old
        if one:
            self._changed(one.metadata.name)

    async def _get(self, kind: Kind[T], name: str) -> T | None:
        with contextlib.suppress(ApiNotFound):
            return await self._deps.kube.get(kind, name, namespace=self.namespace)
        return None


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
