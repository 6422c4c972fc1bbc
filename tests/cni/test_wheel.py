"""One wheel carries the plugin for every architecture, and says nothing about the machine it was built on."""

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


@pytest.mark.timeout(1800)  # the first time a C library is built for each of them, a minute or two
def test_it_has_a_static_program_for_each(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as carried:
        assert set(MACHINES) == set(ARCHITECTURES)
        for architecture in ARCHITECTURES:
            program = carried.read(f"podpool/cni/bin/{plugin_name(architecture)}")
            made = Elf(program)
            assert MACHINES[architecture] == made.machine
            assert LOADED in made.segments
            assert INTERPRETER not in made.segments
            assert len(program) < 64 * 1024
        assert "podpool/cni/python_plugin.py" in carried.namelist()
