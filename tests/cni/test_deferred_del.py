"""A DEL that the plugin defers as root is readable by the agent, whatever its account, and by no other."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from podpool.cni.paths import DELETES
from podpool.cni.protocol import decode_request
from tests.cni.plugin_process import DEL, SHORT, PluginProcess

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

AGENT = 4711
"""The UID of an agent that does not run as root."""


def owned(directory: Path) -> Path:
    directory.mkdir(0o700)
    os.chown(directory, AGENT, AGENT)
    return directory


def owner_and_mode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


def test_deferred_del_belongs_to_the_owner_of_the_directory(plugin: PluginProcess) -> None:
    owned(plugin.deletes)
    assert (0, None) == plugin.run(DEL)
    read = subprocess.run(
        ["cat", plugin.deferred.name], cwd=plugin.deletes, user=AGENT, capture_output=True, check=True
    )
    assert "box" == decode_request(read.stdout).container_id
    assert (AGENT, 0o600) == owner_and_mode(plugin.deferred)


def test_created_directory_belongs_to_the_owner_of_its_parent(plugin: PluginProcess) -> None:
    plugin.deletes = owned(plugin.deletes) / "late"
    assert (0, None) == plugin.run(DEL)
    assert (AGENT, 0o700) == owner_and_mode(plugin.deletes)
    assert (AGENT, 0o600) == owner_and_mode(plugin.deferred)


def test_directory_created_by_root_is_given_to_the_owner_of_its_parent(plugin: PluginProcess) -> None:
    plugin.deletes = owned(plugin.deletes) / "late"
    plugin.deletes.mkdir(0o700)
    assert (0, None) == plugin.run(DEL)
    assert (AGENT, 0o700) == owner_and_mode(plugin.deletes)


def test_del_is_deferred_without_permission_to_change_its_owner(plugin: PluginProcess) -> None:
    owned(plugin.deletes)
    assert (0, None) == plugin.run(DEL, before=["setpriv", "--bounding-set=-chown", "--inh-caps=-chown"])
    assert (0, 0o600) == owner_and_mode(plugin.deferred)


def test_symbolic_link_is_not_followed(plugin: PluginProcess, tmp_path: Path) -> None:
    """The owner of the directory could otherwise make root write elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    plugin.deletes.symlink_to(elsewhere)
    code, error = plugin.run(DEL)
    assert (1, 11) == (code, error["code"])
    assert [] == list(elsewhere.iterdir())


@pytest.mark.parametrize(("prepared", "owner"), [("true", 0), (f"install -d -o {AGENT} /run/podpool", AGENT)])
def test_default_directory_is_created_after_a_boot(program: Path, prepared: str, owner: int) -> None:
    """On an empty tmpfs, with and without the agent's directory."""
    script = f'mount -t tmpfs none /run && {prepared} && "$0" && stat -c "%u %a %n" {DELETES} {DELETES}/*'
    command = ["unshare", "--mount", "sh", "-c", script, str(program)]
    environment = {"PATH": os.environ["PATH"], "PODPOOL_WAIT_MS": SHORT, **DEL}
    output = subprocess.run(command, env=environment, input=b"{}", capture_output=True, check=True).stdout.decode()
    directory, deferred = output.splitlines()
    assert f"{owner} 700 {DELETES}" == directory
    assert deferred.startswith(f"{owner} 600 {DELETES}/box-eth0-")
