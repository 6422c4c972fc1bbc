"""The inventory that a restored ledger gets."""

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.api.crds import crd_manifests
from podpool.controller.reconcile_batcher import LeaderTerm
from podpool.controller.recovery_inventory import send_inventory
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Inventory, InventoryResponse, SubnetName
from podpool.runtime.transport import Request, Response
from tests.kube.api_servers import lite_api_server
from tests.kube.event_loops import run_in_virtual_time

NC = {"id": "c1", "subnetName": "special", "version": 3, "primaryIP": "10.0.0.4"}


class FakeLedger:
    """Records inventories."""

    def __init__(self) -> None:
        self.inventories: list[Inventory] = []

    async def send(self, request: Request) -> Response:
        self.inventories.append(msgspec.json.decode(request.body, type=Inventory))
        return Response(200, msgspec.json.encode(InventoryResponse(revision=1)))


@pytest.mark.parametrize(("status", "network"), [({"vnetID": "other"}, "other"), ({}, "vnet")])
@run_in_virtual_time
async def test_an_nc_is_listed_in_its_own_network(status: dict[str, str], network: str) -> None:
    """A cluster may use subnets of several networks; a status without a network is of the default subnet's."""
    kube, ledger = KubeClient(lite_api_server()), FakeLedger()
    await install_crds(kube, crd_manifests())
    await kube.create(NODES, {"metadata": {"name": "n1"}})
    meta = {"name": "n1", "namespace": "kube-system"}
    await kube.create(NODE_NETWORK_CONFIGS, {"metadata": meta, "spec": {"requestedIPCount": 1}})
    await kube.merge_patch(
        NODE_NETWORK_CONFIGS,
        "n1",
        {"status": {"networkContainers": [NC | status]}},
        namespace="kube-system",
        subresource="status",
    )
    settings = ControllerSettings(subnet=SubnetName(network="vnet", name="pods"))
    await send_inventory(kube, LedgerClient(ledger), LeaderTerm("c", 1, 0), settings)
    (inventory,) = ledger.inventories
    assert [SubnetName(network=network, name="special")] == [each.subnet for each in inventory.network_containers]
