"""The inventory that a restored ledger gets."""

import asyncio
import random

import msgspec
import pytest

from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS, AgentReport, NetworkContainer
from podpool.api.builtin import NODES
from podpool.api.crds import crd_manifests
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.reconcile_batcher import LeaderTerm
from podpool.controller.recovery_inventory import SEND_TIMEOUT, send_inventory
from podpool.controller.settings import ControllerSettings
from podpool.core.settings import Settings
from podpool.kube.backoff import Backoff
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import LedgerError, NotFound, StaleTerm
from podpool.ledger.messages import Inventory, InventoryResponse, SubnetName
from podpool.runtime.transport import Request, Response, Transport, Unreachable
from tests.kube.api_servers import lite_api_server
from tests.kube.event_loops import run_in_virtual_time

NC = {"id": "c1", "subnetName": "special", "version": 3, "primaryIP": "10.0.0.4"}
DELAY = Settings().node_gc_delay
SOON = 60.0
"""Seconds that retries may take."""


class FakeLedger:
    """Records inventories, each with its time; the first requests fail with these errors."""

    def __init__(self, *failures: Exception | None) -> None:
        self.inventories: list[Inventory] = []
        self.times: list[float] = []
        self._failures = list(failures)

    async def send(self, request: Request) -> Response:
        self.inventories.append(msgspec.json.decode(request.body, type=Inventory))
        self.times.append(asyncio.get_running_loop().time())
        match self._failures.pop(0) if self._failures else Response(200):
            case None:
                await asyncio.Event().wait()  # no response
            case LedgerError() as error:
                return Response(error.status, msgspec.json.encode(error.response))
            case Exception() as error:
                raise error
        return Response(200, msgspec.json.encode(InventoryResponse(revision=1)))


class LossyTransport:
    """Loses every tenth request."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._sent = 0

    async def send(self, request: Request) -> Response:
        self._sent += 1
        if self._sent % 10 == 0:
            raise Unreachable("api", "the request was lost")
        return await self._inner.send(request)


async def node_with_nnc(kube: KubeClient, status: dict[str, str] | None = None) -> None:
    """Create a Node and its NNC, which shows an NC."""
    await kube.create(NODES, {"metadata": {"name": "n1"}})
    meta = {"name": "n1", "namespace": "kube-system"}
    await kube.create(NODE_NETWORK_CONFIGS, {"metadata": meta, "spec": {"requestedIPCount": 1}})
    shown = {"status": {"networkContainers": [NC | (status or {})]}}
    await kube.merge_patch(NODE_NETWORK_CONFIGS, "n1", shown, namespace="kube-system", subresource="status")


async def restored_api() -> ResourceHandler:
    """Return an API server with one node, whose agent replies to inventory 1 that it knows more than its NNC shows."""
    api = lite_api_server()
    await install_crds(KubeClient(api), crd_manifests())
    await node_with_nnc(KubeClient(api))
    known = msgspec.convert(NC | {"version": 4}, NetworkContainer)
    reply = msgspec.json.encode(AgentReport(inventory=1, network_container="c1", known=known)).decode()
    patch = {"metadata": {"annotations": {AGENT_ANNOTATION: reply}}}
    await KubeClient(api).merge_patch(NODE_NETWORK_CONFIGS, "n1", patch, namespace="kube-system")
    return api


async def send(api: Transport, ledger: FakeLedger, common: Settings | None = None, *, network: str = "vnet") -> float:
    """Send an inventory, and return the seconds that this took."""
    settings = ControllerSettings(subnet=SubnetName(network="vnet", name="pods"), common=common or Settings())
    backoff = Backoff(rng=random.Random(1), base=0.2, maximum=30.0)  # noqa: S311  seeded
    client, term, loop = LedgerClient(ledger), LeaderTerm("c", network, 1, 0), asyncio.get_running_loop()
    begun = loop.time()
    await send_inventory(KubeClient(api), client, term, settings, health=LedgerHealth(), backoff=backoff, number=1)
    return loop.time() - begun


@pytest.mark.parametrize(("status", "network"), [({"vnetID": "other"}, "other"), ({}, "vnet")])
@run_in_virtual_time
async def test_an_nc_is_listed_in_its_own_network(status: dict[str, str], network: str) -> None:
    """A cluster may use subnets of several networks; a status without a network is of the default subnet's."""
    api, ledger = lite_api_server(), FakeLedger()
    await install_crds(KubeClient(api), crd_manifests())
    await node_with_nnc(KubeClient(api), status=status)
    await send(api, ledger, network=network)
    (inventory,) = ledger.inventories
    assert [SubnetName(network=network, name="special")] == [each.subnet for each in inventory.network_containers]


class TestRestoredApiServer:
    """An agent knows more than its NNC shows: machines without a Node have the node GC delay to register again."""

    @run_in_virtual_time
    async def test_lost_requests_do_not_restart_the_wait(self) -> None:
        api, ledger = await restored_api(), FakeLedger()
        assert DELAY <= await send(LossyTransport(api), ledger) < DELAY + SOON

    @pytest.mark.parametrize("failure", [Unreachable("ledger", "the response was lost"), NotFound("no subnet"), None])
    @run_in_virtual_time
    async def test_an_inventory_that_the_ledger_did_not_confirm_is_sent_again(self, failure: Exception | None) -> None:
        """In the same term, without another wait; an operator may have to create a subnet before it is accepted."""
        ledger = FakeLedger(failure)
        assert await send(await restored_api(), ledger) < DELAY + SEND_TIMEOUT + SOON
        assert [1, 1] == [each.term for each in ledger.inventories]

    @run_in_virtual_time
    async def test_an_inventory_of_a_former_term_is_not_sent_again(self) -> None:
        ledger = FakeLedger(StaleTerm("the term has ended"))
        with pytest.raises(StaleTerm):
            await send(await restored_api(), ledger)
        assert 1 == len(ledger.inventories)

    @run_in_virtual_time
    async def test_the_timeout_for_replies_does_not_end_the_wait(self) -> None:
        """Before the node GC delay a machine without a Node may still assign addresses."""
        assert await send(await restored_api(), FakeLedger(), Settings(inventory_timeout=DELAY / 2)) >= DELAY

    @pytest.mark.parametrize("writes", [0, 20])
    @run_in_virtual_time
    async def test_a_restore_during_the_wait_restarts_it(self, writes: int) -> None:
        """Also if the versions of the restored API server have caught up when it is read again."""
        api = await restored_api()
        copy = api.store.snapshot()
        sending = asyncio.ensure_future(send(api, FakeLedger()))
        await asyncio.sleep(DELAY / 2)
        api.store.restore(copy)
        for number in range(writes):
            patch = {"metadata": {"labels": {"number": str(number)}}}
            await KubeClient(api).merge_patch(NODE_NETWORK_CONFIGS, "n1", patch, namespace="kube-system")
        assert 1.5 * DELAY <= await sending < 1.5 * DELAY + SOON
