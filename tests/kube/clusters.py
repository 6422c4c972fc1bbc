"""The two servers that one suite runs on: pocket, in process, and a real kube-apiserver, over HTTP."""

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from parts.control_plane import ControlPlane
from podpool.kube.client import KubeClient
from podpool.kube.config import from_kubeconfig
from podpool.kube.install import install
from podpool.pocket.handler import PocketApi
from podpool.pocket.store import PocketStore
from podpool.resources.builtin import NAMESPACES
from podpool.resources.crds import manifests
from podpool.runtime.http import HttpTransport
from podpool.runtime.transport import Transport
from tests.kube.roads import Road

_count = itertools.count(1)


class FixedClock:
    """A clock that shows what it was set to."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self.seconds = wall

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


def pocket() -> PocketApi:
    return PocketApi(PocketStore(clock=FixedClock(), rng=random.Random(7)))  # noqa: S311  seeded


class Guest:
    """A test's place on a server: a client, the road under it, and a namespace that no other test has."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.road = Road(transport)
        self.client = KubeClient(self.road, deadline=30.0)
        self.namespace = namespace
        self._server = transport

    @property
    def store(self) -> PocketStore:
        """What is behind pocket."""
        assert isinstance(self._server, PocketApi)
        return self._server.store

    def forgotten(self) -> str:
        """A version that the server no longer knows of."""
        if isinstance(self._server, PocketApi):
            self.store.compact()
        return "1"  # a real one remembers nothing from before it served a kind


class Cluster:
    """A server."""

    def __init__(self, plane: ControlPlane | None) -> None:
        self._plane = plane

    @asynccontextmanager
    async def guest(self) -> AsyncIterator[Guest]:
        """Open a place for one test, with our kinds defined."""
        transport = from_kubeconfig(self._plane.kubeconfig) if self._plane else pocket()
        guest = Guest(transport, f"test-{next(_count)}")
        try:
            await install(guest.client, manifests())
            await guest.client.create(NAMESPACES, {"metadata": {"name": guest.namespace}})
            guest.road.sent.clear()
            yield guest
        finally:
            if isinstance(transport, HttpTransport):
                await transport.close()
