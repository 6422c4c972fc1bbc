"""ADDs whose plugin disconnects before the answer: what such an ADD was assigned is released.

The runtime cancelled it and does not know the address, and its DEL may have come before the assignment. What the
sandbox had before stays: a runtime may repeat an ADD that was answered, and cancel the repetition.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from podpool.agent.sandbox_gc import SandboxSource
from podpool.cni.protocol import Attachment
from podpool.runtime.logging import Logger

R = TypeVar("R")


@dataclass(kw_only=True)
class _Adds:
    """The ADDs of one attachment that are in progress at once."""

    kept: bool
    """The sandbox has had an address since before the first, or one of them was answered."""
    count: int = 0


class AbandonedAdds:
    """Runs ADDs, and undoes one that is cancelled."""

    def __init__(self, sources: Sequence[SandboxSource]) -> None:
        self._sources = sources
        self._in_progress: dict[Attachment, _Adds] = {}
        self._closed = False

    def close(self) -> None:
        """Undo nothing any more: the agent stops, and the plugin repeats its ADD with the successor."""
        self._closed = True

    async def undo_if_cancelled(self, attachment: Attachment, add: Awaitable[R], log: Logger) -> R:
        """Run an ADD; release what it was assigned if it is cancelled and no other ADD needs it."""
        adds = self._in_progress.setdefault(attachment, _Adds(kept=self._has_address(attachment)))
        adds.count += 1
        try:
            response = await add
        except asyncio.CancelledError:
            if adds.count == 1 and not adds.kept and not self._closed and self._has_address(attachment):
                log.info("ADD abandoned by its plugin, address released", sandbox=attachment.container_id)
                for source in self._sources:
                    source.schedule_release(attachment)
            raise
        else:
            adds.kept = True
            return response
        finally:
            adds.count -= 1
            if not adds.count:
                del self._in_progress[attachment]

    def _has_address(self, attachment: Attachment) -> bool:
        for source in self._sources:  # noqa: SIM110  a generator would cost as much as the questions
            if source.has_address(attachment):
                return True
        return False
