"""A cluster is followed: what its objects and its ledger say, and who of them is away."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS
from podpool.api.crds import crd_manifests
from podpool.inspect.observer import LEDGER, Observer
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.messages import (
    DemandReport,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request, Response, Unreachable
from tests.agent.clocks import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

WAITING_AFTER = 30.0


class DisturbedTransport:
    """The way to the ledger, which can be closed."""

    def __init__(self, service: LedgerHandler) -> None:
        self.closed = True
        self._service = service

    async def send(self, request: Request) -> Response:
        if self.closed:
            raise Unreachable("the ledger", "the connection is closed")
        return await self._service(request)


class Site:
    """A cluster, a ledger, and who looks at both."""

    def __init__(self, *, has_ledger: bool = True) -> None:
        rng = random.Random(1)  # noqa: S311  the same each time
        self.kube = KubeClient(ResourceHandler(ObjectStore(clock=LoopClock(), rng=rng)))
        self._ledger = LedgerService(InlineSqliteStore(), clock=SystemClock(), rng=rng)
        self.ledger_transport = DisturbedTransport(LedgerHandler(self._ledger))
        ledger = LedgerClient(self.ledger_transport) if has_ledger else None
        self.observer = Observer(self.kube, ledger, clock=SystemClock(), rng=rng)

    async def open(self) -> None:
        await self._ledger.start()
        await self._ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
        await install_crds(self.kube, crd_manifests())

    async def join(self, name: str) -> None:
        await self.kube.create(NODES, {"metadata": {"name": name}})
        given = [{"name": "g1", "ip": "10.0.0.9"}, {"name": "g2", "ip": "10.0.0.10"}]
        container = {"id": "c", "primaryIP": "10.0.0.8", "subnetName": "pods", "vnetID": "vnet", "ipAssignments": given}
        config = {"metadata": {"name": name}, "spec": {"requestedIPCount": 2}}
        await self.kube.create(NODE_NETWORK_CONFIGS, config, namespace="kube-system")
        status = {"status": {"networkContainers": [container]}}
        await self.kube.merge_patch(NODE_NETWORK_CONFIGS, name, status, namespace="kube-system", subresource="status")

    async def seen(self, holds: Callable[[Observer], object]) -> None:
        """Look again and again until something is seen."""
        async with asyncio.timeout(WAITING_AFTER):
            while True:
                self.observer.model.refresh(at=SystemClock().wall())
                if holds(self.observer):
                    return
                await asyncio.sleep(0.01)


@asynccontextmanager
async def looking(*, has_ledger: bool = True) -> AsyncIterator[Site]:
    site = Site(has_ledger=has_ledger)
    await site.open()
    running = asyncio.create_task(site.observer.run())
    try:
        yield site
    finally:
        running.cancel()
        await asyncio.wait([running])


def test_the_state_of_cluster_and_ledger_is_shown_together() -> None:
    async def scenario() -> None:
        async with looking() as site:
            site.ledger_transport.closed = False
            await site.join("one")
            pod = {
                "metadata": {"name": "web"},
                "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]},
            }
            await site.kube.create(PODS, pod, namespace="default")
            await site.seen(lambda observer: observer.model.nodes.get("one") and observer.missing() is None)
            await site.seen(lambda observer: 1 == observer.model.nodes["one"].waiting)
            status = {"status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.9"}]}}
            await site.kube.merge_patch(PODS, "web", status, namespace="default", subresource="status")
            await site.seen(lambda observer: 1 == observer.model.nodes["one"].assigned)
            await site.seen(lambda observer: 1 == observer.model.subnets["vnet.pods"].assigned)
            assert 254 == site.observer.model.subnets["vnet.pods"].capacity
            assert {} == site.observer.model.problems

    asyncio.run(scenario())


def test_an_unreachable_ledger_is_reported_and_the_cluster_is_shown() -> None:
    async def scenario() -> None:
        async with looking() as site:
            await site.join("one")
            await site.seen(lambda observer: LEDGER in observer.model.problems and observer.model.nodes)
            assert "the ledger cannot be reached: the connection is closed" == site.observer.missing()
            site.ledger_transport.closed = False
            await site.seen(lambda observer: observer.model.subnets and not observer.model.problems)
            assert site.observer.missing() is None

    asyncio.run(scenario())


def test_without_a_ledger_subnets_are_what_nodes_show_of_them() -> None:
    async def scenario() -> None:
        async with looking(has_ledger=False) as site:
            await site.kube.create(NODES, {"metadata": {"name": "bare"}})
            await site.seen(lambda observer: observer.missing() is None and observer.model.nodes)
            assert ({}, "Every Pod has an address.") == (site.observer.model.subnets, site.observer.model.headline)
            await site.join("one")
            await site.kube.create(CLUSTER_SUBNETS, {"metadata": {"name": "pods"}}, namespace="kube-system")
            status = {"exhausted": True, "scaler": {"batch": 8, "buffer": 0.5}}
            await site.kube.merge_patch(
                CLUSTER_SUBNETS, "pods", {"status": status}, namespace="kube-system", subresource="status"
            )
            await site.seen(lambda observer: observer.model.subnets and observer.model.subnets["vnet.pods"].exhausted)
            shown = site.observer.model.subnets["vnet.pods"]
            assert (0, 3, 2, 8, 0.5) == (shown.capacity, shown.reserved, shown.idle, shown.batch, shown.buffer)
            assert {} == site.observer.model.problems

    asyncio.run(scenario())


def test_what_is_reserved_is_counted_although_the_ledger_decided_nothing() -> None:
    async def scenario() -> None:
        async with looking() as site:
            site.ledger_transport.closed = False
            await site.seen(lambda observer: observer.model.subnets)
            ledger = LedgerClient(site.ledger_transport)
            term = (await ledger.open_term(OpenTermRequest(cluster="c1"))).term
            subnet = SubnetName(network="vnet", name="pods")
            item = ReconcileItem(
                subnet=subnet, node="one", node_uid="uid", wanted=7, report=DemandReport(demand=0, batch=16)
            )
            await ledger.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=(item,)))
            await site.seen(lambda observer: 8 == observer.model.subnets["vnet.pods"].reserved)

    asyncio.run(scenario())
