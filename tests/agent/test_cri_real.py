"""The list of sandboxes of a real containerd."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from parts.daemon import Daemon
from parts.recipes import program
from podpool.agent.cri import CRIClient
from podpool.runtime.transport import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("containerd")]

CONFIG = """version = 3
root = "{home}/root"
state = "{home}/state"
disabled_plugins = {disabled}
[grpc]
address = "{home}/c.sock"
[ttrpc]
address = "{home}/t.sock"
[plugins.'io.containerd.internal.v1.opt']
path = "{home}/opt"
"""
CRI = "io.containerd.grpc.v1.cri"


@contextmanager
def containerd(home: Path, *, disabled: str = "[]") -> Iterator[Daemon]:
    config = home / "containerd.toml"
    config.write_text(CONFIG.format(home=home, disabled=disabled))
    daemon = Daemon([program("containerd"), "--config", config], log=home / "log", ready=(home / "c.sock").exists)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()


def test_a_containerd_without_sandboxes_and_one_that_was_killed(tmp_path: Path) -> None:
    with containerd(tmp_path) as daemon:
        client = CRIClient(str(tmp_path / "c.sock"))
        assert {} == asyncio.run(client.list_sandboxes())
        daemon.kill()
        with pytest.raises(Unreachable, match="refused"):
            asyncio.run(client.list_sandboxes())


def test_a_containerd_without_cri_is_unreachable(tmp_path: Path) -> None:
    """As Docker's: its list would be empty, and every sandbox would seem to have ended."""
    client = CRIClient(str(tmp_path / "c.sock"))
    with containerd(tmp_path, disabled=f'["{CRI}"]'), pytest.raises(Unreachable, match="12: unknown service"):
        asyncio.run(client.list_sandboxes())
