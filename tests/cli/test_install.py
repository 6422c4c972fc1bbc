"""`podpool cni install`: what takes long is announced, and so is a fallback."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from podpool.cni import install as installer
from podpool.cni.build import NoCompiler

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Invoke


def _no_compiler(seconds: float) -> NoReturn:
    time.sleep(seconds)
    raise NoCompiler("this machine")


@pytest.mark.integration
@pytest.mark.parametrize(("seconds", "announced"), [(0.5, True), (0.0, False)])
def test_a_build_that_takes_long_is_announced(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, seconds: float, announced: bool
) -> None:
    monkeypatch.setattr(installer, "COMPILE_NOTICE_DELAY", 0.1)
    monkeypatch.setattr(installer, "find_plugin", lambda _architecture, **_options: _no_compiler(seconds))
    code, stdout, stderr = invoke("cni", "install", "--bin-dir", str(tmp_path))
    assert (0, f"{tmp_path / 'podpool'}\n") == (code, stdout)
    assert announced is stderr.startswith("podpool: compiling the CNI plugin, which may take a minute")
    assert "no compiler can build the CNI plugin for this machine" in stderr
    assert "using the plugin in Python, which is slower" in stderr
