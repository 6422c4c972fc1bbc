"""What is shown of a node, of a subnet, and of networks in slices."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.api.azure import ClusterSubnet, NodeNetworkConfig
from podpool.api.whereabouts import IPPool, NodeSlicePool
from podpool.core.scaling import Scaler
from podpool.inspect.forecast import SubnetTimeSeries
from podpool.inspect.secondary_networks import network_views
from podpool.inspect.view_models import (
    InspectedPod,
    InspectedPodAnnotations,
    InspectedPodMeta,
    NodeView,
    SubnetView,
    node_view,
    pod_view,
    subnet_view,
    with_cluster_scaler,
)
from podpool.ledger.messages import SubnetName, SubnetSpec, SubnetState


def pod(name: str, *, address: str = "", node: str = "n1", since: str = "", **more: Any) -> InspectedPod:  # noqa: ANN401  parts of an object
    shown = {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": since or None},
        "spec": {"nodeName": node, **more.get("spec", {})},
        "status": {"phase": more.get("phase", "Pending"), "podIPs": [{"ip": address}] if address else []},
    }
    if "conditions" in more:
        shown["status"]["conditions"] = more["conditions"]
    return msgspec.convert(shown, InspectedPod)


def config(
    addresses: int = 4, *, requested: int = 4, released: int = 0, status: str = "NCUpdateSuccess"
) -> NodeNetworkConfig:
    given_ = [{"name": f"g{number}", "ip": f"10.0.0.{10 + number}"} for number in range(addresses)]
    container = {
        "primaryIP": "10.0.0.4",
        "subnetName": "pods",
        "vnetID": "vnet",
        "ipAssignments": given_,
        "status": status,
    }
    shown = {
        "metadata": {"name": "n1", "namespace": "kube-system", "annotations": {"podpool.io/agent": '{"batch": 8}'}},
        "spec": {"requestedIPCount": requested, "ipsNotInUse": [f"g{number}" for number in range(released)]},
        "status": {"networkContainers": [container]},
    }
    return msgspec.convert(shown, NodeNetworkConfig)


def state(**more: Any) -> SubnetState:  # noqa: ANN401  as it has them
    name = SubnetName(network="vnet", name="pods")
    usual = {"revision": 1, "timestamp": "", "cidr": "10.0.0.0/24", "capacity": 254, "reserved": 0, "cooldown": 30.0}
    return SubnetState(subnet=name, scaler=Scaler(16, 50), **{**usual, **more})


def test_an_address_that_a_pod_shows_is_assigned_and_the_others_are_idle() -> None:
    view = node_view("n1", config(), [pod("a", address="10.0.0.10"), pod("b", address="10.0.0.12")])
    assert (2, 2, 1, "vnet.pods", 8) == (view.assigned, view.idle, view.primaries, view.subnet, view.batch)


def test_what_is_asked_for_arrives_and_what_was_named_leaves() -> None:
    view = node_view("n1", config(4, requested=10, released=1), [])
    assert (3, 7, 1) == (view.idle, view.pending, view.releasing)


def test_a_finished_pod_and_one_on_the_hosts_network_neither_use_nor_wait() -> None:
    pods = [
        pod("done", address="10.0.0.10", phase="Succeeded"),
        pod("host", spec={"hostNetwork": True}),
        pod("failed", phase="Failed"),
    ]
    view = node_view("n1", config(), pods)
    assert (0, 0) == (view.assigned, view.waiting)


def test_a_pod_that_is_being_deleted_does_not_wait() -> None:
    leaving = pod("leaving")
    leaving = msgspec.structs.replace(
        leaving, metadata=msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert 0 == node_view("n1", config(), [leaving]).waiting
    assert "terminating" == pod_view(leaving).state


def test_who_waits_longest_is_named_first_since_it_was_bound() -> None:
    bound = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]
    pods = [pod("young", since="2026-01-01T00:00:09Z"), pod("old", since="2025-12-31T23:00:00Z", conditions=bound)]
    view = node_view("n1", config(), pods)
    assert [("default/old", "2026-01-01T00:00:01Z"), ("default/young", "2026-01-01T00:00:09Z")] == [
        (each.pod, each.since) for each in view.waiting_pods
    ]


def test_a_node_without_a_container_has_nothing() -> None:
    assert NodeView(name="n1", waiting=1, waiting_pods=(view := node_view("n1", None, [pod("a")])).waiting_pods) == view


def test_a_shortage_and_a_node_that_is_gone_are_shown() -> None:
    full = config(status="NCUpdateSubnetFullError")
    requested = msgspec.structs.replace(full, spec=msgspec.structs.replace(full.spec, requested=100))
    assert node_view("n1", requested, []).short
    assert not node_view("n1", full, []).short, "it has what it requests since"
    assert node_view("n1", config(), [], there=False).gone


def test_a_subnet_scales_as_the_controller_decided_whatever_the_ledger_would() -> None:
    short = state(exhausted=True)
    status = {"scaler": {"batch": 8, "buffer": 0.25}, "exhausted": False}
    undecided, decided = (msgspec.convert({"status": each}, ClusterSubnet) for each in ({}, status))
    assert short == with_cluster_scaler(short, None) == with_cluster_scaler(short, undecided)
    view = subnet_view(with_cluster_scaler(short, decided), None, [])
    assert (8, 0.25, False) == (view.batch, view.buffer, view.exhausted)


def test_what_no_node_of_this_cluster_has_is_other_clusters() -> None:
    nodes = [
        NodeView(name="n1", assigned=5, idle=10, primaries=1),
        NodeView(name="n2", assigned=1, releasing=2, primaries=1),
    ]
    made = SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24")
    view = subnet_view(state(reserved=50, cooling_down=3), made, nodes)
    assert (6, 12, 2, 3, 27) == (view.assigned, view.idle, view.primaries, view.cooling_down, view.other_clusters)
    assert 50 - 12 == view.occupied
    assert (90, 80, 16) == (view.upper, view.lower, view.configured_batch)


@given(
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250), st.integers(0, 9)), max_size=6),
    st.integers(0, 60),
    st.integers(0, 900),
)
def test_the_parts_of_a_subnet_add_up_to_what_is_reserved(
    nodes: list[tuple[int, int, int]], cooling: int, others: int
) -> None:
    views = [NodeView(name="n", assigned=a, idle=i, releasing=left, primaries=1) for a, i, left in nodes]
    reserved = sum(sum(each) + 1 for each in nodes) + cooling + others
    view = subnet_view(state(reserved=reserved, cooling_down=cooling), None, views)
    assert reserved == view.assigned + view.idle + view.primaries + view.cooling_down + view.other_clusters
    assert others == view.other_clusters


def test_slices_show_their_usage_and_the_fullest_comes_first() -> None:
    allocations = [{"nodeName": "n1", "sliceRange": "10.9.0.0/28"}, {"nodeName": "n2", "sliceRange": "10.9.0.16/28"}]
    pool = {
        "metadata": {"name": "fast"},
        "spec": {"range": "10.9.0.0/24", "sliceSize": "/28"},
        "status": {"allocations": [*allocations, {"nodeName": "", "sliceRange": "10.9.0.32/28"}]},
    }
    entry = {"id": "c", "podref": "default/p"}
    used = {
        "metadata": {"name": "fast-n2-10.9.0.16-28"},
        "spec": {"range": "10.9.0.16/28", "allocations": {"1": entry, "2": entry}},
    }
    shared = {"metadata": {"name": "10.7.0.0-24"}, "spec": {"range": "10.7.0.0/24", "allocations": {"5": entry}}}
    pools = [msgspec.convert(each, IPPool) for each in (used, shared)]
    classic, fast = network_views([msgspec.convert(pool, NodeSlicePool)], pools)
    assert ("fast", 16, 2, 2, 28) == (fast.name, fast.slices, fast.assigned, fast.used, fast.size)
    assert [("n2", 2), ("n1", 0)] == [(each.node, each.used) for each in fast.fullest]
    assert ("10.7.0.0-24", "", 1, 254) == (classic.name, classic.slice_size, classic.used, classic.size)


@pytest.mark.parametrize(("size", "count"), [("/24", 65_536), ("", 1), ("/4", 1)])
def test_slices_are_counted_by_the_range_and_else_by_the_table(size: str, count: int) -> None:
    pool = {
        "metadata": {"name": "wide"},
        "spec": {"range": "10.0.0.0/8", "sliceSize": size},
        "status": {"allocations": [{"nodeName": "n1", "sliceRange": "10.0.0.0/24"}]},
    }
    (view,) = network_views([msgspec.convert(pool, NodeSlicePool)], [])
    assert (1, count) == (view.assigned, view.slices)


def test_a_series_is_bounded_and_keeps_its_first_and_its_newest_sample() -> None:
    series = SubnetTimeSeries(step=1.0, most=10)
    view = SubnetView(name="vnet.pods", cidrs=("10.0.0.0/24",), capacity=100)
    for second in range(100):
        series.take(view, at=float(second))
        assert len(series.samples) <= 10
    times = [each.at for each in series.samples]
    assert times == sorted(times)
    assert times[0] < 10
    assert times[-1] > 80


def test_a_clock_that_is_set_back_begins_a_new_series() -> None:
    series = SubnetTimeSeries(step=1.0)
    view = SubnetView(name="vnet.pods", cidrs=("10.0.0.0/24",), capacity=100)
    for at in (100.0, 101.0, 50.0):
        series.take(view, at=at)
    assert [50.0] == [each.at for each in series.samples]


def test_a_sample_is_not_taken_before_its_time() -> None:
    series = SubnetTimeSeries(step=2.0)
    view = SubnetView(name="vnet.pods", cidrs=("10.0.0.0/24",), capacity=100)
    assert [True, False, True] == [series.take(view, at=at) is not None for at in (10.0, 11.0, 12.0)]


@pytest.mark.parametrize("networks", ["[" * 5000, r'[{"name":"\u0000"}]', '[{"name":' + "9" * 5000 + "}]", "[1]"])
def test_networks_that_cannot_be_decoded_are_none(networks: str) -> None:
    pod = InspectedPod(metadata=InspectedPodMeta(annotations=InspectedPodAnnotations(networks=networks)))
    assert frozenset() == pod.secondary_networks
