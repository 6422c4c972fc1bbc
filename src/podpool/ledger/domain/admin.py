"""What a person asks of the ledger: subnets, tokens, clusters, recovery, history. Each call as a work on the store."""

import random
from collections.abc import Callable
from typing import Literal, TypeVar

from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m
from podpool.ledger.domain.circuit_breaker import Brake
from podpool.ledger.domain.clusters import clusters, confirm_loss, retire
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.history import MOST_TENURES, history, moment, read_events
from podpool.ledger.domain.occupancy import occupancy
from podpool.ledger.domain.recovery import excuse, recovery_state, settle
from podpool.ledger.domain.subnets import create_subnet, delete_subnet, details, drain_subnet, grow_subnet, networks
from podpool.ledger.domain.tokens import accept_admin, bind_token, create_token, new_secret, revoke_token, shown
from podpool.ledger.errors import Invalid
from podpool.ledger.storage.rows import Question, SubnetRow, TokenRow
from podpool.ledger.storage.store import Books, Store
from podpool.runtime.clock import Clock

T = TypeVar("T")


class Administration:
    """The person's side of one ledger."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: random.Random,
        brake: Brake,
        kept: float,
        deleted: Callable[[m.SubnetName], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._brake = brake
        self._kept = kept
        self._deleted = deleted

    # Subnets

    async def create_subnet(self, new: m.NewSubnet) -> m.SubnetState:
        """Make a subnet."""
        return await self._change(lambda books, wall: create_subnet(books, new, wall=wall))

    async def grow(self, name: m.SubnetName, growth: m.Growth) -> m.SubnetState:
        """Give a subnet more addresses."""
        return await self._change(lambda books, wall: grow_subnet(books, name, growth, wall=wall))

    async def drain(self, name: m.SubnetName, *, draining: bool) -> m.SubnetState:
        """Grant nothing in a subnet any more, or again."""
        return await self._change(lambda books, wall: drain_subnet(books, name, draining=draining, wall=wall))

    async def delete(self, name: m.SubnetName) -> f.Deleted:
        """Forget a subnet that is empty."""
        await self._write(lambda books, wall: delete_subnet(books, name, wall=wall))
        self._deleted(name)
        return f.Deleted(subnet=name)

    async def details(self, name: m.SubnetName, *, cluster: str | None) -> f.SubnetDetails:
        """Show a subnet with who holds it."""
        wall = self._clock.wall()
        return await self._store.read(lambda books: details(books, name, cluster=cluster, wall=wall))

    async def occupancy(self, name: m.SubnetName, *, cluster: str | None) -> f.Occupancy:
        """Show a subnet address by address."""
        wall = self._clock.wall()
        return await self._store.read(lambda books: occupancy(books, name, cluster=cluster, wall=wall))

    async def networks(self) -> f.Networks:
        """Show all networks."""
        wall = self._clock.wall()
        return f.Networks(networks=tuple(await self._store.read(lambda books: networks(books, wall=wall))))

    # Recovery

    async def recovery(self) -> m.Recovery:
        """Show whom the ledger waits for, and what must be settled."""
        return await self._store.read(recovery_state)

    async def excuse(self, request: m.Excuse) -> m.Recovery:
        """Wait for a cluster no longer."""
        await self._write(lambda books, wall: excuse(books, request.cluster, wall=wall))
        return await self.recovery()

    async def settle(self, decision: m.Settle) -> m.Recovery:
        """Give an address with two owners to one of them."""
        await self._write(lambda books, wall: settle(books, decision, wall=wall))
        return await self.recovery()

    # Tokens

    async def create_token(self, new: f.NewToken) -> f.Token:
        """Let somebody call."""
        secret = new_secret(self._rng)
        return await self._write(lambda books, wall: create_token(books, new, secret=secret, wall=wall))

    async def accept_admin(self, secret: str) -> None:
        """Let the admin token that lies beside the books call."""
        await self._write(lambda books, wall: accept_admin(books, secret, wall=wall))

    async def revoke_token(self, name: str) -> f.Token:
        """Let somebody call no longer."""
        return await self._write(lambda books, wall: revoke_token(books, name, wall=wall))

    async def bind_token(self, id_: str, cluster: str) -> TokenRow:
        """Let a token speak for a cluster from now on."""
        return await self._write(lambda books, wall: bind_token(books, id_, cluster, wall=wall))

    async def tokens(self) -> f.Tokens:
        """Show all tokens."""
        return f.Tokens(tokens=tuple(map(shown, await self.token_rows())))

    async def token_rows(self) -> list[TokenRow]:
        """List all tokens with what they are recognised by."""
        return await self._store.read(lambda books: books.tokens())

    # Clusters

    async def clusters(self) -> f.Clusters:
        """Show all clusters."""
        return f.Clusters(clusters=tuple(await self._store.read(clusters)))

    async def confirm_loss(self, cluster: str) -> f.Clusters:
        """Agree that the nodes which a cluster lost are lost."""
        await self._write(lambda books, wall: confirm_loss(books, cluster, brake=self._brake, wall=wall))
        return await self.clusters()

    async def retire(self, cluster: str) -> f.Retired:
        """Take back what a destroyed cluster held."""
        return await self._write(lambda books, wall: retire(books, cluster, wall=wall))

    # History

    async def history(
        self,
        by: Literal["address", "node", "name"],
        value: str,
        *,
        namespace: str | None = None,
        cluster: str | None = None,
        at: str | None = None,
        limit: str | None = None,
    ) -> f.History:
        """Tell who held an address, or what a node held, or a Pod: at a moment, or ever."""
        while await self._store.write(read_events):
            pass
        begin, end = (0.0, self._clock.wall()) if at is None else (moment(at, field="at"),) * 2
        most = _count(limit)
        question = Question(by=by, value=value, namespace=namespace, cluster=cluster, begin=begin, end=end, limit=most)
        return await self._store.read(lambda books: history(books, question, kept=self._kept))

    async def meters(self) -> list[tuple[m.SubnetState, SubnetRow]]:
        """Show all subnets with their counters."""
        wall = self._clock.wall()
        return await self._store.read(
            lambda books: [(subnet_state(books, row, wall=wall), row) for row in books.subnets()]
        )

    async def _change(self, work: Callable[[Books, float], SubnetRow]) -> m.SubnetState:
        return await self._write(lambda books, wall: subnet_state(books, work(books, wall), wall=wall))

    async def _write(self, work: Callable[[Books, float], T]) -> T:
        wall = self._clock.wall()
        return await self._store.write(lambda books: work(books, wall))


def _count(text: str | None) -> int:
    if text is None:
        return 100
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MOST_TENURES):
        raise Invalid(f"limit {text}: must be from 1 to {MOST_TENURES}", field="limit")
    return int(text)
