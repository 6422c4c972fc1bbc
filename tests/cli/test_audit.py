"""The audit finds whatever is planted, says nothing where all is well, and repairs only what is safe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from podpool.cli.commands.audit import run_audit
from podpool.cli.spec.model import Output
from podpool.lab.sim.manual_edits import edit_nnc, edit_request
from tests.cli.small_cluster import SERVER, small_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.small_cluster import SmallCluster

WHEREABOUTS = ("whereabouts.cni.cncf.io", "v1alpha1")
OF_DEAD_POD = {"id": "c1", "podref": "default/dead", "ifname": "net1"}


@pytest.fixture(scope="module")
def stopped_cluster() -> Iterator[SmallCluster]:
    with small_cluster() as made:
        made.stop_all()
        yield made


@pytest.fixture
def cluster(stopped_cluster: SmallCluster) -> Iterator[SmallCluster]:
    """A cluster in which nobody mends anything any more, as it was before the test before."""
    copy = stopped_cluster.store.snapshot()
    yield stopped_cluster
    stopped_cluster.store.restore(copy)
    stopped_cluster.network.heal_all()


def audited(cluster: SmallCluster, **said: object) -> tuple[int, dict[str, Any]]:
    """The exit code, and the report as a program reads it."""
    code, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, Output.JSON, **USUAL | said))
    return code, json.loads(out)


USUAL: dict[str, Any] = {"settling": 5.0, "repair": False, "agreed": lambda _: False}


def faults(cluster: SmallCluster) -> list[tuple[int, str, str]]:
    code, report = audited(cluster)
    assert code == (1 if report["findings"] else 0)
    return [(each["invariant"], each["code"], each["about"]) for each in report["findings"]]


def edit_status(cluster: SmallCluster, node: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the container that an NNC shows."""

    def changed(config: dict[str, Any]) -> dict[str, Any]:
        container = json.loads(json.dumps(config["status"]["networkContainers"][0]))
        change(container)
        return {**config, "status": {**config["status"], "networkContainers": [container]}}

    edit_nnc(cluster.store, node, changed, subresource="status")


def grants(cluster: SmallCluster, node: str) -> list[dict[str, str]]:
    return list(cluster.nncs()[node]["status"]["networkContainers"][0]["ipAssignments"])


def test_nothing_is_wrong_in_a_healthy_cluster() -> None:
    """Also while Pods come and go, nodes leave, and the subnet runs short."""
    with small_cluster() as cluster:
        assert [] == faults(cluster)
        for _ in range(70):
            cluster.bind("one")
        for _ in range(6):
            cluster.loop.run_until_complete(cluster.run_for(0.7))
            assert [] == faults(cluster)
        cluster.loop.run_until_complete(cluster.settle())
        assert [] == faults(cluster)
        for pod in list(cluster.pods_on("one").values()):
            cluster.delete_pod(pod)
        cluster.remove_host("two")
        for _ in range(6):
            cluster.loop.run_until_complete(cluster.run_for(60.0))
            assert [] == faults(cluster)


def test_an_address_that_two_nodes_are_shown(cluster: SmallCluster) -> None:
    stolen = grants(cluster, "one")[0]
    edit_status(cluster, "two", lambda container: container["ipAssignments"].append(stolen))
    found = faults(cluster)
    assert (1, "nodes-share-address", f"address/{stolen['ip']}") in found
    assert (3, "grant-taken", "nodenetworkconfig/two") in found


def test_what_was_let_go_of_may_be_anothers(cluster: SmallCluster) -> None:
    released = grants(cluster, "two")[-1]
    edit_nnc(
        cluster.store, "two", lambda config: {**config, "spec": {**config["spec"], "ipsNotInUse": [released["name"]]}}
    )
    edit_status(cluster, "one", lambda container: container["ipAssignments"].append(released))
    assert "nodes-share-address" not in [code for _, code, _ in faults(cluster)]


def test_an_address_that_two_pods_have(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.19")
    assert [(1, "pods-share-address", "address/10.0.0.19")] == faults(cluster)


def test_a_pod_outside_of_its_nodes_grants(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.5")
    assert [(2, "pod-outside-grants", f"pod/{cluster.pods[1]}")] == faults(cluster)


def test_a_pod_on_a_grant_that_its_node_has_let_go_of(cluster: SmallCluster) -> None:
    (used,) = [each["name"] for each in grants(cluster, "two") if each["ip"] == "10.0.0.4"]
    edit_nnc(cluster.store, "two", lambda config: {**config, "spec": {**config["spec"], "ipsNotInUse": [used]}})
    assert [(3, "released-in-use", f"pod/{cluster.pods[3]}")] == faults(cluster)


def test_a_ledger_that_has_taken_something_away(cluster: SmallCluster) -> None:
    unknown = {"name": "00000000-0000-0000-0000-000000000000", "ip": "10.0.0.60"}
    edit_status(cluster, "two", lambda container: container["ipAssignments"].append(unknown))
    assert [(3, "grant-taken", "nodenetworkconfig/two")] == faults(cluster)


def test_an_nnc_that_shows_less_than_the_ledger_has(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
    assert [(1, "books-differ", "nodenetworkconfig/two")] == faults(cluster)


def test_an_nnc_with_a_container_that_the_ledger_does_not_have(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container.update(id="11111111-1111-1111-1111-111111111111"))
    found = faults(cluster)
    assert (1, "container-unknown", "nodenetworkconfig/two") in found
    assert (1, "holding-unshown", "node/two") in found


def test_a_holding_of_the_ledger_that_no_nnc_shows(cluster: SmallCluster) -> None:
    edit_nnc(cluster.store, "two", lambda config: {**config, "metadata": {**config["metadata"], "finalizers": []}})
    edit_nnc(cluster.store, "two", lambda _: None)
    cluster.delete_pod(cluster.pods[3])
    assert [(1, "holding-unshown", "node/two")] == faults(cluster)


def test_an_agent_that_knows_more_than_the_ledger(cluster: SmallCluster) -> None:
    def ahead(config: dict[str, Any]) -> dict[str, Any]:
        notes = config["metadata"]["annotations"]
        report = json.loads(notes["podpool.io/agent"]) | {"version": 99}
        return {
            **config,
            "metadata": {**config["metadata"], "annotations": {**notes, "podpool.io/agent": json.dumps(report)}},
        }

    edit_nnc(cluster.store, "two", ahead)
    assert [(3, "ledger-behind", "node/two")] == faults(cluster)


def test_a_node_that_is_not_aligned(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
    edit_request(cluster.store, "two", 14)
    assert (7, "unaligned", "node/two") in faults(cluster)


def test_an_entry_of_a_pod_that_is_gone(cluster: SmallCluster) -> None:
    spec = {"range": "10.9.0.0/24", "allocations": {"7": OF_DEAD_POD}}
    cluster.create(*WHEREABOUTS, "ippools", {"metadata": {"name": "10.9.0.0-24"}, "spec": spec})
    assert [(1, "pool-leak", "ippool/10.9.0.0-24")] == faults(cluster)


def test_a_slice_that_two_nodes_have(cluster: SmallCluster) -> None:
    given = [{"nodeName": "two", "sliceRange": "10.9.0.0/28"}]
    divided = {"spec": {"range": "10.9.0.0/24", "sliceSize": "/28"}, "status": {"allocations": given}}
    cluster.create(*WHEREABOUTS, "nodeslicepools", {"metadata": {"name": "storage"}, **divided})
    entry = {"id": "c", "podref": cluster.pods[0], "ifname": "net1"}
    notes = {"podpool.io/node": "one", "podpool.io/network": "", "podpool.io/range": "10.9.0.0/24"}
    spec = {"range": "10.9.0.0/28", "allocations": {"1": entry}}
    cluster.create(
        *WHEREABOUTS, "ippools", {"metadata": {"name": "one-10.9.0.0-28", "annotations": notes}, "spec": spec}
    )
    assert [(3, "slice-taken", "nodeslicepool/storage")] == faults(cluster)


def test_what_has_arrived_meanwhile_is_no_fault(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.5")
    cluster.loop.call_later(2.0, cluster.show, cluster.pods[1], "10.0.0.20")
    assert [] == faults(cluster)


def test_without_a_ledger_the_rest_is_looked_at_and_that_is_said(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "ledger")
    code, report = audited(cluster)
    assert (3, False, []) == (code, report["clean"], report["findings"])
    assert "the ledger's books: the ledger cannot be reached" in report["unchecked"][0]
    cluster.show(cluster.pods[1], "10.0.0.5")
    assert [(2, "pod-outside-grants", f"pod/{cluster.pods[1]}")] == faults(cluster)


class TestRepair:
    def leaky(self, cluster: SmallCluster) -> None:
        living = {"id": "c2", "podref": cluster.pods[0], "ifname": "net1"}
        spec = {"range": "10.9.0.0/24", "allocations": {"7": OF_DEAD_POD, "8": living}}
        cluster.create(*WHEREABOUTS, "ippools", {"metadata": {"name": "10.9.0.0-24"}, "spec": spec})
        reservation = {"metadata": {"name": "10.9.0.7"}, "spec": {"podref": "default/dead", "containerid": "c1"}}
        cluster.create(*WHEREABOUTS, "overlappingrangeipreservations", reservation)

    def entries(self, cluster: SmallCluster) -> list[str]:
        pool = cluster.store.objects(WHEREABOUTS[0], "ippools")["kube-system/10.9.0.0-24"]
        return list(pool["spec"]["allocations"])

    def test_the_plan_is_shown_and_nothing_done_before_it_is_agreed(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        told = USUAL | {"repair": True}
        code, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, **told))
        lines = out.splitlines()
        assert 1 == code
        assert "ippool/10.9.0.0-24                      release 10.9.0.7 of default/dead net1" in lines
        assert "overlappingrangeipreservation/10.9.0.7  delete it: default/dead is gone" in lines
        assert ["7", "8"] == self.entries(cluster)

    def test_the_server_is_named_in_the_plan_and_asked_about(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        asked: list[str] = []
        told = USUAL | {"repair": True, "agreed": asked.append}
        _, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, **told))
        assert f"In the cluster at {SERVER}:" in out.splitlines()
        assert [SERVER] == asked
        assert SERVER == audited(cluster, repair=True)[1]["server"]

    def test_what_is_agreed_is_done_and_only_that(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        told = USUAL | {"repair": True, "agreed": lambda _: True}
        cluster.loop.run_until_complete(cluster.invoke(run_audit, **told))
        assert ["8"] == self.entries(cluster)
        assert {} == cluster.store.objects(WHEREABOUTS[0], "overlappingrangeipreservations")
        assert [] == faults(cluster)

    def test_a_pod_that_comes_back_within_the_minute_keeps_its_entry(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        cluster.loop.call_later(30.0, self.revive, cluster)
        told = USUAL | {"repair": True, "agreed": lambda _: True}
        cluster.loop.run_until_complete(cluster.invoke(run_audit, **told))
        assert ["7", "8"] == self.entries(cluster)

    def revive(self, cluster: SmallCluster) -> None:
        pods = cluster.store.registry.find("", "v1", "pods")
        made = {"metadata": {"name": "dead", "namespace": "default"}, "spec": {"nodeName": "one"}}
        cluster.store.create(pods, made, namespace="default")

    def test_a_controller_is_asked_to_look_at_a_node_again(self, cluster: SmallCluster) -> None:
        edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
        before = cluster.nncs()["two"]["metadata"]["resourceVersion"]
        code, out, _ = cluster.loop.run_until_complete(
            cluster.invoke(run_audit, **USUAL | {"repair": True, "agreed": lambda _: True})
        )
        assert 1 == code
        assert "nodenetworkconfig/two: done: ask its controller and agent to look again" in out
        assert before != cluster.nncs()["two"]["metadata"]["resourceVersion"]
        assert grants(cluster, "two") != []
