"""The node's own pool as a source of addresses: its grants, one of each lane for every sandbox.

An ADD that finds none waits for those on their way, behind whoever waits already, and then says why there are none.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from podpool.agent.add_queue import Ended, Queue
from podpool.agent.demand import Demand
from podpool.agent.deps import Ground
from podpool.agent.records import Assigned, Holding, Owner, PodName, Released
from podpool.agent.scaling_modes import Mode
from podpool.agent.state import Book
from podpool.cni.protocol import CniError, Code, Lease
from podpool.core.addresses import parse_address

Holdings: TypeAlias = tuple[Holding, ...]
"""What a sandbox gets: one address of each container and family."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a sandbox' interface, for which Pod and on which of the runtime's networks."""

    owner: Owner
    pod: PodName = PodName()
    network: str = ""


class Dynamic:
    """Gives and takes back the pool's grants."""

    def __init__(
        self,
        ground: Ground,
        book: Book,
        *,
        demand: Demand,
        rest: Callable[[], float],
        why_none: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        self.queue: Queue[Asker, Holdings] = Queue()
        self.asked: set[str] = set()
        """Pods that asked while addresses are forgotten: those have none of them."""
        self._ground = ground
        self._book = book
        self._demand = demand
        self._rest = rest
        self._why_none = why_none
        self._patience = 0.0 if ground.mode is Mode.REACTIVE else ground.settings.add_timeout
        self._changed = changed

    def waiting(self) -> dict[Owner, PodName]:
        """Tell which Pods wait."""
        return {owner: asker.pod for owner, asker in self.queue.waiting().items()}

    def serve(self) -> None:
        """Give addresses to those who wait, as far as there are any."""
        while (first := self.queue.first()) and (holdings := self._assign(first)):
            self.queue.serve(first.owner, holdings)

    async def give(self, asker: Asker) -> tuple[Lease, ...]:
        """Give what a sandbox has, or gets now, or gets in time."""
        if self._book.pool.forgotten:
            self.asked.add(asker.pod.key)
        holdings = self._book.pool.holdings_of(asker.owner) or self._at_once(asker)
        if not holdings:
            self._changed()
            answer = await self.queue.wait(asker.owner, asker, timeout=self._patience) if self._patience else None
            self._changed()
            if answer is None:
                raise CniError(Code.TRY_AGAIN_LATER, self._why_none())
            if isinstance(answer, Ended):
                raise CniError(Code.TRY_AGAIN_LATER, "the sandbox was deleted while it waited for an address")
            holdings = answer
        elif self._ground.mode is not Mode.PODS:
            self._changed()  # these monitors learn of a Pod only now
        return tuple(map(_lease, holdings))

    def give_back(self, owner: Owner) -> None:
        """Take back what a sandbox has, and end its waiting."""
        for holding in self._book.pool.holdings_of(owner):
            self._book.write(Released(grant=holding.grant.id, at=self._ground.clock.boot()))
            self._demand.gave_back(holding.pod)
        self.queue.end(owner)

    def check(self, owner: Owner) -> tuple[str, ...]:
        """Tell what a sandbox has."""
        return tuple(each.grant.address for each in self._book.pool.holdings_of(owner))

    def collect(self, network: str, valid: frozenset[Owner]) -> None:
        """Take back what sandboxes of a network have that are not valid any more."""
        held = [each.owner for each in self._book.pool.holdings.values() if each.network == network]
        for owner in dict.fromkeys(each for each in held if each not in valid):
            self._ground.tell(f"sandbox {owner.container_id} is not listed by the runtime any more: its address rests")
            self.give_back(owner)

    def _at_once(self, asker: Asker) -> Holdings:
        """Take a free address, but not before those who already wait."""
        return () if len(self.queue) else self._assign(asker)

    def _assign(self, asker: Asker) -> Holdings:
        pool = self._book.pool
        grants = pool.next_set(now=self._ground.clock.boot(), rest=self._rest())
        if not grants or not self._book.fence.is_open():
            return ()
        first, *more = (grant.id for grant in grants)
        self._book.write(
            Assigned(grant=first, more=tuple(more), owner=asker.owner, pod=asker.pod, network=asker.network)
        )
        return pool.holdings_of(asker.owner)


def _lease(holding: Holding) -> Lease:
    address = parse_address(holding.grant.address)
    return Lease(address=address, prefix=holding.prefix, gateway=holding.gateway)
