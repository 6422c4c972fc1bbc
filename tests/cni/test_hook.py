"""What a build of the wheel does with an architecture that it cannot make the plugin for."""

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
FOREIGN = {each for each in ARCHITECTURES if each != OWN}


class Told:
    """Stands for hatchling's terminal."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def carried(told: Any) -> set[str]:  # noqa: ANN401  only as much of it as the hook uses
    """Run the hook; tells which plugins it put into the wheel."""
    nothing: Any = None
    wheel: dict[str, dict[str, str]] = {"force_include": {}}
    PluginHook("", {}, nothing, nothing, "", "wheel", told).initialize("standard", wheel)
    return {Path(each).name for each in wheel["force_include"].values()}


def break_compilers(monkeypatch: pytest.MonkeyPatch, architectures: Collection[str]) -> None:
    real = build.compilers
    monkeypatch.setattr(build, "compilers", lambda each: [("false",)] if each in architectures else real(each))


def test_a_foreign_one_that_does_not_compile_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compilers(monkeypatch, FOREIGN)
    told = Told()
    assert {plugin_name(OWN)} == carried(told)
    for architecture in FOREIGN:
        assert [each for each in told.warnings if architecture in each]


def test_our_own_that_does_not_compile_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compilers(monkeypatch, ARCHITECTURES)
    with pytest.raises(BuildFailed, match=OWN):
        carried(Told())


def test_without_any_compiler_the_wheel_carries_none_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is the plugin in Python."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    told = Told()
    assert set() == carried(told)
    assert len(ARCHITECTURES) == len(told.warnings)
