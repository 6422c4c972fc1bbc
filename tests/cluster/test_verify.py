"""`podpool verify` on real nodes: kubelets start its Pods, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from parts import podpool_image
from parts.installation import ADMIN_TOKEN, PODPOOL
from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]


def verify(world: World, *options: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start the command, with words `before` it."""
    installation = world.installation
    environment = os.environ | {
        "KUBECONFIG": str(world.cluster.plane.kubeconfig),
        "PODPOOL_LEDGER": installation.url,
        "PODPOOL_LEDGER_TOKEN_FILE": str(installation.home / ADMIN_TOKEN),
    }
    words = [*before, str(PODPOOL), "verify", "-o", "json", *options]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def left(world: World) -> list[str]:
    """Return the Pods of tests."""
    pods = world.cluster.admin.get("/api/v1/pods?labelSelector=podpool.io/verify")["items"]
    return [each["metadata"]["name"] for each in pods]


def test_every_check_passes_with_podpools_own_image(world: World) -> None:
    archive = podpool_image.archive()
    for node in world.cluster.nodes.values():
        node.ctr("images", "import", str(archive))
    with verify(world, "--image", podpool_image.NAME) as running:
        out, err = running.communicate()
    assert 0 == running.returncode, f"{out}\n{err}"
    report = json.loads(out)
    failed = {each["check"]: each["message"] for each in report["checks"] if each["result"] != "passed"}
    assert set(failed) <= {"cooldown"}, failed  # with a cooldown of a second it may be over
    assert {"one": 4, "two": 4} == {
        node: sum(each["node"] == node for each in report["pods"]) for node in world.cluster.nodes
    }
    assert [] == left(world)


@pytest.mark.parametrize(("sent", "interrupts"), [("SIGINT", "default"), ("SIGTERM", "default"), ("SIGTERM", "ignore")])
def test_an_interrupt_leaves_no_pods(world: World, sent: str, interrupts: str) -> None:
    """Its Pods cannot start, so the signal always arrives while it waits for them.

    A command in the background of a script has SIGINT ignored, and so may these tests.
    """
    options = ("--image", "absent.invalid/image:1", "--start-timeout", "5m", "--pods-per-node", "5")
    with verify(world, *options, before=("env", f"--{interrupts}-signal=INT")) as running:
        until(lambda: len(left(world)) > 0, "the first Pods are created")
        running.send_signal(signal.Signals[sent])
        out, err = running.communicate()
    assert 130 == running.returncode, f"{out}\n{err}"
    assert [] == left(world)
