"""A DEL that root's plugin leaves is for the agent, whatever account that has; and for nobody else."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from podpool.cni.paths import DELETES
from podpool.cni.protocol import decode_request
from tests.cni.plugins import DEL, SHORT, Plugin

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

AGENT = 4711
"""The account of an agent that is not root."""


def owned(directory: Path) -> Path:
    directory.mkdir(0o700)
    os.chown(directory, AGENT, AGENT)
    return directory


def owner_and_mode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


def test_the_owner_of_the_directory_can_read_what_is_left(plugin: Plugin) -> None:
    owned(plugin.deletes)
    assert (0, None) == plugin.run(DEL)
    read = subprocess.run(["cat", "box-eth0"], cwd=plugin.deletes, user=AGENT, capture_output=True, check=True)
    assert "box" == decode_request(read.stdout).container_id
    assert (AGENT, 0o600) == owner_and_mode(plugin.deletes / "box-eth0")


def test_a_directory_that_is_missing_belongs_to_the_owner_of_the_one_above(plugin: Plugin) -> None:
    plugin.deletes = owned(plugin.deletes) / "late"
    assert (0, None) == plugin.run(DEL)
    assert (AGENT, 0o700) == owner_and_mode(plugin.deletes)
    assert (AGENT, 0o600) == owner_and_mode(plugin.deletes / "box-eth0")


def test_one_that_root_made_before_the_agent_was_given_its_place_is_handed_over(plugin: Plugin) -> None:
    plugin.deletes = owned(plugin.deletes) / "late"
    plugin.deletes.mkdir(0o700)
    assert (0, None) == plugin.run(DEL)
    assert (AGENT, 0o700) == owner_and_mode(plugin.deletes)


def test_without_the_right_to_give_it_away_it_is_left_all_the_same(plugin: Plugin) -> None:
    owned(plugin.deletes)
    assert (0, None) == plugin.run(DEL, before=["setpriv", "--bounding-set=-chown", "--inh-caps=-chown"])
    assert (0, 0o600) == owner_and_mode(plugin.deletes / "box-eth0")


def test_a_link_in_the_directorys_place_is_not_followed(plugin: Plugin, tmp_path: Path) -> None:
    """Whoever owns the place could have root write where they must not."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    plugin.deletes.symlink_to(elsewhere)
    code, error = plugin.run(DEL)
    assert (1, 11) == (code, error["code"])
    assert [] == list(elsewhere.iterdir())


@pytest.mark.parametrize(("prepared", "owner"), [("true", 0), (f"install -d -o {AGENT} /run/podpool", AGENT)])
def test_after_a_boot_it_is_left_where_an_agent_looks(program: Path, prepared: str, owner: int) -> None:
    """A tmpfs of its own: whether somebody has made the agent's place there or not."""
    play = f'mount -t tmpfs none /run && {prepared} && "$0" && stat -c "%u %a %n" {DELETES} {DELETES}/*'
    words = ["unshare", "--mount", "sh", "-c", play, str(program)]
    environment = {"PATH": os.environ["PATH"], "PODPOOL_WAIT_MS": SHORT, **DEL}
    told = subprocess.run(words, env=environment, input=b"{}", capture_output=True, check=True).stdout.decode()
    assert [f"{owner} 700 {DELETES}", f"{owner} 600 {DELETES}/box-eth0"] == told.splitlines()
