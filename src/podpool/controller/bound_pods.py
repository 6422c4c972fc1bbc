"""Quorum reads of which nodes have unfinished Pods, shared by all who ask at the same time.

A list of Pods by node may cost the API server a read of every Pod. So one list answers for all nodes that are missing.
Invariant: an answer comes from a list that was sent after the question.
"""

import asyncio

from podpool.api.builtin import FINISHED, PODS
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient

_BOUND_AND_UNFINISHED = ",".join(("spec.nodeName!=", *(f"status.phase!={phase}" for phase in sorted(FINISHED))))


class BoundPods:
    """Answers whether Pods are bound to a node."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._lock = asyncio.Lock()
        self._lists_sent = 0
        self._answer: frozenset[str] | PodpoolError | None = None
        """Of the last list; None if it was cancelled."""

    async def none_on(self, node: str) -> bool:
        """Return whether no unfinished Pod is bound to a node."""
        return node not in await self.nodes()

    async def nodes(self) -> frozenset[str]:
        """Return the names of the nodes to which unfinished Pods are bound; raises the error of the list."""
        sent_before = self._lists_sent
        async with self._lock:
            answer = self._answer if self._lists_sent > sent_before else None
            if answer is None:
                answer = self._answer = await self._list()
        if isinstance(answer, PodpoolError):
            raise answer
        return answer

    async def _list(self) -> frozenset[str] | PodpoolError:
        self._lists_sent += 1
        self._answer = None
        try:
            listing = await self._kube.list(PODS, fields=_BOUND_AND_UNFINISHED)
        except PodpoolError as error:
            return error
        return frozenset(pod.spec.node_name for pod in listing.items)
