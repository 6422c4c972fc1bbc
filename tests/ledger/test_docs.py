"""Runs the commands of docs/ledger.md as they are written."""

import re
from pathlib import Path

import pytest

from parts.namespaces import Namespaces
from parts.pages import commands_of, run_commands


@pytest.mark.real
def test_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    """In a network namespace and /var/lib of their own, with default ports and paths."""
    result = run_commands(commands_of("docs/ledger.md"), namespaces=namespaces, home=tmp_path)
    assert 0 == result.returncode, result.stdout
    assert "vnet.pods: 10.50.0.0/25, 10.60.0.0/26 with 179 addresses" in result.stdout
    assert '"capacity":179,"reserved":0' in result.stdout
    assert re.search("10.50.0.11 .* one +default/web .* now ", result.stdout)
    assert '"namespace":"default","name":"web"' in result.stdout
    assert "1 network containers closed, 4 addresses cooling down, 2 tokens revoked" in result.stdout
