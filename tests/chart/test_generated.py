"""Generated files of the chart are up to date: accounts, roles, policies and CRDs are those of the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest

from podpool.cli.spec import COMMANDS
from tests.chart.rendering import REQUIRED, merged, render
from tests.docs.test_alerts import KNOWN, series_of
from tools.chart.board import board
from tools.chart.files import ROOT, chart_files
from tools.chart.values import UndocumentedValue, read_values, values_schema

PODPOOL = Path(sys.executable).parent / "podpool"
ALL: dict[str, Any] = {"dashboard": {"enabled": True}, "slices": {"sharedRanges": True, "namespace": "networks"}}
GENERATED = ("rbac", "--shared-ranges", "--whereabouts-namespace", "networks")


def test_the_generated_files_are_up_to_date() -> None:
    for path, content in chart_files().items():
        assert content == (ROOT / path).read_text(), f"{path}: run `make docs`"


@pytest.mark.real
@pytest.mark.xdist_group("chart")
@pytest.mark.parametrize("command", [GENERATED, ("crds",)], ids=["rbac", "crds"])
def test_the_chart_installs_what_the_command_prints(command: tuple[str, ...], tmp_path: Path) -> None:
    printed = subprocess.run([PODPOOL, *command], check=True, capture_output=True, text=True).stdout
    rendered = {key(each): plain(each) for each in render(tmp_path, merged(REQUIRED, ALL))}
    for text in printed.split("---\n")[1:]:
        wanted = msgspec.yaml.decode(text)
        assert plain(wanted) == rendered.pop(key(wanted))
    kinds = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    left = {name for kind, name, _ in rendered if kind in kinds}
    assert not {each for each in left if command[0] == "rbac" and "." not in each and "uninstall" not in each}


def key(found: dict[str, Any]) -> tuple[str, str, str]:
    """Return what names an object."""
    meta = found["metadata"]
    return found["kind"], meta["name"], meta.get("namespace", "")


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what the chart adds."""
    metadata = {key: value for key, value in found["metadata"].items() if key not in {"labels", "annotations"}}
    return found | {"metadata": metadata}


def test_every_setting_of_the_ledger_and_the_agent_has_an_option() -> None:
    """The chart's defaults are those of the commands."""
    values = {each.name: each.default for each in read_values((ROOT / "deploy/helm/podpool/values.yaml").read_text())}
    for command, option, value in (
        ("agent run", "mode", "agent.mode"),
        ("agent run", "state", "agent.stateDir"),
        ("agent run", "whereabouts-namespace", "slices.namespace"),
        ("controller run", "scarcity", "controller.scarcity"),
        ("ledger serve", "history", "ledger.history"),
        ("agent run", "bin-dir", "cni.binDir"),
        ("agent run", "conf-dir", "cni.confDir"),
    ):
        (found,) = [each for each in COMMANDS[command].options if each.name == option]
        assert found.default == values[value], value


def test_a_value_without_a_comment_is_an_error() -> None:
    with pytest.raises(UndocumentedValue, match=r"image\.tag"):
        values_schema(read_values('image:\n  tag: ""\n'))


def test_the_board_shows_metrics_that_exist() -> None:
    """Its legends use labels that these have."""
    for panel in json.loads(board())["panels"]:
        for target in panel["targets"]:
            promql_parser.parse(target["expr"])
            series = series_of(target)
            assert series <= KNOWN.keys()
            labels = {label for each in series for label in KNOWN[each].labels} | {"instance"}
            assert {each.partition("}}")[0] for each in target["legendFormat"].split("{{")[1:]} <= labels
