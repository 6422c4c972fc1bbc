"""The page of pocket is true where it has commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces


@pytest.mark.real
def test_the_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    """No cluster, and kubectl finds one."""
    told = run_commands(commands_of("docs/lite-api-server.md"), namespaces=namespaces, home=tmp_path)
    assert 0 == told.returncode, told.stdout
    assert "customresourcedefinition.apiextensions.k8s.io/nodenetworkconfigs.acn.azure.com created" in told.stdout
