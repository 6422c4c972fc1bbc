"""ADDs that wait for an address, first come, first served.

An attachment waits once, however often the runtime repeats its ADD: all get one answer. A DEL ends the wait.
"""

import asyncio
from typing import Generic, TypeVar

import msgspec

from podpool.cni.protocol import Attachment

Q = TypeVar("Q")
A = TypeVar("A")


class SandboxDeleted(msgspec.Struct, frozen=True):
    """The answer to an ADD whose sandbox was deleted while it waited."""


class _Waiter(Generic[Q, A]):
    def __init__(self, request: Q) -> None:
        self.request = request
        self.answer: asyncio.Future[A | SandboxDeleted] = asyncio.get_running_loop().create_future()
        self.calls = 0


class AddQueue(Generic[Q, A]):
    """Waiting requests by attachment, with their answers."""

    def __init__(self) -> None:
        self._waiters: dict[Attachment, _Waiter[Q, A]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def first(self) -> Q | None:
        """Return the request that has waited longest."""
        return next((waiter.request for waiter in self._waiters.values()), None)

    def waiting(self) -> dict[Attachment, Q]:
        """Return all requests, the longest waiting first."""
        return {attachment: waiter.request for attachment, waiter in self._waiters.items()}

    async def wait(self, attachment: Attachment, request: Q, *, timeout: float) -> A | SandboxDeleted | None:  # noqa: ASYNC109  waiting is all it does
        """Wait for an address or the deletion of the sandbox; None when neither came in time."""
        waiter = self._waiters.setdefault(attachment, _Waiter(request))
        waiter.calls += 1
        try:
            await asyncio.wait({waiter.answer}, timeout=timeout)
            return waiter.answer.result() if waiter.answer.done() else None
        finally:
            waiter.calls -= 1
            if not waiter.calls and self._waiters.get(attachment) is waiter:
                del self._waiters[attachment]

    def serve(self, attachment: Attachment, answer: A) -> None:
        """Answer the ADDs of an attachment."""
        self._answer(attachment, answer)

    def cancel(self, attachment: Attachment) -> None:
        """End the wait of an attachment whose sandbox was deleted."""
        self._answer(attachment, SandboxDeleted())

    def _answer(self, attachment: Attachment, answer: A | SandboxDeleted) -> None:
        waiter = self._waiters.pop(attachment, None)
        if waiter:
            waiter.answer.set_result(answer)
