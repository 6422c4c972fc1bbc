"""The audit finds every planted violation, none in a healthy cluster, and repairs only what is safe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from podpool.cli.commands.audit import run_audit
from podpool.cli.spec.model import Output
from podpool.lab.sim.manual_edits import delete_nnc, edit_nnc, edit_request, strip_nnc_metadata
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
    """A cluster in which nothing is reconciled, restored to its first state."""
    copy = stopped_cluster.store.snapshot()
    yield stopped_cluster
    stopped_cluster.store.restore(copy)
    stopped_cluster.network.heal_all()


def run_as_json(cluster: SmallCluster, **values: object) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report as JSON."""
    code, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, Output.JSON, **DEFAULTS | values))
    return code, json.loads(out)


DEFAULTS: dict[str, Any] = {"settle": "5s", "repair": False, "yes": False, "confirm": lambda _: False}


def findings(cluster: SmallCluster) -> list[tuple[int, str, str]]:
    code, report = run_as_json(cluster)
    assert code == (1 if report["findings"] else 0)
    return [(each["invariant"], each["code"], each["subject"]) for each in report["findings"]]


def edit_status(cluster: SmallCluster, node: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the container that an NNC shows."""

    def changed(config: dict[str, Any]) -> dict[str, Any]:
        container = json.loads(json.dumps(config["status"]["networkContainers"][0]))
        change(container)
        return {**config, "status": {**config["status"], "networkContainers": [container]}}

    edit_nnc(cluster.store, node, changed, subresource="status")


def grants(cluster: SmallCluster, node: str) -> list[dict[str, str]]:
    return list(cluster.nncs()[node]["status"]["networkContainers"][0]["ipAssignments"])


def test_a_healthy_cluster_has_no_findings() -> None:
    """Also while Pods come and go, nodes leave, and the subnet runs short."""
    with small_cluster() as cluster:
        assert [] == findings(cluster)
        for _ in range(70):
            cluster.bind("one")
        for _ in range(6):
            cluster.loop.run_until_complete(cluster.run_for(0.7))
            assert [] == findings(cluster)
        cluster.loop.run_until_complete(cluster.settle())
        assert [] == findings(cluster)
        for pod in list(cluster.pods_on("one").values()):
            cluster.delete_pod(pod)
        cluster.remove_host("two")
        for _ in range(6):
            cluster.loop.run_until_complete(cluster.run_for(60.0))
            assert [] == findings(cluster)


def test_an_address_in_two_nncs(cluster: SmallCluster) -> None:
    stolen = grants(cluster, "one")[0]
    edit_status(cluster, "two", lambda container: container["ipAssignments"].append(stolen))
    found = findings(cluster)
    assert (1, "nodes-share-address", f"address/{stolen['ip']}") in found
    assert (3, "grant-removed", "nodenetworkconfig/two") in found


def test_a_pending_release_may_be_granted_to_another_node(cluster: SmallCluster) -> None:
    released = grants(cluster, "two")[-1]
    edit_nnc(
        cluster.store, "two", lambda config: {**config, "spec": {**config["spec"], "ipsNotInUse": [released["name"]]}}
    )
    edit_status(cluster, "one", lambda container: container["ipAssignments"].append(released))
    assert "nodes-share-address" not in [code for _, code, _ in findings(cluster)]


def test_an_address_of_two_pods(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.19")
    assert [(1, "pods-share-address", "address/10.0.0.19")] == findings(cluster)


def test_a_pod_outside_of_its_nodes_grants(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.5")
    assert [(2, "pod-outside-grants", f"pod/{cluster.pods[1]}")] == findings(cluster)


def test_a_pod_with_a_pending_release(cluster: SmallCluster) -> None:
    (used,) = [each["name"] for each in grants(cluster, "two") if each["ip"] == "10.0.0.3"]
    edit_nnc(cluster.store, "two", lambda config: {**config, "spec": {**config["spec"], "ipsNotInUse": [used]}})
    assert [(3, "released-in-use", f"pod/{cluster.pods[3]}")] == findings(cluster)


def test_a_grant_that_the_ledger_does_not_have(cluster: SmallCluster) -> None:
    unknown = {"name": "00000000-0000-0000-0000-000000000000", "ip": "10.0.0.60"}
    edit_status(cluster, "two", lambda container: container["ipAssignments"].append(unknown))
    assert [(3, "grant-removed", "nodenetworkconfig/two")] == findings(cluster)


def test_an_nnc_with_fewer_grants_than_the_ledger(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
    assert [(1, "nnc-differs", "nodenetworkconfig/two")] == findings(cluster)


def test_an_nnc_with_an_unknown_nc(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container.update(id="11111111-1111-1111-1111-111111111111"))
    found = findings(cluster)
    assert (1, "unknown-nc", "nodenetworkconfig/two") in found
    assert (1, "nc-unpublished", "node/two") in found


def test_an_nc_without_an_nnc(cluster: SmallCluster) -> None:
    strip_nnc_metadata(cluster.store, "two")
    delete_nnc(cluster.store, "two")
    cluster.delete_pod(cluster.pods[3])
    assert [(1, "nc-unpublished", "node/two")] == findings(cluster)


def test_an_agent_with_a_newer_version_than_the_ledger(cluster: SmallCluster) -> None:
    def ahead(config: dict[str, Any]) -> dict[str, Any]:
        notes = config["metadata"]["annotations"]
        report = json.loads(notes["podpool.io/agent"]) | {"version": 99}
        return {
            **config,
            "metadata": {**config["metadata"], "annotations": {**notes, "podpool.io/agent": json.dumps(report)}},
        }

    edit_nnc(cluster.store, "two", ahead)
    assert [(3, "ledger-behind", "node/two")] == findings(cluster)


def test_a_node_that_is_not_aligned(cluster: SmallCluster) -> None:
    edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
    edit_request(cluster.store, "two", 14)
    assert (7, "unaligned", "node/two") in findings(cluster)


def test_an_entry_of_a_deleted_pod(cluster: SmallCluster) -> None:
    spec = {"range": "10.9.0.0/24", "allocations": {"7": OF_DEAD_POD}}
    cluster.create(*WHEREABOUTS, "ippools", {"metadata": {"name": "10.9.0.0-24"}, "spec": spec})
    assert [(1, "pool-leak", "ippool/10.9.0.0-24")] == findings(cluster)


def test_a_slice_of_two_nodes(cluster: SmallCluster) -> None:
    given = [{"nodeName": "two", "sliceRange": "10.9.0.0/28"}]
    divided = {"spec": {"range": "10.9.0.0/24", "sliceSize": "/28"}, "status": {"allocations": given}}
    cluster.create(*WHEREABOUTS, "nodeslicepools", {"metadata": {"name": "storage"}, **divided})
    entry = {"id": "c", "podref": cluster.pods[0], "ifname": "net1"}
    notes = {"podpool.io/node": "one", "podpool.io/network": "", "podpool.io/range": "10.9.0.0/24"}
    spec = {"range": "10.9.0.0/28", "allocations": {"1": entry}}
    cluster.create(
        *WHEREABOUTS, "ippools", {"metadata": {"name": "one-10.9.0.0-28", "annotations": notes}, "spec": spec}
    )
    assert [
        (3, "slice-shared", "nodeslicepool/storage"),
        (2, "pool-without-slice", "ippool/one-10.9.0.0-28"),
    ] == findings(cluster)


def test_a_violation_that_resolves_itself_does_not_count(cluster: SmallCluster) -> None:
    cluster.show(cluster.pods[1], "10.0.0.5")
    cluster.loop.call_later(2.0, cluster.show, cluster.pods[1], "10.0.0.20")
    assert [] == findings(cluster)


def test_without_a_ledger_the_other_checks_run(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "ledger")
    code, report = run_as_json(cluster)
    assert (3, False, []) == (code, report["clean"], report["findings"])
    assert "ledger: the ledger cannot be reached" in report["unchecked"][0]
    cluster.show(cluster.pods[1], "10.0.0.5")
    assert [(2, "pod-outside-grants", f"pod/{cluster.pods[1]}")] == findings(cluster)


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

    def test_the_plan_is_printed_and_not_applied_without_a_confirmation(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        values = DEFAULTS | {"repair": True}
        code, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, **values))
        lines = out.splitlines()
        assert 1 == code
        assert "ippool/10.9.0.0-24                      release 10.9.0.7 of default/dead net1" in lines
        assert any(line.startswith("overlappingrangeipreservation/10.9.0.7  ") for line in lines)
        assert ["7", "8"] == self.entries(cluster)

    def test_plan_and_question_name_the_server(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        asked: list[str] = []
        values = DEFAULTS | {"repair": True, "confirm": asked.append}
        _, out, _ = cluster.loop.run_until_complete(cluster.invoke(run_audit, **values))
        assert f"In the cluster at {SERVER}:" in out.splitlines()
        assert [SERVER] == asked
        assert SERVER == run_as_json(cluster, repair=True)[1]["server"]

    def test_a_confirmed_plan_is_applied(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        values = DEFAULTS | {"repair": True, "yes": True}
        cluster.loop.run_until_complete(cluster.invoke(run_audit, **values))
        assert ["8"] == self.entries(cluster)
        assert {} == cluster.store.objects(WHEREABOUTS[0], "overlappingrangeipreservations")
        assert [] == findings(cluster)

    def test_a_pod_that_returns_between_the_checks_keeps_its_entry(self, cluster: SmallCluster) -> None:
        self.leaky(cluster)
        cluster.loop.call_later(30.0, self.revive, cluster)
        values = DEFAULTS | {"repair": True, "yes": True}
        cluster.loop.run_until_complete(cluster.invoke(run_audit, **values))
        assert ["7", "8"] == self.entries(cluster)

    def revive(self, cluster: SmallCluster) -> None:
        pods = cluster.store.registry.find("", "v1", "pods")
        made = {"metadata": {"name": "dead", "namespace": "default"}, "spec": {"nodeName": "one"}}
        cluster.store.create(pods, made, namespace="default")

    def test_controller_and_agent_are_asked_to_reconcile(self, cluster: SmallCluster) -> None:
        edit_status(cluster, "two", lambda container: container["ipAssignments"].pop())
        before = cluster.nncs()["two"]["metadata"]["resourceVersion"]
        code, out, _ = cluster.loop.run_until_complete(
            cluster.invoke(run_audit, **DEFAULTS | {"repair": True, "yes": True})
        )
        assert 1 == code
        assert "nodenetworkconfig/two: repaired: request a reconcile by its controller and agent" in out
        assert before != cluster.nncs()["two"]["metadata"]["resourceVersion"]
        assert grants(cluster, "two") != []
