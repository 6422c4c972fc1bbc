"""The real kubectl, typed the same on api_server and on a real API server: it must say the same."""

from __future__ import annotations

import itertools
import re
import threading
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.config import from_kubeconfig
from podpool.kube.crd_install import install_crds
from tests.kube.loops import in_loop
from tests.lab.apiserver.processes import Kubectl, ApiServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

_count = itertools.count(1)
_OWN = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"(resourceVersion: |Resource Version: +)\"?\d+\"?"), "VERSION"),
    (re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+0000"), "TIME"),
    (re.compile(r"(?<= )\d+s\b *"), "AGE "),
    (re.compile(r"kubectl-edit-\d+"), "FILE"),
)
"""What no two servers have in common."""
_ADMISSION = re.compile(
    r"^(No resource quota\.|No LimitRange resource\.|Priority: .*|"
    r"((Taints|Tolerations):)? +(node\.kubernetes\.io/.*|<none>))\n",
    re.MULTILINE,
)
"""What a real server's admission and its further registry add to `describe`."""

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
    """The same words to two servers."""

    def __init__(self, api_server: Kubectl, real: Kubectl, namespace: str) -> None:
        self._pocket, self._real = api_server, real
        self.namespace = namespace

    def say(self, *words: str, manifest: str = "", editor: str = "") -> str:
        """Tell what both say; they must agree."""
        ours, theirs = (
            _common(each.say(*words, manifest=manifest, editor=editor)) for each in (self._pocket, self._real)
        )
        assert theirs == ours, f"kubectl {' '.join(words)}"
        return ours

    def watched(self, *words: str, lines: int) -> tuple[list[str], list[str]]:
        """Tell the first lines of a watch on each."""
        ours, theirs = (_first_lines(each, words, lines) for each in (self._pocket, self._real))
        return ours, theirs


def _common(text: str) -> str:
    for pattern, word in _OWN:
        text = pattern.sub(word, text)
    lines = [" ".join(each.split()) for each in _ADMISSION.sub("", text).splitlines()]
    return "\n".join(each for each in lines if each)


def _first_lines(kubectl: Kubectl, words: tuple[str, ...], count: int) -> list[str]:
    watching = kubectl.popen(*words)
    told: list[str] = []
    assert watching.stdout
    reading = threading.Thread(target=lambda: told.extend(itertools.islice(watching.stdout or (), count)))
    reading.start()
    try:
        until(lambda: bool(told), "the watch begins")
        kubectl.say("label", "nnc", "config", "seen=yes")
        kubectl.say("delete", "nnc", "config")
        reading.join(30)
    finally:
        watching.kill()
        watching.wait()
        reading.join()
        watching.stdout.close()
    return [_common(each) for each in told]


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """One api_server for all, over HTTPS and in a file."""
    home = tmp_path_factory.mktemp("api_server")
    api_server = ApiServerProcess(home, "--file", str(home / "api_server.db"), "--tls")
    api_server.start()
    yield api_server
    api_server.process.stop()


@pytest.fixture
def both(api_server: ApiServerProcess, control_plane: ControlPlane, tmp_path: Path) -> Both:
    """Both servers, with our registry and a namespace of the test's own."""
    define(api_server.kubeconfig)
    define(control_plane.kubeconfig)
    namespace = f"kubectl-{next(_count)}"
    ours = Kubectl(api_server.kubeconfig, tmp_path / "api_server", namespace)
    both = Both(ours, Kubectl(control_plane.kubeconfig, tmp_path / "real", namespace), namespace)
    assert "created" in both.say("create", "namespace", namespace)
    return both


@in_loop
async def define(kubeconfig: Path) -> None:
    road = from_kubeconfig(kubeconfig)
    try:
        await install_crds(KubeClient(road), crd_manifests())
    finally:
        await road.close()


class TestOwnKinds:
    def test_our_objects(self, both: Both) -> None:
        both.say("apply", "-f", "-", manifest=NNC)
        assert "unchanged" in both.say("apply", "-f", "-", manifest=NNC)
        both.say("get", "nnc")
        status = (
            '{"status":{"assignedIPCount":3,"networkContainers":[{"id":"i","subnetName":"s","version":2},'
            '{"id":"j","subnetName":"s2","version":5}]}}'
        )
        both.say("patch", "nnc", "config", "--type=merge", "--subresource=status", "-p", status)
        both.say("get", "nnc", "-o", "wide")
        both.say("get", "nnc", "config", "-o", "yaml")
        both.say("describe", "nnc", "config")
        assert "configured" in both.say("apply", "-f", "-", manifest=NNC.replace("1600", "3200"))
        assert "edited" in both.say("edit", "nnc", "config", editor="sed -i s/3200/4800/")
        assert "4800" in both.say("get", "nnc", "config", "-o", "jsonpath={.spec}")
        assert "deleted" in both.say("delete", "nnc", "config")
        assert "NotFound" in both.say("get", "nnc", "config")

    def test_what_breaks_a_schema(self, both: Both) -> None:
        assert "should match" in both.say("create", "-f", "-", manifest=POOL.replace("RANGE", "nonsense"))
        both.say("create", "-f", "-", manifest=POOL.replace("RANGE", "10.0.0.0/24"))
        assert "AlreadyExists" in both.say("create", "-f", "-", manifest=POOL.replace("RANGE", "10.0.0.0/24"))
        both.say("get", "ippools")
        both.say("delete", "-f", "-", manifest=POOL)

    def test_explanations(self, both: Both) -> None:
        both.say("explain", "nnc.spec.requestedIPCount")
        both.say("explain", "ippools.spec")

    def test_a_watch_in_the_terminal(self, both: Both) -> None:
        both.say("create", "-f", "-", manifest=NNC)
        ours, theirs = both.watched("get", "nnc", "-w", "--output-watch-events", lines=4)
        assert ["ADDED", "MODIFIED", "DELETED"] == [each.split()[0] for each in ours[1:]]
        assert theirs == ours


class TestKubernetesKinds:
    def test_nodes(self, both: Both) -> None:
        name = f"node-{both.namespace}"
        both.say("create", "-f", "-", manifest=NODE.replace("NAME", name))
        both.say("get", "node", name)
        both.say("get", "node", name, "-o", "wide")
        for words in (["label", "node", name, "colour=red"], ["annotate", "node", name, "x=y"], ["cordon", name]):
            both.say(*words)
        both.say("get", "node", name, "--show-labels")
        both.say("uncordon", name)
        both.say("describe", "node", name)
        both.say("taint", "node", name, "key-")
        assert "edited" in both.say("edit", "node", name, editor="sed -i s/red$/blue/")
        assert "blue" in both.say("get", "node", name, "-o", "jsonpath={.metadata.labels.colour}")
        both.say("delete", "node", name)

    def test_pods(self, both: Both) -> None:
        both.say("apply", "-f", "-", manifest=POD)
        for words in (["get", "pods"], ["get", "pods", "-o", "wide"], ["describe", "pod", "p"]):
            both.say(*words)
        both.say("apply", "-f", "-", manifest=POD.replace("app: x", "app: x, tier: one"))
        both.say("get", "pods", "--show-labels")
        assert "p" in both.say("get", "pods", "-l", "app in (x, y), tier", "-o", "name")
        both.say("get", "pods", "-l", "app=y")
        assert "not supported" in both.say("get", "pods", "--field-selector", "spec.none=x")
        for status in (
            '{"status":{"phase":"Running","podIPs":[{"ip":"10.0.0.4"}],"conditions":[{"type":"Ready","status":"True"}]}}',
            '{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}',
        ):
            both.say("patch", "pod", "p", "--subresource=status", "-p", status)
        both.say("get", "pod", "p", "-o", "jsonpath={.status.conditions[*].type} {.status.podIPs}")
        both.say("get", "pods", "-o", "wide", "--field-selector", "status.phase=Running")
        both.say("patch", "pod", "p", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/tier"}]')
        assert "deleted" in both.say("delete", "pod", "p")
        assert "No resources found" in both.say("get", "pods")

    def test_leases_and_events(self, both: Both) -> None:
        both.say("apply", "-f", "-", manifest=LEASE)
        both.say("apply", "-f", "-", manifest=LEASE.replace("15", "20"))
        both.say("get", "leases")
        both.say("get", "lease", "l", "-o", "jsonpath={.spec}")
        both.say("create", "-f", "-", manifest=EVENT.replace("NAMESPACE", both.namespace))
        both.say("get", "events")
        both.say("get", "events", "-o", "wide")
        fields = "jsonpath={.note}{.regarding.name}{.deprecatedCount}{.deprecatedSource.component}"
        both.say("get", "events.events.k8s.io", "e", "-o", fields)
        assert "event/e" == both.say("get", "events", "--field-selector", "involvedObject.name=l", "-o", "name")
        both.say("get", "events", "--field-selector", "reason=No", "-o", "name")
        both.say("describe", "lease", "l")
        both.say("delete", "lease", "l")

    def test_namespaces_and_configmaps(self, both: Both) -> None:
        both.say("get", "ns", both.namespace, "--show-labels")
        both.say("get", "ns", both.namespace, "-o", "yaml")
        both.say("describe", "ns", both.namespace)
        both.say("create", "configmap", "m", "--from-literal=a=b")
        both.say("get", "cm", "m", "-o", "jsonpath={.data}")
        both.say("get", "cm")
        both.say("delete", "cm", "--all")
        assert "exit 1" in both.say("-n", "nowhere", "create", "-f", "-", manifest=LEASE)


class TestWhatIsLeftOut:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["apply", "--server-side", "-f", "-"], "server-side apply is not spoken"),
            (["create", "--dry-run=server", "-f", "-"], "is not spoken"),
            (["auth", "can-i", "get", "pods"], "who may do what (RBAC) is not spoken"),
        ],
    )
    def test_it_is_refused_with_a_sentence(
        self, api_server: ApiServerProcess, tmp_path: Path, words: list[str], sentence: str
    ) -> None:
        assert sentence in Kubectl(api_server.kubeconfig, tmp_path, "default").say(*words, manifest=LEASE)

    @pytest.mark.parametrize("verb", ["create", "apply"])
    def test_a_webhook_is_refused_with_a_sentence(self, api_server: ApiServerProcess, tmp_path: Path, verb: str) -> None:
        """Kubectl would say that there is no such kind; there is, and it would do nothing here."""
        kubectl = Kubectl(api_server.kubeconfig, tmp_path, "default")
        sentence = "admission (by webhooks and policies) is not spoken by this API server (podpool api_server)"
        assert sentence in kubectl.say(verb, "-f", "-", manifest=WEBHOOK)

    def test_rules_in_definitions_are_kept_and_warned_of(self, api_server: ApiServerProcess, tmp_path: Path) -> None:
        kubectl = Kubectl(api_server.kubeconfig, tmp_path, "default")
        ruled = RULED.replace("GROUP", f"x{next(_count)}.dev")
        assert "not evaluated" in kubectl.say("create", "-f", "-", manifest=ruled)


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
