"""The wheel and the sdist are complete: each installs with nothing but the package registry."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from parts.pages import ROOT
from podpool import __version__

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("image"), pytest.mark.timeout(900)]
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it in an isolated environment."""
    directory = tmp_path_factory.mktemp("packages")
    run(UV, "build", "--quiet", "--python", sys.executable, "--out-dir", directory, ROOT)
    return directory


def test_the_wheel_from_the_sdist_is_that_of_the_checkout(packages: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    assert contents(wheel) == contents(packages / wheel.name)


def test_the_wheel_installs_into_an_empty_environment(packages: Path, tmp_path: Path) -> None:
    """By pip, as pipx does it; then the commands run."""
    run(UV, "venv", "--quiet", "--seed", "--no-project", "--python", sys.executable, tmp_path / "venv")
    (wheel,) = packages.glob("*.whl")
    run(tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel)
    assert __version__ == run(tmp_path / "venv/bin/podpool", "--version").strip()
    assert "0 failed" in run(tmp_path / "venv/bin/podpool", "sim", "--seeds", "1-1", "--profile", "narrow")


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run(*argv: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=cwd or "/", timeout=600)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
