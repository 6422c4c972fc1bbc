"""`podpool verify` on real nodes: kubelets start its Pods, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.image import NAME as IMAGE
from parts.installation import ADMIN_TOKEN
from parts.polling import until

if TYPE_CHECKING:
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]


def verify(world: World, *options: str) -> subprocess.Popen[str]:
    """Start the command; the test's image has no program that connects."""
    installation = world.installation
    environment = os.environ | {
        "KUBECONFIG": str(world.cluster.plane.kubeconfig),
        "PODPOOL_LEDGER": installation.url,
        "PODPOOL_LEDGER_TOKEN_FILE": str(installation.home / ADMIN_TOKEN),
    }
    program = Path(sys.executable).parent / "podpool"
    words = ["verify", "--image", IMAGE, "--reachability=false", "-o", "json", *options]
    return subprocess.Popen(
        [program, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def left(world: World) -> list[str]:
    """Return the Pods of tests."""
    pods = world.cluster.admin.get("/api/v1/pods?labelSelector=podpool.io/verify")["items"]
    return [each["metadata"]["name"] for each in pods]


def test_every_check_passes_on_both_nodes(world: World) -> None:
    with verify(world) as running:
        out, err = running.communicate()
    assert 0 == running.returncode, f"{out}\n{err}"
    report = json.loads(out)
    found = {each["check"]: each["result"] for each in report["checks"]}
    assert {"reachability"} == {name for name, result in found.items() if result == "skipped"} - {"cooldown"}
    assert {"one": 4, "two": 4} == {
        node: sum(each["node"] == node for each in report["pods"]) for node in world.cluster.nodes
    }
    assert [] == left(world)


def test_an_interrupt_leaves_no_pods(world: World) -> None:
    with verify(world, "--pods-per-node", "5") as running:
        until(lambda: len(left(world)) > 0, "the first Pods are created")
        running.send_signal(signal.SIGINT)
        running.communicate()
    assert 130 == running.returncode
    assert [] == left(world)
