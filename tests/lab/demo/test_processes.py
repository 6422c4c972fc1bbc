"""Supervised processes: when one is ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from podpool.lab.demo.processes import Process, StartFailed, Supervisor

if TYPE_CHECKING:
    from pathlib import Path


async def _yes() -> bool:
    return True


@pytest.mark.integration
def test_another_process_on_the_port_does_not_make_it_ready(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        other = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        args = ["ledger", "serve", "--listen", f"127.0.0.1:{port}", "--database", f"sqlite://{tmp_path}/ledger.db"]
        args += ["--health-listen", "127.0.0.1:0"]
        supervisor = Supervisor()
        part = supervisor.start(Process("ledger", args, log=tmp_path / "log", ready=_yes, port=port))
        try:
            await asyncio.wait_for(asyncio.shield(supervisor.failed), 60)
        finally:
            assert not part.ready.is_set()
            await supervisor.stop()
            other.close()

    with pytest.raises(StartFailed, match=r"(?s)the ledger does not start.*cannot listen on 127.0.0.1"):
        asyncio.run(run())
