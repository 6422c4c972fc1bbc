"""Networks beside the node's own, wired together.

plugin's frame -> router -> slices (journal) -> answer                  router, sliced
-> shared ranges (IPPools of all nodes)        classic
IPPools and Leases of this Node (watches) -> slices taken, handed back  pools, keeper
journal -> IPPools                                                      keeper
"""

import asyncio

from podpool.agent.book import Book
from podpool.agent.ground import Ground
from podpool.agent.networks.classic import ClassicSource
from podpool.agent.networks.keeper import Keeper
from podpool.agent.networks.router import ReadFile, Router
from podpool.agent.networks.sliced import SliceSource
from podpool.agent.networks.strays import Pods, Strays
from podpool.agent.networks.words import why_no_slice
from podpool.agent.picture import SlicePicture
from podpool.agent.reasons import fenced
from podpool.agent.recollection import APART
from podpool.resources.builtin import Node
from podpool.runtime.disk import Disk


class Networks:
    """All sources but the node's own pool."""

    def __init__(  # noqa: PLR0913  everything is handed in
        self,
        ground: Ground,
        book: Book,
        disk: Disk,
        *,
        namespace: str,
        foreign: bool,
        boot_id: str,
        pods: Pods,
        read_file: ReadFile,
    ) -> None:
        self._ground = ground
        self._book = book
        self._pods = pods
        self._strays = Strays()
        self._keeper = Keeper(ground, book, namespace, boot_id=boot_id, changed=self.changed)
        self.sliced = SliceSource(
            ground,
            book,
            usable=self._keeper.usable,
            why=lambda network, wanted: why_no_slice(ground.node, self._keeper.pools, network=network, wanted=wanted),
            touched=self._keeper.touched,
        )
        self._shared = ClassicSource(ground, disk, namespace=namespace, foreign=foreign)
        self.router = Router(sliced=self.sliced, shared=self._shared, clock=ground.clock, read_file=read_file)
        self._was_open = False

    def node_changed(self, node: Node | None) -> None:
        """Follow the objects of the Node that has our name, and our boot."""
        if node and node.boot_id == self._book.pool.boot_id:
            self._keeper.pools.follow(node.metadata.uid)

    def owned_by(self, uid: str) -> bool:
        """Tell whether all slices are known to be of the Node with this UID."""
        return self._keeper.owned_by(uid)

    def changed(self) -> None:
        """Give to those who wait; take what is offered, now that the Node is confirmed."""
        is_open = self._book.node_fence.is_open()
        if is_open and not self._was_open:
            self._keeper.look()
        self._was_open = is_open
        self.sliced.serve()

    def missing(self) -> str | None:
        """Tell what stands in the way of giving addresses, but that there may be no slice."""
        fence = self._book.node_fence
        return None if fence.is_open() else fenced(self._ground.node, fence.age(), self._ground.numbers)

    def heard(self) -> dict[str, float | None]:
        """Tell when each watch last told anything, by the loop's time."""
        return self._keeper.pools.heard()

    def pictures(self) -> tuple[SlicePicture, ...]:
        """Tell how the slices stand."""
        now, rest = self._ground.clock.boot(), self._ground.numbers.cooldown
        return tuple(
            SlicePicture(
                network=each.network,
                range=str(each.range),
                slice=str(each.prefix),
                size=each.prefix.usable.size,
                assigned=len(each.held),
                resting=each.resting(now=now, rest=rest),
                lag=self._keeper.lag(each),
            )
            for each in self._book.slices
            if not each.closed
        )

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run())
            group.create_task(self.sliced.run())
            group.create_task(self._shared.run())
            group.create_task(self._look_for_strays())

    async def _look_for_strays(self) -> None:
        while True:
            await asyncio.sleep(APART)
            pods = self._pods()
            if pods is not None:
                self.sliced.put_back(self._strays.look(self._book.slices, pods, now=self._ground.clock.boot()))
