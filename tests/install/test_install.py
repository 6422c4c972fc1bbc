"""podpool is installed by Helm on a real cluster, carries Pods, and is taken away again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from tests.chart.rendering import CHART_DIR, Refused
from tests.install.helm_cluster import INTERVAL, NAMES, TIMEOUT, HelmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("install"), pytest.mark.timeout(900)]

GROUPS = ("acn.azure.com", "podpool.io", "whereabouts.cni.cncf.io")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HelmCluster]:
    """A cluster without podpool."""
    made = HelmCluster(tmp_path_factory.mktemp("install"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_it_is_installed_upgraded_and_uninstalled(cluster: HelmCluster) -> None:
    """In one test, because each step needs the one before it."""
    cluster.install()
    cluster.until_ready()
    pods_reach_each_other(cluster, count=60)
    secrets = {name: cluster.secret(name) for name in ("podpool-ledger-admin", "podpool-ledger-tls")}
    postgresql = {"mode": "postgresql", "postgresql": {"secret": "database"}}
    with pytest.raises(Refused, match="ledger.mode sqlite/hostPath cannot become postgresql"):
        cluster.helm("upgrade", "podpool", CHART_DIR, values=cluster.values() | {"ledger": postgresql})
    addresses = cluster.running()
    cluster.helm("upgrade", "podpool", CHART_DIR, values=cluster.values() | {"logLevel": "debug"})
    until(lambda: updated(cluster), "the agents are updated", timeout=TIMEOUT, interval=INTERVAL)
    cluster.until_ready()
    assert secrets == {name: cluster.secret(name) for name in secrets}
    assert addresses == cluster.running()
    cluster.cluster.clear()
    until(lambda: not cluster.cluster.pods(), "the Pods are gone", timeout=TIMEOUT, interval=INTERVAL)
    cluster.helm("uninstall", "podpool", "--timeout", "4m")
    until_nothing_is_left(cluster)


def pods_reach_each_other(cluster: HelmCluster, *, count: int) -> None:
    """Start Pods on both nodes, and send packets from one to the other."""
    cluster.cluster.deploy("web", count)
    until(lambda: len(cluster.running()) == count, "all Pods run", timeout=TIMEOUT, interval=INTERVAL)
    addresses = cluster.running().values()
    assert count == len({*addresses})
    here, there = (cluster.cluster.nodes[name] for name in NAMES)
    others = sorted(there.interfaces().values())
    assert min(len(others), len(here.interfaces())) >= count // 3
    for netns, other in zip(sorted(here.interfaces()), others[:10], strict=False):
        here.run("ip", "netns", "exec", netns, "ping", "-c", "1", "-W", "5", other)


def updated(cluster: HelmCluster) -> bool:
    """Return whether every agent is one of the last upgrade."""
    status = cluster.cluster.admin.get("/apis/apps/v1/namespaces/kube-system/daemonsets/podpool-agent")
    return bool(status["status"].get("updatedNumberScheduled") == len(NAMES))


def until_nothing_is_left(cluster: HelmCluster) -> None:
    """Wait until nothing of podpool is left; the error names what is."""
    found = ["no state was read"]

    def nothing() -> bool:
        found[:] = left(cluster)
        return not found

    try:
        until(nothing, "nothing is left", timeout=TIMEOUT, interval=INTERVAL)
    except TimeoutError:
        raise AssertionError("\n".join(found)) from None


def left(cluster: HelmCluster) -> list[str]:
    """Return what is left of podpool: files of the nodes, objects, CRDs, Secrets of Helm."""
    admin = cluster.cluster.admin
    files = [f"{node.name}: {each}" for node in cluster.cluster.nodes.values() for each in cluster.files(node)]
    found = [each for each in files if not each.endswith(("/bridge", "/loopback"))]
    crds = [each["metadata"]["name"] for each in admin.get(CRDS)["items"]]
    found += [each for each in crds if each.endswith(GROUPS)]
    for path in (
        *("/api/v1/namespaces/kube-system/" + each for each in ("pods", "secrets", "configmaps", "services")),
        *("/api/v1/namespaces/kube-system/serviceaccounts", "/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments"),
        *("/apis/apps/v1/statefulsets", "/apis/batch/v1/jobs", "/apis/policy/v1/poddisruptionbudgets"),
        *(
            f"/apis/rbac.authorization.k8s.io/v1/{each}"
            for each in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
        ),
        *(
            f"/apis/admissionregistration.k8s.io/v1/{each}"
            for each in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        ),
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    ):
        names = [each["metadata"]["name"] for each in admin.get(path)["items"]]
        found += [f"{path}/{each}" for each in names if "podpool" in each]
    return found
