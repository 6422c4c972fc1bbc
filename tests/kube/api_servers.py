"""API servers under test: the lite API server, in process and over HTTP, and a real kube-apiserver."""

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
from podpool.kube.client_config import Connection, from_kubeconfig
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import ApiResource
from podpool.lab.apiserver.root_handler import LiteApiServer
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Transport
from tests.kube.disturbable_transport import DisturbableTransport
from tests.kube.etcd_client import EtcdClient
from tests.kube.tcp_proxy import TcpProxy, tcp_proxy

_count = itertools.count(1)


class FixedClock:
    """A clock that stands still."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self.seconds = wall

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


def lite_api_server() -> ResourceHandler:
    return ResourceHandler(ObjectStore(clock=FixedClock(), rng=random.Random(7)))  # noqa: S311  seeded


class NamespaceClient:
    """A client with its transport and a namespace of its own."""

    def __init__(self, transport: Transport, namespace: str, *, timeout: float = 30.0) -> None:
        self.transport = DisturbableTransport(transport)
        self.client = KubeClient(self.transport, timeout=timeout, watch_idle_timeout=timeout * 3)
        self.namespace = namespace


class ServerHandle(NamespaceClient):
    """A api who can also do to the server what happens to servers."""

    def __init__(
        self, transport: Transport, namespace: str, *, plane: ControlPlane | None, store: ObjectStore | None
    ) -> None:
        super().__init__(transport, namespace)
        self._store = store
        self._plane = plane

    @property
    def store(self) -> ObjectStore:
        """The store of the lite API server."""
        assert self._store
        return self._store

    def expired_version(self) -> str:
        """Return a resourceVersion that has expired."""
        if not self._plane:
            self.store.compact()
        return "1"  # a real server has no history from before it served a kind

    async def restart(self) -> None:
        """Restart the server: all connections break, and its watch cache is empty."""
        if self._plane:
            await asyncio.to_thread(self._plane.apiserver.stop)
            self._plane.apiserver.start()
        else:
            self.store.stop_watches()
            self.store.compact()

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """Stop all responses of the server within the block, without closing connections."""
        if self._plane:
            self._plane.apiserver.pause()
        self.transport.hangs = not self._plane
        try:
            yield
        finally:
            self.transport.hangs = False
            if self._plane:
                self._plane.apiserver.resume()

    async def compact(self) -> None:
        """Compact etcd and restart the server."""
        if self._plane:
            await asyncio.to_thread(EtcdClient(self._plane.etcd_port).compact)
        await self.restart()

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Back up the server, and restore the backup at the end of the block."""
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
        """Create many NodeNetworkConfigs: n-0, n-1 and so on."""
        names = [f"n-{number}" for number in range(count)]
        if self._plane:
            objects = [(f"{self._registry}{name}", self._stored(name)) for name in names]
            await asyncio.to_thread(EtcdClient(self._plane.etcd_port).put, objects)
            return
        for name in names:
            self.store.create(self._served, self._stored(name), namespace=self.namespace)

    async def empty(self) -> None:
        """Delete all NodeNetworkConfigs; no watch may be open."""
        if self._plane:
            await asyncio.to_thread(EtcdClient(self._plane.etcd_port).delete, self._registry)
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

    def _stored(self, name: str) -> dict[str, object]:
        """Return an object as the API server stores it."""
        meta = {"name": name, "namespace": self.namespace, "uid": f"uid-{name}", "generation": 1}
        meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
        return {"apiVersion": NODE_NETWORK_CONFIGS.api_version, "kind": NODE_NETWORK_CONFIGS.kind, "metadata": meta}


class ApiServerUnderTest:
    """A real API server, or the lite API server in process or over HTTP."""

    def __init__(self, plane: ControlPlane | None, *, http: bool = False) -> None:
        self._plane = plane
        self._http = http

    @asynccontextmanager
    async def open_namespace(self) -> AsyncIterator[ServerHandle]:
        """Create a namespace for one test, with our CRDs installed."""
        async with AsyncExitStack() as stack:
            store = None if self._plane else lite_api_server().store
            transport = await self._transport(stack, store)
            api = ServerHandle(transport, f"test-{next(_count)}", plane=self._plane, store=store)
            await install_crds(api.client, crd_manifests())
            await api.client.create(NAMESPACES, {"metadata": {"name": api.namespace}})
            api.transport.sent.clear()
            yield api

    async def _transport(self, stack: AsyncExitStack, store: ObjectStore | None) -> Transport:
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
    async def kubeconfig(self, api: ServerHandle, home: Path) -> AsyncIterator[Path]:
        """Serve the API server on a port; yields a kubeconfig."""
        if self._plane:
            yield self._plane.kubeconfig
            return
        async with serving(LiteApiServer(api.store), host="127.0.0.1", port=0) as port:
            path = home / "lite.kubeconfig"
            path.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
            yield path

    @asynccontextmanager
    async def through_proxy(
        self, api: ServerHandle, home: Path, *, request_timeout: float
    ) -> AsyncIterator[tuple[NamespaceClient, TcpProxy]]:
        """Open a second client of the namespace, through a TCP proxy."""
        async with self.kubeconfig(api, home) as path, AsyncExitStack() as stack:
            transport = from_kubeconfig(path)
            stack.push_async_callback(transport.close)
            base = URL(transport.base)
            proxy = await stack.enter_async_context(tcp_proxy(base.port or 0))
            transport.base = base.with_port(proxy.port)
            yield NamespaceClient(transport, api.namespace, timeout=request_timeout), proxy
