"""The commands in docs/slices.md are run as they are written."""

from pathlib import Path

import pytest

from parts.control_plane import ControlPlane
from parts.namespaces import Namespaces
from parts.pages import AGENTS_FOLLOW, commands_of, register, run_commands, within_reach
from podpool.api.crds import CRDS, multus_crd_manifest

BOOT = Path("/proc/sys/kernel/random/boot_id")


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(control_plane: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """On a cluster with Multus and a Node named one."""
    with within_reach(control_plane, namespaces, tmp_path):
        admin = control_plane.admin
        for node in admin.get("/api/v1/nodes")["items"]:
            admin.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        register(control_plane, "one", boot_id=BOOT.read_text().strip())
        known = [each["metadata"]["name"] for each in admin.get(CRDS.path())["items"]]
        if multus_crd_manifest()["metadata"]["name"] not in known:
            admin.post(CRDS.path(), multus_crd_manifest())
        commands = commands_of("docs/slices.md")
        variables = {"NODE": "one", "PODPOOL_SETTINGS": AGENTS_FOLLOW}
        result = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=control_plane, **variables)
    assert 0 == result.returncode, result.stdout
    assert '{"nodeName":"one","sliceRange":"10.60.0.0/24"}' in result.stdout
    assert "podref: default/web-0" in result.stdout
    assert '"address":"10.60.0.1/16"' in result.stdout
    assert "forbidden" not in result.stdout.lower()
