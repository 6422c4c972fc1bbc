"""A real API server accepts every object of the chart: known fields, valid values, and valid policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.rendering import PROFILES, render
from tests.chart.test_templates import EVERYTHING, POSTGRES

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

THIRD_PARTY = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
"""Groups whose CRDs the control plane does not have."""


@pytest.mark.parametrize("name", [*PROFILES, "everything"])
def test_the_api_server_accepts_every_object(name: str, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A dry run: the server decodes strictly and validates, and stores nothing."""
    values = PROFILES.get(name, EVERYTHING | {"ledger": POSTGRES})
    objects = render(tmp_path, values, profile=name if name in PROFILES else "")
    known = [each for each in objects if each["apiVersion"] not in THIRD_PARTY]
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": known}
    options = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-o", "name"]
    accepted = control_plane.kubectl("apply", *options, "-f", "-", manifest=json.dumps(manifest))
    assert len(known) == len(accepted.split())
