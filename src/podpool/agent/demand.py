"""Pods of the node that still need an address.

A Pod counts from when it is bound until its sandbox has an address; a Pod with a deletion timestamp gets no new
sandbox. A Pod whose sandbox was deleted has most likely ended, and counts again only when its next sandbox sends an
ADD: otherwise every Pod that ends would count twice for a moment, as cooling down and as waiting.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from podpool.agent.add_queue import AddQueue
from podpool.agent.records import Assignment, PodIdentity
from podpool.api.builtin import Pod
from podpool.cni.protocol import Attachment

Assignments: TypeAlias = tuple[Assignment, ...]
"""What a sandbox gets: one address of each NC and family."""


class AddRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An ADD: for which attachment, Pod and CNI network."""

    attachment: Attachment
    pod: PodIdentity = PodIdentity()
    network: str = ""


class PodDemand:
    """Counts Pods without an address, and has the queue of waiting ADDs."""

    def __init__(self) -> None:
        self.queue: AddQueue[AddRequest, Assignments] = AddQueue()
        self._deleted: set[str] = set()

    def sandbox_deleted(self, pod: PodIdentity) -> None:
        """Do not count a Pod until its next sandbox sends an ADD."""
        self._deleted.add(pod.key)

    def unserved(self, pods: Iterable[Pod], assigned: Iterable[Assignment]) -> int:
        """Return the number of Pods that need an address and have none, and of sandboxes that wait for one."""
        users = [each.pod for each in assigned]
        waiting = [each.pod for each in self.queue.waiting().values()]
        known = {pod.key for pod in (*users, *waiting)} | self._deleted
        count, present = len(waiting), set[str]()
        for pod in pods:
            keys = pod.metadata.uid, pod.key
            if self._deleted:
                present.update(keys)
            if known.isdisjoint(keys) and pod.needs_address and not pod.metadata.deletion_timestamp:
                # the runtime has another UID for a static Pod than the API server
                count += not (pod.is_mirror and any(each.qualified_name == pod.key for each in users))
        self._deleted &= present
        return count
