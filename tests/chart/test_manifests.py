"""Plain manifests are the chart, rendered; kustomize overlays change them; a real API server accepts both."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from parts.recipes import program
from podpool.cli.parser import find_command, parse
from podpool.cli.spec.model import Command
from podpool.cni.profiles import interface_plugin
from tests.chart.rendering import containers, named
from tests.chart.test_templates import agent_options
from tools.chart.files import ROOT
from tools.chart.manifests import MANIFESTS, manifests

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

OVERLAYS = sorted(each.parent for each in (ROOT / "deploy/overlays").glob("*/kustomization.yaml"))


def test_the_manifests_are_up_to_date() -> None:
    for path, content in manifests().items():
        assert content == (ROOT / path).read_text(), f"{path}: run `make manifests`"


@pytest.mark.parametrize("path", sorted((ROOT / MANIFESTS).glob("[!k]*.yaml")), ids=lambda path: str(path.stem))
def test_the_api_server_accepts_a_manifest(path: Path, control_plane: ControlPlane) -> None:
    accepted(control_plane, path.read_text())
    objects = parsed(path.read_text())
    assert not [each for each in objects if each["kind"] == "Secret"]
    assert "helm.sh" not in path.read_text()


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: str(path.name))
def test_an_overlay_changes_the_network(overlay: Path, control_plane: ControlPlane) -> None:
    text = subprocess.run([program("kubectl"), "kustomize", overlay], check=True, capture_output=True, text=True).stdout
    accepted(control_plane, text)
    objects = parsed(text)
    options = agent_options(objects)
    plugin = interface_plugin(options["cni_profile"], options["cni_options"])
    assert (overlay.name, "site0") == (plugin["type"], plugin.get("bridge", plugin.get("master")))
    for container in containers(objects):
        command, words = find_command(container["args"])
        assert isinstance(command, Command)
        assert parse(command, words, environment={})


def test_an_overlay_replaces_options(tmp_path: Path) -> None:
    """The last of two equal options counts."""
    argv: list[str | Path] = [program("kubectl"), "kustomize", ROOT / "deploy/overlays/bridge"]
    objects = parsed(subprocess.run(argv, check=True, capture_output=True, text=True, cwd=tmp_path).stdout)
    (controller,) = named(objects, "Deployment", "podpool-controller")["spec"]["template"]["spec"]["containers"]
    command, words = find_command(controller["args"])
    assert isinstance(command, Command)
    options = parse(command, words, environment={})
    assert ("site.pods", "batch=8") == (options["subnet"], options["settings"])


def accepted(plane: ControlPlane, text: str) -> None:
    """Let the API server decode and validate objects; it stores nothing."""
    options = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-o", "name"]
    names = plane.kubectl("apply", *options, "-f", "-", manifest=text).split()
    assert len(parsed(text)) == len(names)


def parsed(text: str) -> list[Any]:
    """Return the objects of a manifest."""
    return [found for each in text.split("---\n") if (found := msgspec.yaml.decode(each)) is not None]
