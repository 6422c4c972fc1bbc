"""kubectl prints the same on the lite API server and on kube-apiserver."""

from __future__ import annotations

import itertools
import re
import threading
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.kube.crd_install import install_crds
from tests.kube.event_loops import run_in_loop
from tests.lab.apiserver.processes import ApiServerProcess, Kubectl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

_count = itertools.count(1)
_VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"(resourceVersion: |Resource Version: +)\"?\d+\"?"), "VERSION"),
    (re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+0000"), "TIME"),
    (re.compile(r"(?<= )\d+s\b *"), "AGE "),
    (re.compile(r"kubectl-edit-\d+"), "FILE"),
)
"""Values that differ between servers."""
_ADMISSION = re.compile(
    r"^(No resource quota\.|No LimitRange resource\.|Priority: .*|"
    r"((Taints|Tolerations):)? +(node\.kubernetes\.io/.*|<none>))\n",
    re.MULTILINE,
)
"""Lines of `describe` that come from admission and from resources of kube-apiserver only."""

NODE = """
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {zone: a, node-role.kubernetes.io/worker: ""}}
spec: {taints: [{key: key, value: value, effect: NoSchedule}]}
status:
  addresses: [{type: InternalIP, address: 10.1.1.1}, {type: Hostname, address: NAME}]
  nodeInfo:
    {bootID: b, kubeletVersion: v1.36.3, osImage: Linux, kernelVersion: "6", architecture: amd64, kubeProxyVersion: "",
    containerRuntimeVersion: "containerd://2", machineID: m, operatingSystem: linux, systemUUID: s}
  conditions:
    [{type: Ready, status: "True", reason: Fine, message: it is, lastHeartbeatTime: "2026-01-01T00:00:00Z",
    lastTransitionTime: "2026-01-01T00:00:00Z"}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: none.invalid/none, env: [{name: A, value: "1"}, {name: B, value: "2"}],
    ports: [{containerPort: 80, protocol: TCP}]}
  - {name: d, image: none.invalid/none}
"""
LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: l}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: e}
involvedObject: {kind: Lease, name: l, namespace: NAMESPACE, apiVersion: coordination.k8s.io/v1}
reason: Because
message: it happened
type: Warning
count: 3
firstTimestamp: "2025-01-01T00:00:00Z"
lastTimestamp: "2025-01-01T00:00:10Z"
source: {component: tester, host: h}
"""
NNC = """
apiVersion: acn.azure.com/v1alpha
kind: NodeNetworkConfig
metadata: {name: config}
spec: {requestedIPCount: 1600}
"""
POOL = """
apiVersion: whereabouts.cni.cncf.io/v1alpha1
kind: IPPool
metadata: {name: pool}
spec: {range: RANGE, allocations: {}}
"""


class Both:
    """kubectl with the same arguments on two servers."""

    def __init__(self, api_server: Kubectl, real: Kubectl, namespace: str) -> None:
        self._lite, self._real = api_server, real
        self.namespace = namespace

    def run(self, *args: str, manifest: str = "", editor: str = "") -> str:
        """Return the output, which must be the same on both."""
        ours, theirs = (_common(each.run(*args, manifest=manifest, editor=editor)) for each in (self._lite, self._real))
        assert theirs == ours, f"kubectl {' '.join(args)}"
        return ours

    def watched(self, *args: str, lines: int) -> tuple[list[str], list[str]]:
        """Return the first lines of a watch on each."""
        ours, theirs = (_first_lines(each, args, lines) for each in (self._lite, self._real))
        return ours, theirs


def _common(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    lines = [" ".join(each.split()) for each in _ADMISSION.sub("", text).splitlines()]
    return "\n".join(each for each in lines if each)


def _first_lines(kubectl: Kubectl, args: tuple[str, ...], count: int) -> list[str]:
    watching = kubectl.popen(*args)
    output: list[str] = []
    assert watching.stdout
    reading = threading.Thread(target=lambda: output.extend(itertools.islice(watching.stdout or (), count)))
    reading.start()
    try:
        until(lambda: bool(output), "the watch begins")
        kubectl.run("label", "nnc", "config", "seen=yes")
        kubectl.run("delete", "nnc", "config")
        reading.join(30)
    finally:
        watching.kill()
        watching.wait()
        reading.join()
        watching.stdout.close()
    return [_common(each) for each in output]


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """One lite API server for all tests, over HTTPS and with a file."""
    home = tmp_path_factory.mktemp("api_server")
    api_server = ApiServerProcess(home, "--file", str(home / "api_server.db"), "--tls")
    api_server.start()
    yield api_server
    api_server.process.stop()


@pytest.fixture
def both(api_server: ApiServerProcess, control_plane: ControlPlane, tmp_path: Path) -> Both:
    """Both servers, with podpool's CRDs and a namespace for the test."""
    define(api_server.kubeconfig)
    define(control_plane.kubeconfig)
    namespace = f"kubectl-{next(_count)}"
    ours = Kubectl(api_server.kubeconfig, tmp_path / "api_server", namespace)
    both = Both(ours, Kubectl(control_plane.kubeconfig, tmp_path / "real", namespace), namespace)
    assert "created" in both.run("create", "namespace", namespace)
    return both


@run_in_loop
async def define(kubeconfig: Path) -> None:
    transport = from_kubeconfig(kubeconfig)
    try:
        await install_crds(KubeClient(transport), crd_manifests())
    finally:
        await transport.close()


class TestCustomResources:
    def test_node_network_configs(self, both: Both) -> None:
        both.run("apply", "-f", "-", manifest=NNC)
        assert "unchanged" in both.run("apply", "-f", "-", manifest=NNC)
        both.run("get", "nnc")
        status = (
            '{"status":{"assignedIPCount":3,"networkContainers":[{"id":"i","subnetName":"s","version":2},'
            '{"id":"j","subnetName":"s2","version":5}]}}'
        )
        both.run("patch", "nnc", "config", "--type=merge", "--subresource=status", "-p", status)
        both.run("get", "nnc", "-o", "wide")
        both.run("get", "nnc", "config", "-o", "yaml")
        both.run("describe", "nnc", "config")
        assert "configured" in both.run("apply", "-f", "-", manifest=NNC.replace("1600", "3200"))
        assert "edited" in both.run("edit", "nnc", "config", editor="sed -i s/3200/4800/")
        assert "4800" in both.run("get", "nnc", "config", "-o", "jsonpath={.spec}")
        assert "deleted" in both.run("delete", "nnc", "config")
        assert "NotFound" in both.run("get", "nnc", "config")

    def test_schema_violations(self, both: Both) -> None:
        assert "should match" in both.run("create", "-f", "-", manifest=POOL.replace("RANGE", "nonsense"))
        both.run("create", "-f", "-", manifest=POOL.replace("RANGE", "10.0.0.0/24"))
        assert "AlreadyExists" in both.run("create", "-f", "-", manifest=POOL.replace("RANGE", "10.0.0.0/24"))
        both.run("get", "ippools")
        both.run("delete", "-f", "-", manifest=POOL)

    def test_explain(self, both: Both) -> None:
        both.run("explain", "nnc.spec.requestedIPCount")
        both.run("explain", "ippools.spec")

    def test_watch(self, both: Both) -> None:
        both.run("create", "-f", "-", manifest=NNC)
        ours, theirs = both.watched("get", "nnc", "-w", "--output-watch-events", lines=4)
        assert ["ADDED", "MODIFIED", "DELETED"] == [each.split()[0] for each in ours[1:]]
        assert theirs == ours


class TestBuiltinKinds:
    def test_nodes(self, both: Both) -> None:
        name = f"node-{both.namespace}"
        both.run("create", "-f", "-", manifest=NODE.replace("NAME", name))
        both.run("get", "node", name)
        both.run("get", "node", name, "-o", "wide")
        for args in (["label", "node", name, "colour=red"], ["annotate", "node", name, "x=y"], ["cordon", name]):
            both.run(*args)
        both.run("get", "node", name, "--show-labels")
        both.run("uncordon", name)
        both.run("describe", "node", name)
        both.run("taint", "node", name, "key-")
        assert "edited" in both.run("edit", "node", name, editor="sed -i s/red$/blue/")
        assert "blue" in both.run("get", "node", name, "-o", "jsonpath={.metadata.labels.colour}")
        both.run("delete", "node", name)

    def test_pods(self, both: Both) -> None:
        both.run("apply", "-f", "-", manifest=POD)
        for args in (["get", "pods"], ["get", "pods", "-o", "wide"], ["describe", "pod", "p"]):
            both.run(*args)
        both.run("apply", "-f", "-", manifest=POD.replace("app: x", "app: x, tier: one"))
        both.run("get", "pods", "--show-labels")
        assert "p" in both.run("get", "pods", "-l", "app in (x, y), tier", "-o", "name")
        both.run("get", "pods", "-l", "app=y")
        assert "not supported" in both.run("get", "pods", "--field-selector", "spec.none=x")
        for status in (
            '{"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.4"}],"conditions":[{"type":"Ready","status":"True"}]}}',
            '{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}',
        ):
            both.run("patch", "pod", "p", "--subresource=status", "-p", status)
        both.run("get", "pod", "p", "-o", "jsonpath={.status.conditions[*].type} {.status.podIPs}")
        both.run("get", "pods", "-o", "wide", "--field-selector", "status.phase=Running")
        both.run("patch", "pod", "p", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/tier"}]')
        assert "deleted" in both.run("delete", "pod", "p")
        assert "No resources found" in both.run("get", "pods")

    def test_leases_and_events(self, both: Both) -> None:
        both.run("apply", "-f", "-", manifest=LEASE)
        both.run("apply", "-f", "-", manifest=LEASE.replace("15", "20"))
        both.run("get", "leases")
        both.run("get", "lease", "l", "-o", "jsonpath={.spec}")
        both.run("create", "-f", "-", manifest=EVENT.replace("NAMESPACE", both.namespace))
        both.run("get", "events")
        both.run("get", "events", "-o", "wide")
        fields = "jsonpath={.note}{.regarding.name}{.deprecatedCount}{.deprecatedSource.component}"
        both.run("get", "events.events.k8s.io", "e", "-o", fields)
        assert "event/e" == both.run("get", "events", "--field-selector", "involvedObject.name=l", "-o", "name")
        both.run("get", "events", "--field-selector", "reason=No", "-o", "name")
        both.run("describe", "lease", "l")
        both.run("delete", "lease", "l")

    def test_namespaces_and_configmaps(self, both: Both) -> None:
        both.run("get", "ns", both.namespace, "--show-labels")
        both.run("get", "ns", both.namespace, "-o", "yaml")
        both.run("describe", "ns", both.namespace)
        both.run("create", "configmap", "m", "--from-literal=a=b")
        both.run("get", "cm", "m", "-o", "jsonpath={.data}")
        both.run("get", "cm")
        both.run("delete", "cm", "--all")
        assert "exit 1" in both.run("-n", "nowhere", "create", "-f", "-", manifest=LEASE)


class TestUnsupported:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["apply", "--server-side", "-f", "-"], "server-side apply is not supported"),
            (["create", "--dry-run=server", "-f", "-"], "is not supported"),
            (["auth", "can-i", "get", "pods"], "authorization (RBAC) is not supported"),
        ],
    )
    def test_unsupported_requests_name_the_feature(
        self, api_server: ApiServerProcess, tmp_path: Path, args: list[str], message: str
    ) -> None:
        assert message in Kubectl(api_server.kubeconfig, tmp_path, "default").run(*args, manifest=LEASE)

    @pytest.mark.parametrize("verb", ["create", "apply"])
    def test_webhooks_are_rejected_by_name(self, api_server: ApiServerProcess, tmp_path: Path, verb: str) -> None:
        """The error names the missing feature, instead of an unknown kind."""
        kubectl = Kubectl(api_server.kubeconfig, tmp_path, "default")
        message = "admission (webhooks and policies) is not supported by this API server (podpool apiserver)"
        assert message in kubectl.run(verb, "-f", "-", manifest=WEBHOOK)

    def test_cel_rules_are_accepted_with_a_warning(self, api_server: ApiServerProcess, tmp_path: Path) -> None:
        kubectl = Kubectl(api_server.kubeconfig, tmp_path, "default")
        ruled = RULED.replace("GROUP", f"x{next(_count)}.dev")
        assert "not evaluated" in kubectl.run("create", "-f", "-", manifest=ruled)


WEBHOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: strict}
webhooks: []
"""
RULED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.GROUP}
spec:
  group: GROUP
  scope: Cluster
  names: {plural: lamps, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-validations: [{rule: "true"}]}}
"""
