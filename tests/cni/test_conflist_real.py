"""The default CNI configuration with a real containerd, which chooses the version, and a real ptp."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from parts.daemon import Daemon
from parts.recipes import program
from podpool.agent.cri import CRIClient
from podpool.cni import conflist

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("containerd")]

CONFIG = """version = 3
root = "{home}/root"
state = "{home}/state"
[grpc]
address = "{home}/c.sock"
[ttrpc]
address = "{home}/t.sock"
[plugins.'io.containerd.internal.v1.opt']
path = "{home}/opt"
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{home}/bin"]
conf_dir = "{home}/net.d"
"""
STATUS = "/runtime.v1.RuntimeService/Status"


class Body:
    """Keeps the body of a response."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("offered", [True, False])
def test_containerd_uses_status_if_cni_1_1_is_offered(tmp_path: Path, offered: bool) -> None:
    plugins, commands = tmp_path / "bin", tmp_path / "commands"
    plugins.mkdir()
    shutil.copy(program("ptp"), plugins)
    shutil.copy(program("loopback"), plugins)
    (plugins / "podpool").write_text(f"#!/bin/sh\necho $CNI_COMMAND >> {commands}\n")
    (plugins / "podpool").chmod(0o755)
    conflist.write(tmp_path / "net.d", conflist.load(bin_dir=str(plugins) if offered else ""))
    (tmp_path / "containerd.toml").write_text(CONFIG.format(home=tmp_path))
    daemon = Daemon(
        [program("containerd"), "--config", tmp_path / "containerd.toml"],
        log=tmp_path / "log",
        ready=(tmp_path / "c.sock").exists,
    )
    try:
        daemon.start()
        answer = Body()
        asyncio.run(CRIClient(str(tmp_path / "c.sock"))._call(STATUS, answer))  # noqa: SLF001  another method
    finally:
        daemon.kill()
    assert b"NetworkReady" in answer.data
    assert b"NetworkPluginNotReady" not in answer.data
    assert offered == commands.exists()
    if offered:
        assert {"STATUS"} == set(commands.read_text().split())
