"""A burst of Pods on a real API server: reactive mode needs rounds, Pod mode one request; a subnet runs short.

Counted are the writes in the API server's audit log. The agent is paused while the burst is bound, and the controller
until it has a request, so that nothing depends on timing.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from parts.pages import clear
from parts.polling import until
from podpool.api.builtin import SHORT_CONDITION, SHORT_TAINT
from tests.end_to_end.test_one_pod import Spine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

BURST = [f"pod-{number}" for number in range(36)]


@pytest.fixture
def spine(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Spine]:
    """A ledger and a controller; tests start agents."""
    clear(control_plane)
    made = Spine(control_plane, tmp_path)
    try:
        made.install()
        yield made
    finally:
        made.stop()
        clear(control_plane)


def writes(spine: Spine, since: int) -> int:
    """Return the number of successful writes of the agent to its NNC."""
    return sum(
        each.verb == "patch" and each.resource == "nodenetworkconfigs" and each.status == 200
        for each in spine.plane.audit.calls(since=since)
        if each.user.endswith(":podpool-agent")
    )


def add(spine: Spine, node: str, pod: str) -> bool:
    """Send one ADD as a runtime does; return whether it succeeded."""
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": f"sandbox-{pod}",
        "CNI_NETNS": f"/run/netns/{pod}",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
        "PODPOOL_SOCKET": str(spine.door(node)),
    }
    config = json.dumps({"cniVersion": "1.0.0", "name": "net"}).encode()
    done = subprocess.run([spine.shim], check=False, env=environment, input=config, stdout=subprocess.PIPE)
    return done.returncode == 0


def after_the_first_pod(spine: Spine, node: str, *, mode: str, batch: int) -> int:
    """Start one Pod and pause the controller; return the position in the audit log."""
    spine.run_agent(node, "--mode", mode)
    until(lambda: batch == len(spine.grants(node)), f"{node} has its first batch")
    spine.bind("pod-0", node)
    assert add(spine, node, "pod-0")
    spine.controller.pause()
    mark, agent = spine.plane.audit.mark(), spine.running[-1]
    agent.pause()
    for name in BURST[1:]:
        spine.bind(name, node)
    agent.resume()
    return mark


def test_pods_mode_requests_once_for_48_and_no_add_fails(spine: Spine) -> None:
    mark = after_the_first_pod(spine, "watching", mode="pods", batch=15)
    until(lambda: 47 == spine.config("watching")["spec"]["requestedIPCount"], "all Pods are requested")
    spine.controller.resume()
    until(lambda: 47 == len(spine.grants("watching")), "all are granted: 48 with the primary")
    assert all(add(spine, "watching", pod) for pod in BURST)
    assert 1 == writes(spine, mark)


def test_reactive_mode_takes_rounds_and_some_adds_fail(spine: Spine) -> None:
    mark = after_the_first_pod(spine, "reacting", mode="reactive", batch=16)
    failed = [pod for pod in BURST if not add(spine, "reacting", pod)]
    assert 16 == len(BURST) - len(failed)
    until(lambda: 32 == spine.config("reacting")["spec"]["requestedIPCount"], "one more batch is requested")
    spine.controller.resume()
    until(lambda: 32 == len(spine.grants("reacting")), "and granted")
    failed = [pod for pod in failed if not add(spine, "reacting", pod)]
    assert failed
    until(lambda: 48 == len(spine.grants("reacting")), "and another one after that")
    assert all(add(spine, "reacting", pod) for pod in failed)
    assert 2 == writes(spine, mark)


def test_a_short_subnet_is_reported_on_the_node_and_removed(spine: Spine) -> None:
    """With only the agent's own permissions: a condition, a taint and an Event."""
    spine.run_agent("short", "--taint")
    until(lambda: 15 == len(spine.grants("short")), "it has its first batch")
    many = [f"many-{number}" for number in range(70)]
    for name in many:
        spine.bind(name, "short")
    node = "/api/v1/nodes/short"

    def reported() -> tuple[str, bool]:
        shown = spine.plane.admin.get(node)
        conditions = {each["type"]: each["status"] for each in shown["status"].get("conditions", [])}
        taints = [each["key"] for each in shown["spec"].get("taints", [])]
        return conditions.get(SHORT_CONDITION, ""), SHORT_TAINT in taints

    until(lambda: ("True", True) == reported(), "the Node has condition and taint")
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    until(
        lambda: SHORT_CONDITION in {each["reason"] for each in spine.plane.admin.get(events)["items"]}, "an Event too"
    )
    for name in many:
        spine.delete(name)
    until(lambda: ("False", False) == reported(), "and they are removed")
