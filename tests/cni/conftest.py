"""The plugin, once compiled and once in Python: what holds for one holds for the other."""

import platform
from pathlib import Path

import pytest

from podpool.cni.build import build
from podpool.cni.install import install, plain
from tests.cni.plugins import Plugin


@pytest.fixture(scope="session")
def shim() -> Path:
    return build(platform.machine())


@pytest.fixture(params=["compiled", "in Python"])
def program(request: pytest.FixtureRequest, shim: Path, tmp_path: Path) -> Path:
    if request.param == "compiled":
        return shim
    return install(tmp_path / "bin", made=plain())


@pytest.fixture
def plugin(program: Path, tmp_path: Path) -> Plugin:
    return Plugin(program, tmp_path)
