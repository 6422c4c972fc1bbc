"""The administrative service: subnets, recovery, tokens, clusters, history. Each call is a transaction on the store."""

import random
from collections.abc import Callable
from typing import Literal, TypeVar

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger import admin_messages as am
from podpool.ledger import messages as m
from podpool.ledger.domain import clusters, recovery, subnets, tokens
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.history import MAX_PERIODS, history, index_events, parse_time
from podpool.ledger.domain.occupancy import occupancy
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.rows import HistoryQuery, SubnetRow, TokenRow
from podpool.ledger.errors import Invalid
from podpool.runtime.clock import Clock

T = TypeVar("T")


class AdminService:
    """The administrative calls of one ledger."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: Clock,
        rng: random.Random,
        breaker: BreakerSettings,
        retention: float,
        on_delete: Callable[[m.SubnetName], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._breaker = breaker
        self._retention = retention
        self._on_delete = on_delete

    # Subnets

    async def create_subnet(self, spec: m.SubnetSpec) -> m.SubnetState:
        """Create a subnet."""
        return await self._change(lambda repo, wall: subnets.create_subnet(repo, spec, wall=wall))

    async def grow(self, name: m.SubnetName, growth: m.SubnetGrowth) -> m.SubnetState:
        """Add addresses to a subnet."""
        return await self._change(lambda repo, wall: subnets.grow_subnet(repo, name, growth, wall=wall))

    async def drain(self, name: m.SubnetName, *, draining: bool) -> m.SubnetState:
        """Stop granting in a subnet, or start again."""
        return await self._change(lambda repo, wall: subnets.drain_subnet(repo, name, draining=draining, wall=wall))

    async def delete(self, name: m.SubnetName) -> am.DeletedSubnet:
        """Delete an empty subnet."""
        await self._write(lambda repo, wall: subnets.delete_subnet(repo, name, wall=wall))
        self._on_delete(name)
        return am.DeletedSubnet(subnet=name)

    async def details(self, name: m.SubnetName, *, cluster: str | None) -> am.SubnetDetails:
        """Return a subnet with its usage per cluster."""
        return await self._read(lambda repo, wall: subnets.details(repo, name, cluster=cluster, wall=wall))

    async def occupancy(self, name: m.SubnetName, *, cluster: str | None) -> am.Occupancy:
        """Return the addresses of a subnet that are not free."""
        return await self._read(lambda repo, wall: occupancy(repo, name, cluster=cluster, wall=wall))

    async def networks(self) -> am.NetworkList:
        """Return all networks."""
        return am.NetworkList(networks=tuple(await self._read(lambda repo, wall: subnets.networks(repo, wall=wall))))

    # Recovery

    async def recovery(self) -> m.RecoveryStatus:
        """Return the inventories that are missing, and the ownership conflicts."""
        return await self._store.read(recovery.recovery_status)

    async def excuse(self, request: m.ExcuseRequest) -> m.RecoveryStatus:
        """Recover without a cluster's inventory."""
        await self._write(lambda repo, wall: recovery.excuse(repo, request.cluster, wall=wall))
        return await self.recovery()

    async def resolve_conflict(self, request: m.ResolveConflictRequest) -> m.RecoveryStatus:
        """Assign a disputed address to one of its two owners."""
        await self._write(lambda repo, wall: recovery.resolve_conflict(repo, request, wall=wall))
        return await self.recovery()

    # Tokens

    async def create_token(self, request: am.CreateTokenRequest) -> am.TokenInfo:
        """Create a token."""
        secret = tokens.new_secret(self._rng)
        return await self._write(lambda repo, wall: tokens.create_token(repo, request, secret=secret, wall=wall))

    async def accept_admin(self, secret: str) -> None:
        """Make the admin token beside the database valid."""
        await self._write(lambda repo, wall: tokens.accept_admin(repo, secret, wall=wall))

    async def revoke_token(self, name: str) -> am.TokenInfo:
        """Revoke a token."""
        return await self._write(lambda repo, wall: tokens.revoke_token(repo, name, wall=wall))

    async def bind_token(self, id_: str, cluster: str) -> TokenRow:
        """Bind a token to a cluster."""
        return await self._write(lambda repo, wall: tokens.bind_token(repo, id_, cluster, wall=wall))

    async def tokens(self) -> am.TokenList:
        """Return all tokens."""
        return am.TokenList(tokens=tuple(map(tokens.token_info, await self.token_rows())))

    async def token_rows(self) -> list[TokenRow]:
        """Return all tokens with their digests."""
        return await self._store.read(lambda repo: repo.tokens())

    # Clusters

    async def clusters(self) -> am.ClusterList:
        """Return all clusters."""
        return am.ClusterList(clusters=tuple(await self._store.read(clusters.clusters)))

    async def confirm_loss(self, cluster: str) -> am.ClusterList:
        """Close a cluster's circuit breaker: its lost nodes are really gone."""
        await self._write(lambda repo, wall: clusters.confirm_loss(repo, cluster, breaker=self._breaker, wall=wall))
        return await self.clusters()

    async def retire(self, cluster: str) -> am.RetiredCluster:
        """Release everything of a destroyed cluster."""
        return await self._write(lambda repo, wall: clusters.retire(repo, cluster, wall=wall))

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
    ) -> am.AddressHistory:
        """Return the history of an address, a node or a Pod, at one time or all."""
        while await self._store.write(index_events):
            pass
        begin, end = (0.0, self._clock.wall()) if at is None else (parse_time(at, field="at"),) * 2
        query = HistoryQuery(
            by=by, value=value, namespace=namespace, cluster=cluster, begin=begin, end=end, limit=_parse_limit(limit)
        )
        return await self._store.read(lambda repo: history(repo, query, retention=self._retention))

    # Metrics

    async def subnet_counters(self) -> list[tuple[m.SubnetState, SubnetRow]]:
        """Return all subnets with their counters."""
        return await self._read(
            lambda repo, wall: [(subnet_state(repo, row, wall=wall), row) for row in repo.subnets()]
        )

    async def _change(self, transaction: Callable[[Repository, float], SubnetRow]) -> m.SubnetState:
        return await self._write(lambda repo, wall: subnet_state(repo, transaction(repo, wall), wall=wall))

    async def _write(self, transaction: Callable[[Repository, float], T]) -> T:
        wall = self._clock.wall()
        return await self._store.write(lambda repo: transaction(repo, wall))

    async def _read(self, transaction: Callable[[Repository, float], T]) -> T:
        wall = self._clock.wall()
        return await self._store.read(lambda repo: transaction(repo, wall))


def _parse_limit(text: str | None) -> int:
    if text is None:
        return 100
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_PERIODS):
        raise Invalid(f"limit {text}: must be from 1 to {MAX_PERIODS}", field="limit")
    return int(text)
