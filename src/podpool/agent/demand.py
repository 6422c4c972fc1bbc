"""Demand for addresses: ADDs that wait, first come, first served, and Pods of the node that still need an address.

An attachment waits once, however often the runtime repeats its ADD: all get one answer. A DEL ends the wait.

A Pod counts from when it is bound until its sandbox has an address; a Pod with a deletion timestamp gets no new
sandbox. A Pod whose sandbox was deleted has most likely ended, and counts again only when its next sandbox sends an
ADD: otherwise every Pod that ends would count twice for a moment, as cooling down and as waiting. From an ADD that got
no address in time, its Pod counts until another gets one, also if a former sandbox still has an address: the runtime
repeats it every few seconds, and otherwise each repetition would change the request twice.
"""

import asyncio
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from podpool.agent.records import GrantAssignment, PodIdentity
from podpool.api.builtin import Pod
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address

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

    def cancel(self, attachment: Attachment) -> None:
        """End the wait of an attachment whose sandbox was deleted."""
        self.serve(attachment, SandboxDeleted())

    def serve(self, attachment: Attachment, answer: A | SandboxDeleted) -> None:
        """Answer the ADDs of an attachment, if it waits."""
        waiter = self._waiters.pop(attachment, None)
        if waiter:
            waiter.answer.set_result(answer)


Assignments: TypeAlias = tuple[GrantAssignment, ...]
"""What a sandbox gets: one address of each NC and family."""


class AddRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An ADD: for which attachment, Pod, CNI network and network namespace."""

    attachment: Attachment
    pod: PodIdentity = PodIdentity()
    network: str = ""
    netns: str = ""
    addresses: tuple[Address, ...] = ()
    """Requested addresses; empty for any."""
    behind_node: bool = False
    """The Pod's next hop is the node, not the subnet's router."""


class PodDemand:
    """Counts Pods without an address, and has the queue of waiting ADDs."""

    def __init__(self) -> None:
        self.queue: AddQueue[AddRequest, Assignments] = AddQueue()
        self._deleted: set[str] = set()
        self._refused: set[str] = set()

    def sandbox_deleted(self, pod: PodIdentity) -> None:
        """Do not count a Pod until its next sandbox sends an ADD."""
        self._deleted.add(pod.key)
        self._refused.discard(pod.key)

    def add_refused(self, pod: PodIdentity) -> None:
        """Count a Pod, whose ADD got no address in time, until one gets it."""
        self._refused.add(pod.key)
        self._deleted.discard(pod.key)

    def add_served(self, pod: PodIdentity) -> None:
        """Count a Pod no longer: its ADD got an address."""
        self._refused.discard(pod.key)

    def unserved(self, pods: Iterable[Pod], assigned: Iterable[GrantAssignment]) -> int:
        """Return the number of Pods that need an address and have none, and of sandboxes that wait for one."""
        waiting = [each.pod.key for each in self.queue.waiting().values()]
        counted = frozenset(waiting)
        not_due = {each.pod.key for each in assigned} | self._deleted
        count, present = len(waiting), set[str]()
        for pod in pods:
            keys = pod.add_keys
            if self._deleted or self._refused:
                present.update(keys)
            due = not_due.isdisjoint(keys) or not self._refused.isdisjoint(keys)
            count += due and counted.isdisjoint(keys) and pod.needs_address and not pod.metadata.deletion_timestamp
        self._deleted &= present
        self._refused &= present
        return count
