"""What a restored ledger is told."""

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.api.crds import crd_manifests
from podpool.controller.nnc_inventory import send_listing
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Inventory, InventoryResponse, SubnetName
from podpool.runtime.transport import Request, Response
from tests.kube.clusters import pocket
from tests.kube.loops import in_virtual_time

CONTAINER = {"id": "c1", "subnetName": "special", "version": 3, "primaryIP": "10.0.0.4"}


class Ledger:
    """Takes a list."""

    def __init__(self) -> None:
        self.listings: list[Inventory] = []

    async def send(self, request: Request) -> Response:
        self.listings.append(msgspec.json.decode(request.body, type=Inventory))
        return Response(200, msgspec.json.encode(InventoryResponse(revision=1)))


@pytest.mark.parametrize(("told", "network"), [({"vnetID": "other"}, "other"), ({}, "vnet")])
@in_virtual_time
async def test_a_container_is_listed_in_its_own_network(told: dict[str, str], network: str) -> None:
    """One cluster may be on subnets of several; a status that names none is of the default one."""
    kube, ledger = KubeClient(pocket()), Ledger()
    await install_crds(kube, crd_manifests())
    await kube.create(NODES, {"metadata": {"name": "n1"}})
    meta = {"name": "n1", "namespace": "kube-system"}
    await kube.create(NODE_NETWORK_CONFIGS, {"metadata": meta, "spec": {"requestedIPCount": 1}})
    status = {"networkContainers": [CONTAINER | told]}
    await kube.merge_patch(NODE_NETWORK_CONFIGS, "n1", {"status": status}, namespace="kube-system", subresource="status")
    settings = ControllerSettings(subnet=SubnetName(network="vnet", name="pods"))
    await send_listing(kube, LedgerClient(ledger), cluster="c", term=1, seen=0, settings=settings)
    (listing,) = ledger.listings
    assert [SubnetName(network=network, name="special")] == [each.subnet for each in listing.containers]
