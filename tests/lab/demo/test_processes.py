"""Processes that are kept running: when one counts as there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from podpool.lab.demo.processes import DoesNotStart, Process, Supervisor

if TYPE_CHECKING:
    from pathlib import Path


async def _yes() -> bool:
    return True


def test_who_else_answers_on_a_parts_port_does_not_count_and_the_part_says_that_it_cannot_listen(
    tmp_path: Path,
) -> None:
    async def kept() -> None:
        foreign = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = foreign.sockets[0].getsockname()[1]
        words = ["ledger", "serve", "--listen", f"127.0.0.1:{port}", "--database", f"sqlite://{tmp_path}/ledger.db"]
        supervisor = Supervisor()
        part = supervisor.begin(Process("ledger", words, log=tmp_path / "log", ready=_yes, port=port))
        try:
            await asyncio.wait_for(asyncio.shield(supervisor.failed), 60)
        finally:
            assert not part.ready.is_set()
            await supervisor.stop()
            foreign.close()

    with pytest.raises(DoesNotStart, match=r"(?s)the ledger does not start.*cannot listen on 127.0.0.1"):
        asyncio.run(kept())
