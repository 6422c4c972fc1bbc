"""The commands of docs/lite-api-server.md work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.pages import commands_of, run_commands

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces


@pytest.mark.real
def test_the_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    """kubectl uses the lite API server as a cluster."""
    result = run_commands(commands_of("docs/lite-api-server.md"), namespaces=namespaces, home=tmp_path)
    assert 0 == result.returncode, result.stdout
    assert "customresourcedefinition.apiextensions.k8s.io/nodenetworkconfigs.acn.azure.com created" in result.stdout
