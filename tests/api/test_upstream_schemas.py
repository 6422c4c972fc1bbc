"""Ours and the other projects' definitions, whichever came first: both sides' components go on working."""

from functools import partial
from typing import Any

import pytest

from parts.api import Api
from parts.control_plane import ControlPlane
from parts.polling import until
from podpool.api.azure import NODE_NETWORK_CONFIGS, NetworkConfigSpec, NodeNetworkConfig
from podpool.api.crds import crd_manifests
from podpool.api.meta import ObjectMeta
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_SLICE_POOLS,
    Allocation,
    IPPool,
    IPPoolSpec,
    NodeSlicePool,
    NodeSlicePoolSpec,
    NodeSlicePoolStatus,
    OverlappingRangeIPReservation,
    ReservationSpec,
    SliceAllocation,
)
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.kube.crd_install import install_crds
from tests.api.sample_objects import WHOLE, head, path
from tests.api.upstream_schemas import azure, whereabouts
from tests.kube.cli_manifests import install_crds_with_kubectl
from tests.kube.event_loops import run_in_loop

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

THEIRS = [*azure(), *whereabouts()]
KINDS = [each["spec"]["names"]["kind"] for each in THEIRS]


def shows(api: Api, kind: str, *, ours: bool) -> bool:
    """Whether a kind's schema is ours, which keeps what it does not know."""
    odd = {**head(kind, "odd"), **WHOLE[kind], "odd": {"really": True}}
    return ours is ("odd" in api.post(f"{path(kind)}?dryRun=All", odd))


def in_force(api: Api, *, ours: bool) -> None:
    for kind in KINDS:
        until(partial(shows, api, kind, ours=ours), f"the schema of {kind} is in force")


@pytest.fixture
def theirs(control_plane: ControlPlane) -> ControlPlane:
    """A cluster on which the others have been, before us or after us."""
    for manifest in THEIRS:
        control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=manifest)
    in_force(control_plane.admin, ours=False)
    return control_plane


def clear(api: Api, kind: str, *names: str) -> None:
    for each in api.get(path(kind))["items"]:
        if each["metadata"]["name"] in names:
            api.delete(f"{path(kind)}/{each['metadata']['name']}")


def written(api: Api) -> list[dict[str, Any]]:
    """What the others have written."""
    found = [each for kind in KINDS for each in api.get(path(kind))["items"]]
    return [each for each in found if each["metadata"]["name"] in ("azures", "theirs")]


def azure_at_work(api: Api) -> None:
    """What CNS and its controller write: a PUT of the older one, an apply of the newer one, and a whole status."""
    place = f"{path('NodeNetworkConfig')}/azures"
    clear(api, "NodeNetworkConfig", "azures")
    made = api.post(path("NodeNetworkConfig"), {**head("NodeNetworkConfig", "azures"), "spec": {}})
    updated = api.put(f"{place}/status", {**made, "status": WHOLE["NodeNetworkConfig"]["status"]})
    assert WHOLE["NodeNetworkConfig"]["status"] == updated["status"]
    assert 31 == api.put(place, {**updated, "spec": {"requestedIPCount": 31}})["spec"]["requestedIPCount"]
    empty = {"assignedIPCount": 0, "scaler": {}}
    body = {**head("NodeNetworkConfig", "azures"), "spec": {"requestedIPCount": 47}, "status": empty}
    applied = api.patch(f"{place}?fieldManager=azure-cns&force=true", body, media="application/apply-patch+yaml")
    assert (47, updated["status"]) == (applied["spec"]["requestedIPCount"], applied["status"])


def whereabouts_at_work(api: Api) -> None:
    """What its plugin and its slice controller write."""
    for kind in ("IPPool", "OverlappingRangeIPReservation", "NodeSlicePool"):
        clear(api, kind, "theirs")
    empty = {"range": "10.1.0.0/24", "allocations": {}}
    pool = api.post(path("IPPool"), {**head("IPPool", "theirs"), "spec": empty})
    entry = {"id": "cid", "ifname": "net1", "podref": "ns/p1"}
    operations = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": pool["metadata"]["resourceVersion"]},
        {"op": "test", "path": "/spec/allocations/1", "value": None},
        {"op": "add", "path": "/spec/allocations/1", "value": entry},
    ]
    kept = api.patch(f"{path('IPPool')}/theirs", operations, media="application/json-patch+json")
    assert {"1": entry} == kept["spec"]["allocations"]
    reserved = WHOLE["OverlappingRangeIPReservation"]
    api.post(path("OverlappingRangeIPReservation"), {**head("OverlappingRangeIPReservation", "theirs"), **reserved})
    made = api.post(path("NodeSlicePool"), {**head("NodeSlicePool", "theirs"), **WHOLE["NodeSlicePool"]})
    assert WHOLE["NodeSlicePool"]["status"] == made["status"], "a status that comes with the object counts"
    emptied: dict[str, list[Any]] = {"allocations": []}
    assert emptied == api.put(f"{path('NodeSlicePool')}/theirs", {**made, "status": emptied})["status"]


async def us_at_work(client: KubeClient) -> None:
    """What we write of both worlds' kinds comes back as it was written."""
    meta = ObjectMeta(name="ours", namespace="default")
    entry = Allocation(id="c", podref="default/p", ifname="net1")
    pool = IPPool(metadata=meta, spec=IPPoolSpec(range="10.2.0.0/24", allocations={"7": entry}))
    assert pool.spec == (await client.create(IP_POOLS, pool)).spec
    empty = IPPool(metadata=ObjectMeta(name="ours-empty", namespace="default"), spec=IPPoolSpec(range="10.3.0.0/24"))
    assert empty.spec == (await client.create(IP_POOLS, empty)).spec
    reserved = OverlappingRangeIPReservation(metadata=meta, spec=ReservationSpec(podref="default/p"))
    assert reserved.spec == (await client.create(IP_RESERVATIONS, reserved)).spec
    slices = NodeSlicePool(
        metadata=meta,
        spec=NodeSlicePoolSpec(range="10.0.0.0/8", slice_size="/10"),
        status=NodeSlicePoolStatus(allocations=(SliceAllocation(node_name="", slice_range="10.0.0.0/10"),)),
    )
    assert slices.status == (await client.create(NODE_SLICE_POOLS, slices)).status
    config = NodeNetworkConfig(metadata=meta, spec=NetworkConfigSpec(requested=15, pending_release=("g",)))
    assert config.spec == (await client.create(NODE_NETWORK_CONFIGS, config)).spec
    status = WHOLE["NodeNetworkConfig"]["status"]
    await client.merge_patch(
        NODE_NETWORK_CONFIGS, "ours", {"status": status}, namespace="default", subresource="status"
    )
    assert status == (await client.get_raw(NODE_NETWORK_CONFIGS, "ours", namespace="default"))["status"]


async def as_us(plane: ControlPlane) -> None:
    for kind in KINDS:
        clear(plane.admin, kind, "ours", "ours-empty")
    transport = from_kubeconfig(plane.kubeconfig)
    try:
        await us_at_work(KubeClient(transport))
    finally:
        await transport.close()


class TestTheirsFirst:
    def test_ours_from_kubectl_takes_over_what_they_wrote(self, theirs: ControlPlane) -> None:
        azure_at_work(theirs.admin)
        whereabouts_at_work(theirs.admin)
        before = written(theirs.admin)
        install_crds_with_kubectl(theirs)
        in_force(theirs.admin, ours=True)
        assert before == written(theirs.admin)
        azure_at_work(theirs.admin)
        whereabouts_at_work(theirs.admin)

    @run_in_loop
    async def test_ours_from_our_installer_too(self, theirs: ControlPlane) -> None:
        transport = from_kubeconfig(theirs.kubeconfig)
        try:
            await install_crds(KubeClient(transport), crd_manifests())
        finally:
            await transport.close()
        in_force(theirs.admin, ours=True)
        azure_at_work(theirs.admin)
        whereabouts_at_work(theirs.admin)
        await as_us(theirs)
        marked = theirs.admin.get(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ippools.whereabouts.cni.cncf.io"
        )
        assert "another" == marked["metadata"]["annotations"]["made-by"]


class TestOursFirst:
    @run_in_loop
    async def test_what_we_write_is_whole_under_their_definitions(self, theirs: ControlPlane) -> None:
        await as_us(theirs)
        azure_at_work(theirs.admin)
        whereabouts_at_work(theirs.admin)
        install_crds_with_kubectl(theirs)  # for the next test
        in_force(theirs.admin, ours=True)
