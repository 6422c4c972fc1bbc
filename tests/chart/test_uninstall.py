"""What is left after podpool was uninstalled: nothing of podpool, and everything of others."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.api import ApiError
from parts.control_plane import ControlPlane
from parts.polling import until
from parts.recipes import program
from podpool.cli.connect import read_new_token
from podpool.cni.install import install
from podpool.cni.uninstall import remove_node_files
from tests.chart.rendering import REQUIRED, merged, named, render
from tools.chart.files import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PODPOOL = Path(sys.executable).parent / "podpool"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
INSIDE = {"namespace": "kube-system"}
RANGE: dict[str, Any] = {"range": "10.9.0.0/24", "allocations": {}}
SLICE = {"name": "left-10.9.0.0-28", "labels": {"podpool.io/node-uid": "u"}}
TAINTS = [{"key": key, "effect": "NoSchedule"} for key in ("podpool.io/addresses-short", "mine")]


def left(version: str, kind: str, metadata: dict[str, Any], spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | ({"spec": spec} if spec else {})


LEFT = [
    left("v1", "Node", {"name": "left"}, {"taints": TAINTS}),
    left(
        "acn.azure.com/v1alpha",
        "NodeNetworkConfig",
        INSIDE | {"name": "left", "finalizers": ["podpool.io/ledger"]},
        {"requestedIPCount": 1},
    ),
    left("podpool.io/v1alpha1", "NodeSlices", {"name": "left", "finalizers": ["podpool.io/slices"]}, {"nodeUID": "u"}),
    left("whereabouts.cni.cncf.io/v1alpha1", "IPPool", INSIDE | SLICE, RANGE),
    left("whereabouts.cni.cncf.io/v1alpha1", "IPPool", INSIDE | {"name": "10.9.0.0-24"}, RANGE),
    left("coordination.k8s.io/v1", "Lease", INSIDE | {"name": "others"}),
]
"""What a cluster has when nothing of podpool runs any more, beside what is of others."""


class TestNode:
    def test_nothing_of_podpool_is_left(self, tmp_path: Path) -> None:
        """And the plugin that it had replaced is back."""
        binaries, conf, run, state = (tmp_path / name for name in ("bin", "conf", "run", "state"))
        for directory in (binaries, conf, run / "deletes", state):
            directory.mkdir(parents=True)
        (binaries / "whereabouts").write_text("#!/bin/sh\n")
        for name in ("podpool", "whereabouts"):
            install(binaries, name=name)
        (conf / "10-podpool.conflist").write_text("{}")
        (conf / "99-other.conflist").write_text("{}")
        (run / "deletes/one").touch()
        (state / "journal.000001").touch()
        options = ["--bin-dir", str(binaries), "--conf-dir", str(conf), "--state", str(state), "--empty-dirs", str(run)]
        argv: list[str | Path] = [PODPOOL, "agent", "uninstall", *options, "--name", "podpool,whereabouts"]
        subprocess.run([*argv, "--keep-state"], check=True, capture_output=True)
        assert {"journal.000001", ".lock"} == {each.name for each in state.iterdir()}
        subprocess.run(argv, check=True, capture_output=True)
        assert ["whereabouts"] == [each.name for each in binaries.iterdir()]
        assert "#!/bin/sh\n" == (binaries / "whereabouts").read_text()
        assert ["99-other.conflist"] == [each.name for each in conf.iterdir()]
        assert not [*run.iterdir(), *state.iterdir()]

    def test_the_del_of_a_plugin_that_still_runs_does_not_stay(self, tmp_path: Path) -> None:
        """It waits for an agent, which has stopped, and leaves its DEL for the next one."""
        binaries, run = tmp_path / "bin", tmp_path / "run"
        binaries.mkdir()
        run.mkdir()
        install(binaries)
        attachment = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0", "CNI_NETNS": ""}
        places = {"PODPOOL_SOCKET": str(run / "agent.sock"), "PODPOOL_DEFERRED_DELETES": str(run / "deletes")}
        env = os.environ | attachment | places | {"CNI_PATH": str(binaries), "PODPOOL_WAIT_MS": "1000"}
        config = json.dumps({"cniVersion": "1.0.0", "name": "pods", "type": "podpool"})
        with subprocess.Popen([binaries / "podpool"], env=env, stdin=subprocess.PIPE, text=True) as plugin:
            assert plugin.stdin
            plugin.stdin.write(config)
            plugin.stdin.close()
            removed = remove_node_files(bin_dir=binaries, names=["podpool"], conf_dir=None, emptied=[run])
            assert 0 == plugin.wait()
        assert [binaries / "podpool", run / "deletes"] == removed
        assert [] == [*run.iterdir()]

    def test_a_second_time_removes_nothing(self, tmp_path: Path) -> None:
        none = tmp_path / "none"
        assert [] == remove_node_files(bin_dir=none, names=["podpool"], conf_dir=none, emptied=[none])

    def test_nothing_is_removed_while_podpool_is_installed(self, tmp_path: Path) -> None:
        """The Pods that clean up may have been created by mistake, with a manifest of everything."""
        (tmp_path / "installed").touch()
        (tmp_path / "journal").touch()
        argv = ["--state", str(tmp_path), "--installed-file", str(tmp_path / "installed"), "--empty-dirs", ""]
        done = subprocess.run([PODPOOL, "agent", "uninstall", *argv], check=False, capture_output=True, text=True)
        assert 2 == done.returncode
        assert "so podpool is still installed, and nothing is removed" in done.stderr
        assert (tmp_path / "journal").exists()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: CRDs are deleted that other tests install only once."""
    made = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.real
@pytest.mark.xdist_group("chart")
class TestCluster:
    def test_objects_with_finalizers_and_own_crds_are_deleted(self, plane: ControlPlane, tmp_path: Path) -> None:
        """With the rights of the account that the chart creates, and nothing of others."""
        admin, objects = plane.admin, render(tmp_path, merged(REQUIRED, {"uninstall": {"render": "always"}}))
        kinds = ("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")
        apply(plane, [each for each in objects if each["kind"].removesuffix("Binding") in kinds])
        until(lambda: established(plane), "the CRDs are established")
        others = {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}}
        admin.patch(f"{CRDS}/clustersubnets.acn.azure.com", others)
        apply(plane, LEFT)
        first = uninstall(plane)
        assert "deleted: 1 NodeNetworkConfig" in first
        assert "kept: CRD clustersubnets.acn.azure.com, which podpool did not install" in first
        assert "kept: CRD ippools.whereabouts.cni.cncf.io, because IPPool objects of shared ranges are left" in first
        assert ["10.9.0.0-24"] == [each["metadata"]["name"] for each in admin.get(POOLS)["items"]]
        taints = {each["key"] for each in admin.get("/api/v1/nodes/left")["spec"]["taints"]}
        assert {"mine"} == taints & {each["key"] for each in TAINTS}
        assert "others" in {each["metadata"]["name"] for each in admin.get(LEASES)["items"]}
        admin.delete(f"{POOLS}/10.9.0.0-24")
        assert "deleted: CRD ippools.whereabouts.cni.cncf.io" in uninstall(plane)
        until(lambda: {"clustersubnets.acn.azure.com"} == own_crds(plane), "the CRDs are gone")

    def test_nodes_that_are_not_cleaned_up_are_reported(self, plane: ControlPlane, tmp_path: Path) -> None:
        objects = render(tmp_path, merged(REQUIRED, {"uninstall": {"render": "always"}}))
        apply(plane, [named(objects, "DaemonSet", "podpool-uninstall")])
        path = f"{DAEMON_SETS}/podpool-uninstall/status"
        status = {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 2}
        plane.admin.patch(path, {"status": status | {"observedGeneration": 1}})
        awaited = ["--daemon-set", "podpool-uninstall", "--timeout", "1s", "--keep-state"]
        argv: list[str | Path] = [PODPOOL, "controller", "uninstall", *awaited, "--kubeconfig", plane.kubeconfig]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert "2 of 3 nodes were cleaned up within 1 s" in done.stderr
        plane.admin.patch(path, {"status": {"numberReady": 3}})
        assert "3 nodes were cleaned up" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.real
@pytest.mark.xdist_group("chart")
def test_the_lines_of_the_plain_manifests_work(plane: ControlPlane, tmp_path: Path) -> None:
    """Without nodes no Job completes, so the one that waits for it is left out."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "kubectl").symlink_to(program("kubectl"))
    section = (ROOT / "docs/install.md").read_text().partition("## Plain manifests")[2]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    script = "\n".join(["set -e", *(line for line in lines if "wait --for=condition=complete" not in line)])
    env = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path)}
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "daemonset.apps/podpool-agent serverside-applied" in done.stdout
    token = base64.b64decode(plane.admin.get(f"{SECRETS}/podpool-ledger-cluster")["data"]["token"]).decode()
    (tmp_path / "token").write_text(token)
    assert token == read_new_token(str(tmp_path / "token"))


def uninstall(plane: ControlPlane) -> str:
    """Run the command with the account of the chart, and return its output."""
    token = plane.accounts.token("podpool-uninstall", namespace="kube-system")
    kubeconfig = plane.kubeconfig_for(token, name="podpool-uninstall")
    until(lambda: may_list(plane, token), "its rights are in force")
    argv: list[str | Path] = [PODPOOL, "controller", "uninstall", "--kubeconfig", kubeconfig]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    return str(done.stdout)


def may_list(plane: ControlPlane, token: str) -> bool:
    try:
        return bool(plane.api(token).get("/api/v1/nodes"))
    except ApiError:
        return False


def apply(plane: ControlPlane, objects: list[Any]) -> None:
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest=json.dumps(manifest))


def own_crds(plane: ControlPlane) -> set[str]:
    names = (each["metadata"]["name"] for each in plane.admin.get(CRDS)["items"])
    return {each for each in names if each.endswith(("acn.azure.com", "podpool.io", "whereabouts.cni.cncf.io"))}


def established(plane: ControlPlane) -> bool:
    found = plane.admin.get(CRDS)["items"]
    return all(
        any(one["type"] == "Established" and one["status"] == "True" for one in each["status"].get("conditions", ()))
        for each in found
    )
