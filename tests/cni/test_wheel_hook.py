"""A wheel build when the plugin cannot be compiled for an architecture."""

import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from hatch_build import PluginHook
from podpool.cni import build
from podpool.cni.build import ARCHITECTURES, BuildFailed, plugin_name

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

OWN = platform.machine()
OTHERS = {each for each in ARCHITECTURES if each != OWN}


class Terminal:
    """Collects the warnings that hatchling would print."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def included(terminal: Any) -> set[str]:  # noqa: ANN401  only as much of it as the hook uses
    """Run the hook; returns the plugins that it added to the wheel."""
    nothing: Any = None
    wheel: dict[str, dict[str, str]] = {"force_include": {}}
    PluginHook("", {}, nothing, nothing, "", "wheel", terminal).initialize("standard", wheel)
    return {Path(each).name for each in wheel["force_include"].values()}


def break_compilers(monkeypatch: pytest.MonkeyPatch, architectures: Collection[str]) -> None:
    real = build.compilers
    monkeypatch.setattr(build, "compilers", lambda each: [("false",)] if each in architectures else real(each))


def test_other_architecture_that_does_not_compile_is_omitted_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compilers(monkeypatch, OTHERS)
    terminal = Terminal()
    assert {plugin_name(OWN)} == included(terminal)
    for architecture in OTHERS:
        assert [each for each in terminal.warnings if architecture in each]


def test_build_fails_if_the_own_architecture_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compilers(monkeypatch, ARCHITECTURES)
    with pytest.raises(BuildFailed, match=OWN):
        included(Terminal())


def test_wheel_without_any_compiler_has_no_plugin_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python plugin is used then."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    terminal = Terminal()
    assert set() == included(terminal)
    assert len(ARCHITECTURES) == len(terminal.warnings)
