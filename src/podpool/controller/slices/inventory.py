"""Whether it is known who uses which slice, or the agents must be heard first.

What must hold: nothing new is given while an agent may have it that nobody knows of. IPPools and Leases tell who has
what, and an API server that was restored from an older copy has forgotten what was given since: then only the agents
know, whose Pods use it. So, when a restore is noticed, or a Lease is gone that somebody held and we did not delete, a
question is written on every Node, and all agents answer it. Machines may lack their Node too, and have the gone time to
come back. A node that does not answer is waited for, but not for ever, and then named in the log.

When a lead begins, and nothing tells of a restore, only nodes without a slice are asked, and waited for but a moment.
Who was registered again is asked, too, if its agent had told something on the Node before, which counts until then.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from podpool.api.builtin import NODES, Node
from podpool.api.whereabouts import SLICE_INVENTORY_ANNOTATION, slice_report
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.ownership import SliceOwnership
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.runtime.entropy import new_uuid
from podpool.runtime.transport import Unreachable

LOOK, GATHER = 2.0, 0.1
"""Seconds between two looks at the answers, and for which news of one wait for others."""
MOMENT = 30.0
"""Seconds for which a new leader waits for nodes that should have a slice and have none."""
AT_ONCE = 64
"""Nodes that are asked at the same time."""

_log = logging.getLogger(__name__)


class SliceInventory:
    """One question after the other, each with a word of its own; `settled` is called when slices may be given."""

    def __init__(
        self,
        ground: SliceDeps,
        claims: SliceOwnership,
        *,
        lacks: Callable[[Node], bool],
        doubted: Callable[[], None],
        settled: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._kube = ground.kube
        self._claims = claims
        self._lacks = lacks
        self._doubted = doubted
        self._settled = settled
        self._stirred = asyncio.Event()
        self._question = new_uuid(ground.rng)
        self._begun = asyncio.get_running_loop().time()
        self._restores = ground.mirrors.restores
        self._all = self._restored = ground.mirrors.restored_within(ground.settings.common.node_gc_delay)
        self._over = False
        self._heard: dict[str, int] = {}
        """The version at which each Node was last heard, by its UID."""
        self._mute: set[str] = set()
        """Nodes that have told nothing, and whose earlier ones had."""

    @property
    def is_over(self) -> bool:
        """Tell whether slices may be given."""
        if self._restores != self._ground.mirrors.restores:
            self.doubt(restored=True)
        return self._over

    def doubt(self, *, restored: bool = False) -> None:
        """Hear everybody: something is gone that nobody of us took away."""
        now = asyncio.get_running_loop().time()
        _log.warning("what nodes have may not be known: all agents are asked before anything new is given")
        self._restored = restored or (self._restored and not self._over)
        self._question, self._begun, self._restores = new_uuid(self._ground.rng), now, self._ground.mirrors.restores
        self._all, self._over = True, False
        self._heard.clear()
        self._doubted()
        self.stir()

    def stir(self) -> None:
        """Look now."""
        self._stirred.set()

    def hear(self, node: Node) -> None:
        """Take down what a Node's agent tells. What it does not name any more is free, if it is its latest word."""
        report, version = slice_report(node), _number(node.metadata.resource_version)
        if report is None and self._claims.has_word_of(node):
            self._mute.add(node.metadata.name)
            self.stir()
        if report is None or version < self._heard.get(node.metadata.uid, 0):
            return
        self._heard[node.metadata.uid] = version
        self._claims.hear(node, report.lost, whole=self._over or report.inventory == self._question)
        if not self._over:
            self.stir()

    async def run(self) -> None:
        """Ask, whenever there is reason to, until cancelled."""
        while True:
            await self._stirred.wait()
            await asyncio.sleep(GATHER)
            self._stirred.clear()
            while self._mute or not self.is_over:
                try:
                    await self._ask_mute()
                    await self._look()
                except (ApiError, Unreachable) as error:
                    _log.info("the agents are asked later: %s", error)
                await self._pause()

    async def _ask_mute(self) -> None:
        while self._mute:
            name = min(self._mute)
            await self._ask_one(name, self._question)
            self._mute.discard(name)

    async def _pause(self) -> None:
        if self._mute or not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._stirred.wait()
                    await asyncio.sleep(GATHER)
            self._stirred.clear()

    async def _look(self) -> None:
        """Ask who was not asked, and see who has answered, on a quorum read."""
        if self.is_over:
            return
        question, settings = self._question, self._ground.settings.common
        nodes = (await self._kube.list(NODES)).items
        asked = [each for each in nodes if self._all or self._lacks(each)]
        await self._ask(
            [each for each in asked if each.metadata.annotations.get(SLICE_INVENTORY_ANNOTATION) != question], question
        )
        for each in nodes:
            self.hear(each)
        if question != self._question:
            return
        silent = [each.metadata.name for each in asked if not _answered(each, question)]
        waited = asyncio.get_running_loop().time() - self._begun
        patience = settings.inventory_timeout if self._all else min(MOMENT, settings.node_gc_delay)
        if waited < patience and (silent or (self._restored and waited < settings.node_gc_delay)):
            return
        if silent:
            _log.warning("no agent told what these nodes have, their Leases are believed: %s", ", ".join(silent))
        self._over = True
        self._settled()

    async def _ask(self, nodes: Sequence[Node], question: str) -> None:
        left = [each for each in nodes if each.metadata.annotations.get(SLICE_INVENTORY_ANNOTATION) != question]
        for begin in range(0, len(left), AT_ONCE):
            names = [each.metadata.name for each in left[begin : begin + AT_ONCE]]
            await asyncio.gather(*(self._ask_one(each, question) for each in names))

    async def _ask_one(self, node: str, question: str) -> None:
        with suppress(ApiNotFound):
            await self._kube.merge_patch(NODES, node, {"metadata": {"annotations": {SLICE_INVENTORY_ANNOTATION: question}}})


def _answered(node: Node, question: str) -> bool:
    report = slice_report(node)
    return report is not None and report.inventory == question


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
