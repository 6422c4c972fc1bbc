"""The cluster model reports what changed and nothing else; search and diagnosis on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from podpool.api.builtin import Event
from podpool.core.errors import InvalidInput
from podpool.inspect.activity import activity_of, headline
from podpool.inspect.address_map import address_map
from podpool.inspect.cluster_model import MAX_ACTIVITY, PUBLISH_DELAY
from podpool.inspect.diagnose import diagnose
from podpool.inspect.search import HistorySearch, find
from podpool.inspect.secondary_networks import NetworkView
from podpool.inspect.view_models import NodeView, SubnetView
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Request, Response, Unreachable
from tests.dashboard.fake_cluster import CLUSTER, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from podpool.inspect.cluster_model import ClusterDelta


def run_scenario(scenario: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  whatever the scenario gives
    return asyncio.run(scenario)


async def make_cluster(cidr: str = "10.0.0.0/24", **demand: int) -> FakeCluster:
    cluster = FakeCluster()
    await cluster.open(cidr, gateway=cidr.partition("/")[0][:-1] + "1")
    await cluster.set_pods(demand)
    cluster.model.refresh(at=cluster.clock.now)
    return cluster


def refresh(cluster: FakeCluster, seconds: float = 0.1) -> ClusterDelta:
    cluster.clock.now += seconds
    return cluster.model.refresh(at=cluster.clock.now)


def test_only_changes_are_in_a_delta() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=3, b=4, c=5)
        assert refresh(cluster).empty
        cluster.bind("a-9", "a")
        delta = refresh(cluster)
        assert ["a"] == [each.name for each in delta.nodes]
        assert 1 == delta.nodes[0].waiting
        assert ["vnet.pods"] == [each.name for each in delta.subnets]

    run_scenario(scenario())


def test_the_changes_since_a_picture_make_the_next_picture() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=3, b=4)
        before = cluster.model.snapshot(at=0)
        nodes = {each.name: each for each in before.nodes}
        for demand in ({"a": 20, "c": 2}, {"b": 0}, {"d": 30}):
            await cluster.set_pods(demand)
            delta = refresh(cluster)
            nodes |= {each.name: each for each in delta.nodes}
        cluster.caches.nodes.discard("d")
        cluster.caches.nncs.discard("kube-system/d")
        for name in refresh(cluster).removed_nodes:
            del nodes[name]
        assert {each.name: each for each in cluster.model.snapshot(at=0).nodes} == nodes
        assert "d" not in nodes

    run_scenario(scenario())


def test_a_full_subnet_is_described() -> None:
    async def scenario() -> None:
        cluster = await make_cluster("10.0.0.0/26", a=3)
        assert "Every Pod has an address." == cluster.model.headline
        for _ in range(4):  # the batch shrinks, what is idle rests, and goes where Pods are
            await cluster.set_pods({"a": 25, "b": 20})
            await cluster.later(6)
        words = [each.message for each in cluster.model.activity]
        assert any(each.startswith("is exhausted: ") for each in words)
        assert any(each.startswith("uses batch ") for each in words)
        assert any(each.startswith("is no longer exhausted: ") for each in words)
        assert "Every Pod has an address." == cluster.model.headline
        await cluster.set_pods({"b": 60})
        await cluster.later(1)
        await cluster.later(3)
        assert cluster.model.headline.endswith("Pods wait for an address on 1 node.")

    run_scenario(scenario())


def test_a_pod_that_is_being_started_does_not_wait_yet() -> None:
    """Or every Deployment would turn the page red, and be read aloud."""

    async def scenario() -> None:
        cluster = FakeCluster()
        await cluster.open()
        await cluster.set_pods({"a": 3})
        await cluster.later(1)
        cluster.bind("new", "a")
        await cluster.later(1)
        assert ("Every Pod has an address.", 0) == (cluster.model.headline, cluster.model.snapshot(at=0.0).waiting)
        await cluster.later(3)
        assert "1 Pod waits for an address on 1 node." == cluster.model.headline
        assert 1 == cluster.model.snapshot(at=0.0).waiting

    run_scenario(scenario())


def test_the_subject_of_an_event_is_not_repeated() -> None:
    note = "node one has no free address"
    event = msgspec.convert(
        {
            "reportingController": "podpool-agent",
            "regarding": {"kind": "Node", "name": "one"},
            "note": note,
        },
        Event,
    )
    message = activity_of(event)
    assert message
    assert ("Node one", "has no free address") == (message.subject, message.message)


def test_an_exhausted_subnet_is_in_the_headline_even_when_no_pod_waits() -> None:
    exhausted = SubnetView(name="vnet.pods", cidrs=(), capacity=9, exhausted=True)
    assert "Every Pod has an address; vnet.pods is exhausted." == headline([exhausted], [])
    assert "Every Pod has an address; 2 subnets are exhausted." == headline([exhausted, exhausted], [])
    assert "1 Pod waits for an address on 1 node." == headline([exhausted], [NodeView(name="a", waiting=1)])


def test_nodes_without_a_slice_are_in_the_headline() -> None:
    storage, fast, other = (
        NetworkView(name=name, range="10.9.0.0/16", slices=4, waiting=count)
        for name, count in (("storage", 244), ("fast", 12), ("other", 0))
    )
    assert headline([], [], [storage, other]).endswith(" 244 nodes wait for a slice of network storage.")
    assert headline([], [], [storage, fast]).endswith(" In 2 networks, up to 244 nodes wait for a slice.")
    assert "Every Pod has an address." == headline([], [], [other])


def test_many_nodes_that_join_at_once_are_counted_and_the_first_snapshot_has_no_activity() -> None:
    async def scenario() -> None:
        cluster = await make_cluster("10.0.0.0/20", **{f"n{number}": 1 for number in range(9)})
        assert [] == list(cluster.model.activity)
        await cluster.set_pods({f"m{number}": 1 for number in range(7)})
        assert ["7 nodes joined"] == [f"{each.subject} {each.message}" for each in refresh(cluster).activity]
        await cluster.set_pods({"lone": 1})
        assert ["Node lone joined"] == [f"{each.subject} {each.message}" for each in refresh(cluster).activity]

    run_scenario(scenario())


def test_podpools_events_are_listed() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=1)
        cluster.add_event("a", "something happened", warning=True)
        (entry,) = refresh(cluster).activity
        assert ("Node a", "something happened", True) == (entry.subject, entry.message, entry.warning)

    run_scenario(scenario())


def test_the_latest_activity_is_kept_and_an_event_only_in_its_last_form() -> None:
    """A list has Events in the order of their names."""

    async def scenario() -> None:
        cluster = await make_cluster(a=1)
        begun = cluster.clock.now
        for number in range(MAX_ACTIVITY, -1, -1):
            cluster.clock.now = begun + number
            cluster.add_event("a", f"happened {number}")
        cluster.add_event("a", "happened again")
        cluster.clock.now = begun + MAX_ACTIVITY
        cluster.add_event("a", "happened last, again")
        refresh(cluster, 1.0)
        words = [each.message for each in cluster.model.activity]
        assert (MAX_ACTIVITY, "happened 1", "happened last, again") == (len(words), words[0], words[-1])
        assert f"happened {MAX_ACTIVITY}" not in words

    run_scenario(scenario())


def test_a_subnet_that_was_made_anew_is_asked_for_anew() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=1)
        state = await cluster.ledger.subnet(cluster.subnet)
        assert cluster.model.knows(state)
        cluster.model.drop_subnet(state)
        assert not cluster.model.knows(state)
        assert ("vnet.pods",) == refresh(cluster).removed_subnets

    run_scenario(scenario())


def test_a_map_shows_every_address_once() -> None:
    async def scenario() -> None:
        cluster = await make_cluster("10.0.0.0/26", a=3)
        message = await cluster.ledger.occupancy(cluster.subnet)
        drawn = address_map(message, used=lambda each: bool(cluster.model.pods_with.get(each)))
        (patch,) = drawn.patches
        assert ("10.0.0.0", 64) == (patch.first, len(patch.cells))
        assert {"k": 3, "p": 1, "a": 3, "i": 12, ".": 45} == {
            each: patch.cells.count(each) for each in set(patch.cells)
        }
        assert [0] * 16 == [each for each in patch.owners if each >= 0]
        foreign = address_map(message, used=lambda _: True, cluster="another")
        assert {"k", "o", "."} == set(foreign.patches[0].cells)
        assert {"k", "p", "a", "."} == set(address_map(message, used=lambda _: True, cluster=CLUSTER).patches[0].cells)

    run_scenario(scenario())


def test_a_map_of_ipv6_writes_its_addresses_out() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        await cluster.open("fd00::/122")
        await cluster.set_pods({"a": 3})
        (patch,) = address_map(await cluster.ledger.occupancy(cluster.subnet), used=lambda _: False).patches
        assert (64, "fd00::", "fd00::3f") == (len(patch.texts), patch.texts[0], patch.texts[-1])
        assert len(patch.cells) == len(patch.texts)

    run_scenario(scenario())


def test_a_wide_subnet_is_mapped_by_what_is_not_free() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        await cluster.open("fd00::/64")
        await cluster.set_pods({"a": 3})
        drawn = address_map(await cluster.ledger.occupancy(cluster.subnet), used=lambda _: False)
        (patch,) = drawn.patches
        assert 16 == len(patch.cells) == len(patch.texts)
        assert patch.texts[0].startswith("fd00::")

    run_scenario(scenario())


def test_pods_nodes_and_addresses_are_found_by_a_part_of_their_name() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(alpha=2, beta=1)
        assert [("node", "alpha"), ("pod", "default/alpha-0"), ("pod", "default/alpha-1")] == [
            (each.kind, each.name) for each in find(cluster.model, " ALPHA")
        ]
        (pod,) = cluster.model.pods_of.get("beta")
        (found,) = find(cluster.model, pod.addresses[0])
        assert ("address", "Pod default/beta-0 on beta") == (found.kind, found.message)
        assert [] == find(cluster.model, "  ")
        assert [] == find(cluster.model, "nothing-like-this")

    run_scenario(scenario())


def test_an_address_a_node_and_a_pod_have_a_history() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=2)
        questions = HistorySearch(cluster.model, cluster.ledger)
        (first, _) = cluster.model.pods_of.get("a")
        found = await questions.address(first.addresses[0])
        assert ("a", first.key) == (found.addresses[0].node, found.addresses[0].pod)
        assert ["a"] == [each.node for each in found.past]
        assert [first.metadata.name] == [use.name for use in found.past[0].pods]
        node = await questions.node("a")
        assert 16 == len(node.addresses) == len(node.past)
        pod = await questions.pod(first.key)
        assert pod.reason is not None
        assert (False, first.addresses[0]) == (pod.reason.waiting_for_address, pod.uses[0].address)
        with pytest.raises(InvalidInput):
            await questions.address("not an address")

    run_scenario(scenario())


def test_a_pod_that_is_gone_is_found_by_its_name_with_its_history() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=2)
        questions = HistorySearch(cluster.model, cluster.ledger)
        (first, _) = cluster.model.pods_of.get("a")
        assert [first.key] == [each.name for each in await questions.find(first.metadata.name)]
        cluster.caches.pods.discard(first.key)
        for text in (first.key, first.metadata.name, f" {first.metadata.name.upper()} "):
            (match,) = await questions.find(text)
            assert ("pod", first.key) == (match.kind, match.name)
            assert match.message.startswith("It was deleted: ")
        found = await questions.pod(first.key)
        assert found.reason is not None
        assert first.addresses[0] in found.reason.message
        assert [first.addresses[0]] == [each.address for each in found.uses]
        assert [] == await questions.find("nothing-like-this")
        elsewhere = HistorySearch(cluster.model, cluster.ledger, cluster=lambda: "another")
        assert [] == await elsewhere.find(first.key)

    run_scenario(scenario())


def test_without_the_ledger_the_present_state_is_shown() -> None:
    class Away:
        async def send(self, _request: Request) -> Response:
            raise Unreachable("the ledger", "it is away")

    async def scenario() -> None:
        cluster = await make_cluster(a=2)
        found = await HistorySearch(cluster.model, LedgerClient(Away())).node("a")
        assert 16 == len(found.addresses)
        assert "the ledger cannot be reached: it is away" == found.history_error

    run_scenario(scenario())


def test_why_a_pod_has_no_address() -> None:
    async def scenario() -> None:
        cluster = await make_cluster("10.0.0.0/27", a=2)
        cluster.bind("early", "nowhere")
        cluster.bind("soon-99", "a")
        cluster.bind("unbound", "")
        refresh(cluster)
        assert diagnose(cluster.model, "default/a-0").message.startswith("It has 10.0.0.")
        assert "The Pod does not exist." == diagnose(cluster.model, "default/none").message
        assert "It is not scheduled yet." == diagnose(cluster.model, "default/unbound").message
        assert "Node nowhere does not exist." == diagnose(cluster.model, "default/early").message
        assert "free: the Pod" in diagnose(cluster.model, "default/soon-99").message
        await cluster.set_pods({"a": 40})
        await cluster.later(1)
        await cluster.set_pods({"a": 40})
        await cluster.later(1)
        short = diagnose(cluster.model, "default/a-39")
        assert short.waiting_for_address
        assert "subnet vnet.pods is full: of 29 addresses" in short.message
        assert "podpool ledger subnet grow vnet.pods" in short.action
        (nnc,) = cluster.caches.nncs.values()
        (nc,) = nnc.status.network_containers
        limited = msgspec.structs.replace(nc, status_reason="cluster c1 has reached its quota")
        status = msgspec.structs.replace(nnc.status, network_containers=(limited,))
        metadata = msgspec.structs.replace(nnc.metadata, resource_version="9999999")
        cluster.caches.nncs.apply(msgspec.structs.replace(nnc, metadata=metadata, status=status))
        refresh(cluster)
        quota = diagnose(cluster.model, "default/a-39")
        assert "more: cluster c1 has reached its quota." in quota.message
        assert "administrator of the ledger" in quota.action

    run_scenario(scenario())


def test_what_is_on_its_way_to_a_node_is_not_taken_for_another_clusters() -> None:
    async def scenario() -> None:
        cluster = await make_cluster(a=3)
        state = await cluster.ledger.subnet(cluster.subnet)
        cluster.model.set_subnet(msgspec.structs.replace(state, reserved=state.reserved + 9))
        refresh(cluster)
        shown = cluster.model.subnets["vnet.pods"]
        assert (0, 12 + 9) == (shown.other_clusters, shown.idle)
        refresh(cluster, seconds=PUBLISH_DELAY + 0.1)
        shown = cluster.model.subnets["vnet.pods"]
        assert (9, 12) == (shown.other_clusters, shown.idle), "no node has shown it in time"

    run_scenario(scenario())
