"""One wheel contains the plugin for every architecture and does not depend on the build machine."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from podpool.cni.build import ARCHITECTURES, plugin_name
from tests.cni.elf import INTERPRETER, LOADED, MACHINES, Elf

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(1800)  # zig builds a C library for each on first use, a minute or two
def test_static_plugin_for_each_architecture(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        assert set(MACHINES) == set(ARCHITECTURES)
        for architecture in ARCHITECTURES:
            program = content.read(f"podpool/cni/bin/{plugin_name(architecture)}")
            elf = Elf(program)
            assert MACHINES[architecture] == elf.machine
            assert LOADED in elf.segments
            assert INTERPRETER not in elf.segments
            assert len(program) < 64 * 1024
        assert "podpool/cni/python_plugin.py" in content.namelist()
