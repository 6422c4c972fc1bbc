"""What nodes request on a real API server: after an edit by hand, and while their subnet is exhausted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.pages import clear
from parts.polling import until
from tests.agent.test_pod_burst_real import writes
from tests.end_to_end.test_one_pod import Spine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]

SUBNET = "/apis/acn.azure.com/v1alpha1/namespaces/kube-system/clustersubnets/pods"
NODES = ("one", "two")


@pytest.fixture
def spine(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Spine]:
    """A ledger with a subnet of 61 addresses; tests install the rest."""
    clear(control_plane)
    made = Spine(control_plane, tmp_path)
    try:
        yield made
    finally:
        made.stop()
        clear(control_plane)


def requested(spine: Spine, node: str) -> int:
    return int(spine.config(node)["spec"]["requestedIPCount"])


def test_an_edited_request_is_corrected_in_one_patch(spine: Spine) -> None:
    """Lower or higher; the controller is paused, so that no other cause for a patch is left."""
    spine.install()
    spine.run_agent("one")
    agent = spine.running[-1]
    until(lambda: 15 == len(spine.grants("one")), "it has its first batch")
    first = set(spine.grants("one"))
    spine.bind("pod-0", "one")
    spine.plugin("ADD", "one", "pod-0")
    spine.controller.pause()
    mark = spine.plane.audit.mark()
    for number, edited in enumerate((3, 99), start=1):
        spine.plane.kubectl(
            *("patch", "nodenetworkconfig", "one", "--namespace", "kube-system", "--type", "merge"),
            *("--patch", f'{{"spec": {{"requestedIPCount": {edited}}}}}'),
        )
        until(lambda: 15 == requested(spine, "one"), f"{edited} is corrected")
        until(lambda number=number: number <= writes(spine, mark), "which is in the audit log")  # type: ignore[misc]
    agent.pause()
    for number in range(1, 20):
        spine.bind(f"pod-{number}", "one")
    agent.resume()
    until(lambda: 31 == requested(spine, "one"), "the next request follows its Pods")
    until(lambda: 3 <= writes(spine, mark), "which is in the audit log")
    assert 3 == writes(spine, mark), "one for each edit, and this one"
    spine.controller.resume()
    until(lambda: 31 == len(spine.grants("one")), "and is granted")
    assert first < set(spine.grants("one")), "nothing that it had was taken"


def published(spine: Spine) -> tuple[bool, int]:
    """What agents read: whether the subnet is exhausted, and the batch."""
    status = spine.plane.admin.get(SUBNET)["status"]
    return status["exhausted"], status["scaler"]["batch"]


def test_an_exhausted_subnet_leaves_each_node_one_free_address_and_recovers(spine: Spine) -> None:
    spine.controller_options = ("--scarcity", "exhaustion")
    spine.install()
    for node in NODES:
        spine.run_agent(node)
        until(lambda node=node: 15 == len(spine.grants(node)), f"{node} has its first batch")  # type: ignore[misc]
    assert (False, 16) == published(spine)
    many = [f"pod-{number}" for number in range(30)]
    for name in many:
        spine.bind(name, "one")
    until(lambda: (True, 1) == published(spine), "30 Pods and a batch for each node are above the threshold")
    until(lambda: (31, 1) == held(spine), "one free address on each node")
    for name in many:
        spine.plugin("ADD", "one", name)
    spine.bind("late", "two")
    address = spine.plugin("ADD", "two", "late")["ips"][0]["address"].partition("/")[0]
    until(lambda: (31, 2) == held(spine), "a Pod takes the free one, and its node gets another")
    assert (True, 1) == published(spine)

    for name in many:
        spine.delete(name)
        spine.plugin("DEL", "one", name)
    until(lambda: (False, 16) == published(spine), "a batch for each node fits again")
    until(lambda: (15, 15) == held(spine), "both have one")
    assert address in spine.grants("two")


def held(spine: Spine) -> tuple[int, ...]:
    """The addresses of each node, where those granted are those requested, else -1."""
    sizes = {node: len(spine.grants(node)) for node in NODES}
    return tuple(size if size == requested(spine, node) else -1 for node, size in sizes.items())
