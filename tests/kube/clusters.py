"""What one suite runs on: pocket, in process and over HTTP, and a real kube-apiserver, over HTTP."""

import asyncio
import itertools
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from yarl import URL

from parts.control_plane import ControlPlane
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NAMESPACES
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.config import Connection, from_kubeconfig
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import ApiResource
from podpool.lab.apiserver.server import LiteApiServer
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http import HttpTransport, serving
from podpool.runtime.transport import Transport
from tests.kube.etcds import Etcd
from tests.kube.roads import Road
from tests.kube.wires import Wire, wire

_count = itertools.count(1)


class FixedClock:
    """A clock that shows what it was set to."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self.seconds = wall

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


def pocket() -> ResourceHandler:
    return ResourceHandler(ObjectStore(clock=FixedClock(), rng=random.Random(7)))  # noqa: S311  seeded


class Guest:
    """A test's place on a server: a client, the road under it, and a namespace that no other test has."""

    def __init__(self, transport: Transport, namespace: str, *, patience: float = 30.0) -> None:
        self.road = Road(transport)
        self.client = KubeClient(self.road, timeout=patience, watch_idle_timeout=patience * 3)
        self.namespace = namespace


class Host(Guest):
    """A guest who can also do to the server what happens to servers."""

    def __init__(
        self, transport: Transport, namespace: str, *, plane: ControlPlane | None, store: ObjectStore | None
    ) -> None:
        super().__init__(transport, namespace)
        self._store = store
        self._plane = plane

    @property
    def store(self) -> ObjectStore:
        """What is behind pocket."""
        assert self._store
        return self._store

    def forgotten(self) -> str:
        """A version that the server no longer knows of."""
        if not self._plane:
            self.store.compact()
        return "1"  # a real one remembers nothing from before it served a kind

    async def restart(self) -> None:
        """Stop the server and start it again: all connections break, and its memory of events begins anew."""
        if self._plane:
            await asyncio.to_thread(self._plane.apiserver.stop)
            self._plane.apiserver.start()
        else:
            self.store.stop_watches()
            self.store.compact()

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """Have the server answer nothing for a while, and close nothing."""
        if self._plane:
            self._plane.apiserver.pause()
        self.road.hangs = not self._plane
        try:
            yield
        finally:
            self.road.hangs = False
            if self._plane:
                self._plane.apiserver.resume()

    async def compact(self) -> None:
        """Have etcd forget the past, and the server lose what it remembers of it."""
        if self._plane:
            await asyncio.to_thread(Etcd(self._plane.etcd_port).compact)
        await self.restart()

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Take a copy of everything, and go back to it in the end."""
        if not self._plane:
            copy = self.store.snapshot()
            yield
            self.store.restore(copy)
            return
        data, copied = self._plane.home / "etcd", self._plane.home / "etcd-copy"
        self._plane.stop()
        shutil.copytree(data, copied)
        self._plane.start()
        yield
        self._plane.stop()
        shutil.rmtree(data)
        copied.rename(data)
        self._plane.start()

    async def fill(self, count: int) -> None:
        """Make very many NodeNetworkConfigs, n-0 and so on."""
        names = [f"n-{number}" for number in range(count)]
        if self._plane:
            objects = [(f"{self._registry}{name}", self._born(name)) for name in names]
            await asyncio.to_thread(Etcd(self._plane.etcd_port).put, objects)
            return
        for name in names:
            self.store.create(self._served, self._born(name), namespace=self.namespace)

    async def empty(self) -> None:
        """Delete all NodeNetworkConfigs; nobody may be watching them."""
        if self._plane:
            await asyncio.to_thread(Etcd(self._plane.etcd_port).delete, self._registry)
            return
        for key, _ in self.store.list(self._served, namespace=self.namespace):
            self.store.delete(self._served, key)

    @property
    def _registry(self) -> str:
        return f"/registry/{NODE_NETWORK_CONFIGS.group}/{NODE_NETWORK_CONFIGS.plural}/{self.namespace}/"

    @property
    def _served(self) -> ApiResource:
        return self.store.registry.find(
            NODE_NETWORK_CONFIGS.group, NODE_NETWORK_CONFIGS.version, NODE_NETWORK_CONFIGS.plural
        )

    def _born(self, name: str) -> dict[str, object]:
        """Write an object out as the API server keeps it."""
        meta = {"name": name, "namespace": self.namespace, "uid": f"uid-{name}", "generation": 1}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return {"apiVersion": NODE_NETWORK_CONFIGS.api_version, "kind": NODE_NETWORK_CONFIGS.kind, "metadata": meta}


class Cluster:
    """A server: a real one, or else pocket, which may be behind HTTP."""

    def __init__(self, plane: ControlPlane | None, *, http: bool = False) -> None:
        self._plane = plane
        self._http = http

    @asynccontextmanager
    async def guest(self) -> AsyncIterator[Host]:
        """Open a place for one test, with our kinds defined."""
        async with AsyncExitStack() as stack:
            store = None if self._plane else pocket().store
            transport = await self._road(stack, store)
            guest = Host(transport, f"test-{next(_count)}", plane=self._plane, store=store)
            await install_crds(guest.client, crd_manifests())
            await guest.client.create(NAMESPACES, {"metadata": {"name": guest.namespace}})
            guest.road.sent.clear()
            yield guest

    async def _road(self, stack: AsyncExitStack, store: ObjectStore | None) -> Transport:
        if store and not self._http:
            return ResourceHandler(store)
        if store:
            server = LiteApiServer(store)
            port = await stack.enter_async_context(serving(server, host="127.0.0.1", port=0, grace=0))
            transport: Connection = HttpTransport(f"http://127.0.0.1:{port}")
        else:
            assert self._plane
            transport = from_kubeconfig(self._plane.kubeconfig)
        stack.push_async_callback(transport.close)
        return transport

    @asynccontextmanager
    async def kubeconfig(self, guest: Host, home: Path) -> AsyncIterator[Path]:
        """Have the guest's server on a port, for whoever comes with a kubeconfig."""
        if self._plane:
            yield self._plane.kubeconfig
            return
        async with serving(LiteApiServer(guest.store), host="127.0.0.1", port=0) as port:
            path = home / "pocket.kubeconfig"
            path.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
            yield path

    @asynccontextmanager
    async def afar(self, guest: Host, home: Path, *, patience: float) -> AsyncIterator[tuple[Guest, Wire]]:
        """Open a second place in the guest's namespace, at the end of a wire."""
        async with self.kubeconfig(guest, home) as path, AsyncExitStack() as stack:
            transport = from_kubeconfig(path)
            stack.push_async_callback(transport.close)
            base = URL(transport.base)
            laid = await stack.enter_async_context(wire(base.port or 0))
            transport.base = base.with_port(laid.port)
            yield Guest(transport, guest.namespace, patience=patience), laid
