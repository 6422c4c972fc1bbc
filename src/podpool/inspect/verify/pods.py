"""The objects of a self-test, and what is read of them. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from podpool.api.builtin import FINISHED, PODS, PodSpec, PodStatus
from podpool.api.meta import ApiStruct, KeyedObject, Kind

LABEL = "podpool.io/verify"
CONTAINER, PROBE = "server", "probe"
PORT = 7780
_GRACE = 1
"""Seconds for which a deleted Pod may run."""


class ContainerExit(ApiStruct, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """The used state of a container."""

    terminated: ContainerExit | None = None
    waiting: ContainerExit | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """The used status of a container."""

    name: str = ""
    state: ContainerState = ContainerState()


class VerifyPodStatus(PodStatus, frozen=True, kw_only=True):
    """The used status of a Pod of the test."""

    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class VerifyPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod of the test, or another one whose address is compared."""

    spec: PodSpec = PodSpec()
    status: VerifyPodStatus = VerifyPodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its addresses; none if it is finished or on the host network."""
        if self.spec.host_network or self.status.phase in FINISHED:
            return ()
        return tuple(each.ip for each in self.status.pod_ips if each.ip)

    @property
    def problem(self) -> str:
        """Why it does not run, as far as its status says it."""
        waiting = (each.state.waiting.reason for each in self.status.container_statuses if each.state.waiting)
        texts = [self.status.phase, self.status.reason, self.status.message, *waiting]
        return ", ".join(dict.fromkeys(filter(None, texts)))


VERIFY_PODS = Kind(group="", version="v1", plural=PODS.plural, kind=PODS.kind, type=VerifyPod)


def namespace_manifest(name: str) -> dict[str, Any]:
    """Return the namespace of a test, in which Pods must be restricted."""
    labels = {LABEL: "true", "pod-security.kubernetes.io/enforce": "restricted"}
    return {"metadata": {"name": name, "labels": labels}}


def server_manifest(name: str, *, namespace: str, node: str, image: str, listening: bool) -> dict[str, Any]:
    """Return a Pod on a node; `listening` makes it serve, with the image of podpool, else the image decides."""
    args = ["ledger", "serve", "--database", "sqlite:////tmp/verify.db", "--listen", f"$(POD_IP):{PORT}"]
    container: dict[str, Any] = {"name": CONTAINER, "image": image}
    if listening:
        field = {"fieldRef": {"fieldPath": "status.podIP"}}
        container |= {
            "args": [*args, "--health-listen", "127.0.0.1:7785"],
            "env": [{"name": "POD_IP", "valueFrom": field}],
        }
    return _pod(name, namespace, node, [container])


def probe_manifest(name: str, *, namespace: str, node: str, image: str, targets: Sequence[str]) -> dict[str, Any]:
    """Return a Pod with a container for each address, which ends with 1 if a ledger answers there, else with 3."""
    containers = [
        {
            "name": f"{PROBE}-{number}",
            "image": image,
            "args": ["ledger", "subnet", "list", f"--ledger={ledger_url(address)}", "--ledger-token-file="],
        }
        for number, address in enumerate(targets)
    ]
    return _pod(name, namespace, node, containers)


def ledger_url(address: str) -> str:
    """Return the URL of a Pod."""
    return f"http://[{address}]:{PORT}" if ":" in address else f"http://{address}:{PORT}"


def _pod(name: str, namespace: str, node: str, containers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    limits = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  in the container
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "true"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": _GRACE,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{**each, "securityContext": limits, "volumeMounts": mounts} for each in containers],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def probe_results(pod: VerifyPod, targets: Sequence[str]) -> dict[str, bool | None]:
    """Return whether each address was reached, None as long as it is not known."""
    ends = {each.name: each.state.terminated for each in pod.status.container_statuses}
    found = [ends.get(f"{PROBE}-{number}") for number in range(len(targets))]
    return {
        address: None if end is None else end.exit_code == 1  # a ledger answered, and refused the missing token
        for address, end in zip(targets, found, strict=True)
    }


class VerifyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    result: str
    """passed, failed or skipped."""
    message: str


class VerifiedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod of the test."""

    name: str
    node: str
    addresses: tuple[str, ...]
    seconds: float
    """From its creation until it ran with an address."""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """All results."""

    namespace: str
    checks: tuple[VerifyCheck, ...] = ()
    pods: tuple[VerifiedPod, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(each.result == FAILED_CHECK for each in self.checks)


PASSED, FAILED_CHECK, SKIPPED = "passed", "failed", "skipped"
