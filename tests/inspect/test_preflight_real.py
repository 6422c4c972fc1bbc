"""Preflight on a real API server: its version, clock and access reviews, and what each account may do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.pages import clear, register
from podpool.api.crds import crd_manifests
from podpool.api.rbac import rbac_manifests
from podpool.inspect.preflight.checks import PreflightOptions, run_preflight
from podpool.inspect.preflight.node_files import NodePaths
from podpool.inspect.preflight.report import Severity
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.control_plane import ControlPlane
    from podpool.inspect.preflight.report import PreflightFinding

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

NOWHERE = NodePaths(bin_dir="/none", conf_dir="/none", state="/", cri_sockets=(), boot_id=Path("/none"))
Found = dict[tuple[str, str], "PreflightFinding"]


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with podpool's CRDs and accounts."""
    clear(control_plane)
    apply(control_plane)
    yield control_plane
    apply(control_plane)
    clear(control_plane)


def apply(plane: ControlPlane) -> None:
    """Install CRDs and roles, whatever a test made of them."""
    manifest = _list(*crd_manifests(), *rbac_manifests())
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=manifest)


def _list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def preflight(kubeconfig: Path) -> Found:
    async def run() -> Found:
        transport = from_kubeconfig(kubeconfig)
        options = PreflightOptions(paths=NOWHERE)
        try:
            report = await run_preflight(KubeClient(transport), None, clock=SystemClock(), options=options)
        finally:
            await transport.close()
        return {(each.check, each.object): each for each in report.findings}

    return asyncio.run(run())


def test_an_administrator_may_install_and_the_accounts_have_their_permissions(cluster: ControlPlane) -> None:
    register(cluster, "one", boot_id="boot-one")
    found = preflight(cluster.kubeconfig)
    assert Severity.OK is found["kubernetes-version", "the API server"].severity
    assert Severity.OK is found["clock", "the API server"].severity
    assert {Severity.OK} == {each.severity for (check, _), each in found.items() if check == "crds"}
    assert "may install podpool" == found["permissions", "caller"].message
    for account in ("podpool-agent", "podpool-controller", "podpool-dashboard"):
        assert Severity.OK is found["permissions", f"serviceaccount/kube-system/{account}"].severity
    assert "overlaps with nothing" not in found["overlaps", "ranges"].message
    assert not any(each.severity in {Severity.ERROR, Severity.UNKNOWN} for each in found.values())


def test_a_missing_rule_and_an_older_crd_are_found(cluster: ControlPlane) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}]
    cluster.admin.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/podpool-agent", {"rules": rules})
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ippools.whereabouts.cni.cncf.io"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    cluster.admin.patch(crd, {"spec": {"versions": [version]}})
    found = preflight(cluster.kubeconfig)
    agent = found["permissions", "serviceaccount/kube-system/podpool-agent"]
    assert (Severity.ERROR, "may not patch nodes/status, ") == (agent.severity, agent.message[:28])
    ippools = found["crds", "crd/ippools.whereabouts.cni.cncf.io"]
    assert "differs from the one of this version of podpool" == ippools.message


def test_an_account_without_rights_gets_a_line_for_all_that_it_cannot_read(cluster: ControlPlane) -> None:
    token = cluster.accounts.token("nothing")
    found = preflight(cluster.kubeconfig_for(token, name="nothing"))
    assert Severity.WARNING is found["permissions", "caller"].severity
    unread = {check for (check, _), each in found.items() if each.severity is Severity.UNKNOWN}
    assert {"crds", "permissions", "admission-policies", "nodes", "other-cnis", "overlaps"} == unread
