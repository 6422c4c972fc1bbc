"""`podpool verify`: the checks pass on a healthy cluster, find what is planted, and nothing is left."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from podpool.api.azure import NodeNetworkConfig
from podpool.api.builtin import PodIP
from podpool.cli.commands.verify import verify
from podpool.cli.errors import DoesNotExist
from podpool.cli.spec.model import Output
from podpool.core.errors import InvalidInput
from podpool.inspect.verify import checks
from podpool.inspect.verify.pods import (
    FAILED_CHECK,
    PASSED,
    SKIPPED,
    ContainerExit,
    ContainerState,
    ContainerStatus,
    VerifiedPod,
    VerifyPod,
    VerifyPodStatus,
    ledger_url,
    probe_manifest,
    probe_results,
    server_manifest,
)
from podpool.lab.apiserver.registry import NODES, PODS
from tests.cli.small_cluster import run, small_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from podpool.cli.context import ClusterContext
    from tests.cli.small_cluster import SmallCluster

DEFAULTS: dict[str, Any] = {
    "image": "podpool",
    "nodes": "",
    "pods_per_node": 2,
    "start_timeout": "30s",
    "reachability": False,
}


@pytest.fixture
def fresh() -> Iterator[SmallCluster]:
    with small_cluster() as made:
        yield made


class Kubelets:
    """What a kubelet writes to the API server: addresses, results of probes, and that a Pod is gone."""

    def __init__(self, cluster: SmallCluster, *, probe: int | None = 1) -> None:
        self.cluster = cluster
        self.probe = probe
        """The exit code of probes; None if they do not end."""

    async def report(self) -> None:
        while True:
            pods = self.cluster.store.objects("", "pods")
            uses = {use.pod: use.address for use in self.cluster.oracle.uses()}
            for key, pod in list(pods.items()):
                if not key.startswith("podpool-verify-"):
                    continue
                if pod["metadata"].get("deletionTimestamp"):
                    self.cluster.store.delete(PODS, key, grace=0)
                elif key in uses and not pod.get("status", {}).get("podIPs"):
                    self.cluster.show(key, uses[key])
                    self.finish_probe(key, pod)
            await asyncio.sleep(0.2)

    def finish_probe(self, key: str, pod: Mapping[str, Any]) -> None:
        if self.probe is None:
            return
        ends = [
            {"name": each["name"], "state": {"terminated": {"exitCode": self.probe}}}
            for each in pod["spec"]["containers"]
            if each["name"].startswith("probe")
        ]
        self.cluster.store.update(
            PODS,
            key,
            lambda was: {**was, "status": {**was["status"], "containerStatuses": ends}},
            subresource="status",
        )


def result(cluster: SmallCluster, kubelets: Kubelets, **values: Any) -> tuple[int, dict[str, Any], str]:  # noqa: ANN401  options
    """Run the command; return its exit code, its JSON, and standard error."""

    async def handler(context: ClusterContext) -> int:
        reporting = asyncio.ensure_future(kubelets.report())
        try:
            return await verify(context, **{**DEFAULTS, **values})
        finally:
            reporting.cancel()

    code, lines, remark = run(cluster, handler, Output.JSON)
    return code, json.loads("\n".join(lines)), remark


def left(cluster: SmallCluster) -> list[str]:
    """Return what is left of tests."""
    keys = [*cluster.store.objects("", "pods"), *cluster.store.objects("", "namespaces")]
    return [each for each in keys if "podpool-verify" in each]


def test_a_healthy_cluster_passes_every_check(fresh: SmallCluster) -> None:
    code, report, remark = result(fresh, Kubelets(fresh), reachability=True)
    assert 0 == code, report
    assert {
        "addresses": PASSED,
        "grants": PASSED,
        "unique": PASSED,
        "reachability": PASSED,
        "release": PASSED,
        "addresses again": PASSED,
        "cooldown": PASSED,
        "audit": PASSED,
    } == {each["check"]: each["result"] for each in report["checks"]}
    assert ["one"] * 2 + ["two"] * 2 == sorted(each["node"] for each in report["pods"] if "first" in each["name"])
    assert [] == left(fresh)
    assert "starting 4 Pods on 2 nodes" in remark


def test_pods_without_an_address_fail_and_are_removed(fresh: SmallCluster) -> None:
    fresh.kill_agent("two")
    code, report, _ = result(fresh, Kubelets(fresh))
    assert 1 == code
    failed = {each["check"]: each["message"] for each in report["checks"] if each["result"] == FAILED_CHECK}
    assert "first-1-0 on two: " in failed["addresses"]
    assert [] == left(fresh)


@pytest.mark.parametrize("code", [3, 137, None])
def test_a_pod_that_is_not_reached_is_named(fresh: SmallCluster, code: int | None) -> None:
    exit_code, report, _ = result(fresh, Kubelets(fresh, probe=code), reachability=True, pods_per_node=1)
    assert 1 == exit_code
    (reached,) = (each for each in report["checks"] if each["check"] == "reachability")
    assert FAILED_CHECK == reached["result"]
    assert " from one" in reached["message"]
    assert [] == left(fresh)


def test_an_interrupt_leaves_nothing(fresh: SmallCluster) -> None:
    async def interrupted(context: ClusterContext) -> int:
        kubelets = asyncio.ensure_future(Kubelets(fresh).report())
        running = asyncio.ensure_future(verify(context, **DEFAULTS))
        await asyncio.sleep(0.5)
        assert left(fresh)
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        kubelets.cancel()
        return 0

    run(fresh, interrupted)
    assert [] == left(fresh)


def test_what_cannot_be_deleted_is_named(fresh: SmallCluster) -> None:
    async def cut_off(context: ClusterContext) -> int:
        running = asyncio.ensure_future(verify(context, **DEFAULTS))
        await asyncio.sleep(0.5)
        assert left(fresh)
        fresh.network.partition("cli", "api")
        with pytest.raises(Exception, match="The test did not end"):
            await running
        return 0

    _, _, remark = run(fresh, cut_off)
    assert "is left, run `kubectl delete namespace podpool-verify-" in remark


def test_nodes_that_cannot_take_pods_are_left_out(fresh: SmallCluster) -> None:
    fresh.store.update(NODES, "two", lambda was: {**was, "spec": {"unschedulable": True}})
    code, report, remark = result(fresh, Kubelets(fresh))
    assert 0 == code
    assert {"one"} == {each["node"] for each in report["pods"]}
    assert "not tested, because not ready or not schedulable: two" in remark


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"image": ""}, "--image '': name the image"),
        ({"pods_per_node": 0}, "--pods-per-node 0: use 1 to 50"),
        ({"start_timeout": "x"}, "--start-timeout 'x': not a duration"),
        ({"nodes": "three"}, "NODE 'three': does not exist; existing: "),
    ],
    ids=["image", "count", "timeout", "node"],
)
def test_options_that_are_not_possible(cluster: SmallCluster, values: dict[str, Any], error: str) -> None:
    with pytest.raises((InvalidInput, DoesNotExist)) as refused:
        run(cluster, verify, **DEFAULTS | values)
    assert str(refused.value).startswith(error)
    assert [] == left(cluster)


def pod(name: str, *addresses: str, node: str = "a") -> VerifiedPod:
    return VerifiedPod(name=name, node=node, addresses=addresses, seconds=1)


class TestChecks:
    def test_an_address_that_was_not_granted(self) -> None:
        nnc: Any = {
            "metadata": {"name": "a"},
            "status": {"networkContainers": [{"ipAssignments": [{"ip": "10.0.0.4"}]}]},
        }
        found = [_converted(nnc)]
        assert PASSED == checks.check_grants([pod("p", "10.0.0.4")], found).result
        assert "p on a has 10.0.0.5" == checks.check_grants([pod("p", "10.0.0.5")], found).message
        assert SKIPPED == checks.check_grants([pod("p", "10.0.0.5", node="b")], found).result

    def test_an_address_with_two_pods(self) -> None:
        others = [VerifyPod(status=_status("10.0.0.4")), VerifyPod(status=_status("10.0.0.5"))]
        own = VerifyPod(status=_status("10.0.0.4"))
        assert PASSED == checks.check_unique([pod("p", "10.0.0.4")], others).result
        assert "10.0.0.4" == checks.check_unique([pod("p", "10.0.0.4")], [own, *others]).message

    @pytest.mark.parametrize(("elapsed", "expected"), [(2.0, FAILED_CHECK), (6.0, SKIPPED)])
    def test_an_address_that_is_assigned_again(self, elapsed: float, expected: str) -> None:
        found = checks.check_cooldown([pod("p", "10.0.0.4")], [pod("q", "10.0.0.4")], elapsed=elapsed, cooldown=5)
        assert expected == found.result

    def test_results_of_probes(self) -> None:
        ended = [
            ContainerStatus(name=f"probe-{number}", state=ContainerState(terminated=ContainerExit(exit_code=code)))
            for number, code in enumerate((1, 3))
        ]
        seen = VerifyPod(status=VerifyPodStatus(container_statuses=tuple(ended)))
        assert {"a": True, "b": False, "c": None} == probe_results(seen, ["a", "b", "c"])


def _converted(nnc: Any) -> NodeNetworkConfig:  # noqa: ANN401  an object
    return msgspec.convert(nnc, NodeNetworkConfig)


def _status(address: str) -> VerifyPodStatus:
    return VerifyPodStatus(phase="Running", pod_ips=(PodIP(ip=address),))


def test_pods_of_the_test_are_restricted() -> None:
    """The namespace enforces it, and the image's user is not root."""
    made = [
        server_manifest("s", namespace="n", node="a", image="i", listening=True),
        probe_manifest("p", namespace="n", node="a", image="i", targets=["10.0.0.4"]),
    ]
    for manifest in made:
        spec = manifest["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert not spec["automountServiceAccountToken"]
        for each in spec["containers"]:
            assert {"drop": ["ALL"]} == each["securityContext"]["capabilities"]
    assert "http://[fd00::1]:7780" == ledger_url("fd00::1")
