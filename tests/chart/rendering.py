"""Renders the chart with Helm, as a user would who has a file of values."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec

from parts.recipes import program
from tools.chart.files import CHART, ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHART_DIR = ROOT / CHART
REQUIRED = {"network": {"profile": "bridge", "bridge": "br0"}, "controller": {"subnet": "vnet.pods"}}
PROFILES: dict[str, dict[str, Any]] = {
    "dynamic": REQUIRED,
    "slices": {},
    "dynamic-slices": REQUIRED,
    "azure": {"controller": {"subnet": "vnet.pods"}},
}
"""What each profile requires in addition."""


class Refused(Exception):
    """Helm refused the values; the message is its output."""


def helm(*argv: str | Path, home: Path, stdin: str = "") -> str:
    """Run Helm without the user's configuration."""
    places = {f"HELM_{each}_HOME": str(home / each) for each in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [program("helm"), *argv], check=False, capture_output=True, text=True, input=stdin, env=os.environ | places
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def render(home: Path, values: dict[str, Any], *, profile: str = "", namespace: str = "kube-system") -> list[Any]:
    """Return the objects of the chart with these values."""
    chosen: list[str | Path] = ["--values", CHART_DIR / f"profiles/{profile}.yaml"] if profile else []
    argv: list[str | Path] = ["template", "podpool", CHART_DIR, "--namespace", namespace, *chosen, "--values", "-"]
    text = helm(*argv, home=home, stdin=json.dumps(values))
    return [found for each in text.split("\n---\n") if (found := msgspec.yaml.decode(each))]


def workloads(objects: list[Any]) -> list[Any]:
    """Return the objects that have Pods."""
    return [each for each in objects if "template" in each.get("spec", {})]


def containers(objects: list[Any]) -> list[Any]:
    """Return all containers, also those that run first."""
    specs = [each["spec"]["template"]["spec"] for each in workloads(objects)]
    return [each for spec in specs for each in [*spec.get("initContainers", ()), *spec["containers"]]]


def named(objects: list[Any], kind: str, name: str) -> Any:  # noqa: ANN401  an object
    """Return one object."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return values with others on top, as Helm merges them."""
    both = below.keys() & above.keys()
    nested = {
        each: merged(below[each], above[each])
        for each in both
        if isinstance(below[each], dict) and isinstance(above[each], dict)
    }
    return below | above | nested
