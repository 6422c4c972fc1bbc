"""`make up`, the README's first command, where nothing has been installed: what git has, Python, and the lock file."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from parts.debian import command
from parts.loopback import free_ports
from parts.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def fresh_checkout(home: Path) -> Path:
    """Copy what git knows, as it is now."""
    words = [command("git"), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True, cwd=ROOT)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, home / name)
    return home


@pytest.mark.real
def test_in_a_fresh_checkout_make_up_installs_what_the_lock_file_names_and_starts(tmp_path: Path) -> None:
    checkout = fresh_checkout(tmp_path / "podpool")
    options = f"--scenario none --once --nodes 2 --port {free_ports(4)}"
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    done = subprocess.run(
        [command("make"), "up", f"OPTIONS={options}"],
        check=False,
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**environment, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "The demo cluster is running" in done.stdout
    assert not list(checkout.glob(".venv/lib/*/site-packages/pytest")), "what only tests need is not installed"
