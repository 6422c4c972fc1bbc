"""Makes sure, every few minutes, that this machine still counts as its Node, and keeps the fence open.

Two quorum reads, counted from when the first was sent, must show a Node with this machine's boot id, and an NNC that
belongs to that Node and has our container and our boot id in it. Without the last, a Node deleted and registered again
would be taken for another machine, and its addresses given away under its Pods. The first reads also tell whether the
journal knows less than an agent of this boot did: then its Pods may have any address that it does not know to be used.

For slices the Node is enough, once their Leases are labelled with its UID: whoever gives up slices counts from when it
misses that one. A node that has never had an NNC needs no more than that.
"""

import asyncio
from collections.abc import Callable

import msgspec

from podpool.agent.deps import Ground
from podpool.agent.fence import own_container, own_report
from podpool.agent.nnc_status import OwnConfig
from podpool.agent.records import Adopted, Confirmed, Doubted
from podpool.agent.state import Book
from podpool.agent.subnets import NAMESPACE
from podpool.api.azure import NETWORK_CONFIGS, NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import NODES, Node
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiError, NotFound
from podpool.runtime.transport import Unreachable


class _Doubt(msgspec.Struct, frozen=True):
    """Why the journal is not believed, and which addresses Pods may have of which it knows nothing."""

    why: str
    forgotten: tuple[str, ...]


class Confirmation:
    """Reads, and opens the fence; `changed` is called after each."""

    def __init__(
        self,
        ground: Ground,
        *,
        book: Book,
        config: OwnConfig,
        slices: Callable[[str], bool] | None,
        changed: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._slices = slices
        self._book = book
        self._config = config
        self._changed = changed
        self._due = asyncio.Event()
        self._first = True
        self._journalled: int | None = None
        self._doubt: _Doubt | None = None

    def nudge(self) -> None:
        """Look now: something changed that may matter, if the fence is not open as it is."""
        newest = self._config.newest
        stranger = newest is not None and newest.status.network_containers and self._config.own() is None
        fence = self._book.node_fence if self._slices and newest is None else self._book.fence
        if stranger or not fence.is_open() or (self._slices and not self._book.node_fence.is_open()):
            self._due.set()

    async def run(self) -> None:
        """Confirm for ever."""
        failures = 0
        if self._journalled is None:
            self._journalled = max(self._book.pool.version, 0)  # before any watch adds to it
        while True:
            self._due.clear()
            confirmed = await self._confirm()
            failures = 0 if confirmed else failures + 1
            self._changed()
            # while it fails: often enough to open soon, and seldom enough for 5,000 nodes to ask at once
            pause = (
                backoff(failures, rng=self._ground.rng, base=0.5, most=15.0)
                if failures
                else self._ground.settings.confirmation_interval
            )
            try:
                async with asyncio.timeout(pause):
                    await self._due.wait()
            except TimeoutError:
                continue

    async def _confirm(self) -> bool:
        boot, wall = self._ground.clock.boot(), self._ground.clock.wall()
        before = self._config.newest
        try:
            node = await self._ground.kube.get(NODES, self._ground.node)
        except (ApiError, Unreachable):
            return False
        ours = node.boot_id == self._book.pool.boot_id
        alone = self._slices is not None and ours and self._slices(node.metadata.uid)
        if alone:
            self._book.write(Confirmed(boot=boot, wall=wall, node_only=True))
        try:
            config = await self._ground.kube.get(NETWORK_CONFIGS, self._ground.node, namespace=NAMESPACE)
        except (ApiError, Unreachable) as error:
            return alone and isinstance(error, NotFound) and not self._book.pool.adopted
        adopted = self._adopt(node, config)
        self._config.see_unless_moved(config, since=before)
        if not adopted or own_report(config).boot_id != self._book.pool.boot_id:
            return False
        self._book.write(Confirmed(boot=boot, wall=wall))
        return alone or self._slices is None

    def _adopt(self, node: Node, config: NodeNetworkConfig) -> bool:
        """Take the container that is ours; when it is another than before, that one is closed for good."""
        pool = self._book.pool
        container = own_container(node, config, pool=pool)
        if container is None:
            return False
        former = pool.adopted
        if former != container.id or self._doubt is None:  # one that could not be written is not looked for again
            self._doubt = self._doubt_of(container, config)
        if former != container.id:
            self._book.write(Adopted(container=container.id, suspect=self._doubt is not None))
            if former:
                self._ground.tell(f"container {former} was given up: this node goes on with {container.id}")
        if self._doubt:
            self._write_down(self._doubt)
        self._first, self._doubt = False, None
        return True

    def _doubt_of(self, container: NetworkContainer, config: NodeNetworkConfig) -> _Doubt | None:
        """Tell whether more may have been given of a container than the journal knows."""
        pool, report = self._book.pool, self._config.inherited or own_report(config)
        # who gave addresses in this boot told it, if the NNC was not made anew since; its sandboxes may run on
        alive = report.boot_id in ("", pool.boot_id)
        others = [each for each in config.status.network_containers if each.assignment_mode == "dynamic"]
        shown = (container, *(each for each in others if each.id not in {container.id, *pool.closed}))
        listed = tuple(grant.name for each in shown for grant in each.ip_assignments)
        if container.id != pool.adopted:
            told = f"the journal knows nothing of container {container.id}'s addresses"
            unknown = (not pool.adopted or pool.suspect) and alive
            return _Doubt(told, listed if unknown else ()) if listed or pool.suspect else None
        if self._first and (report.version > (self._journalled or 0) or pool.suspect):
            return _Doubt(
                "the journal is damaged, or older than what this node's agent reported", listed if alive else ()
            )
        return None

    def _write_down(self, doubt: _Doubt) -> None:
        self._book.write(Doubted(at=self._ground.clock.boot(), forgotten=doubt.forgotten))
        kept = "; none of them is given until no Pod can have it" if doubt.forgotten else ""
        self._ground.tell(f"{doubt.why}: every address rests once{kept}")
