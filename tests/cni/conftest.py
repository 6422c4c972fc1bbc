"""The plugin, compiled and in Python: both must pass the same tests."""

import platform
from pathlib import Path

import pytest

from podpool.cni.build import build
from podpool.cni.install import install, python_plugin
from tests.cni.plugin_process import PluginProcess


@pytest.fixture(scope="session")
def shim() -> Path:
    return build(platform.machine())


@pytest.fixture(params=["compiled", "python"])
def program(request: pytest.FixtureRequest, shim: Path, tmp_path: Path) -> Path:
    if request.param == "compiled":
        return shim
    return install(tmp_path / "bin", content=python_plugin())


@pytest.fixture
def plugin(program: Path, tmp_path: Path) -> PluginProcess:
    return PluginProcess(program, tmp_path)
