"""The administrative service: subnets, recovery, tokens, clusters, history. Each call is a transaction on the store."""

import random
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from msgspec.structs import replace

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger import admin_messages as am
from podpool.ledger import messages as m
from podpool.ledger.domain import audit_log, clusters, quota, recovery, subnets, tokens
from podpool.ledger.domain.history import MAX_PERIODS, history, index_all, parse_time
from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.networks import KnownNetworks
from podpool.ledger.domain.occupancy_report import occupancy
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.row_to_message import subnet_state
from podpool.ledger.domain.rows import AuditRow, HistoryQuery, SubnetRow, TokenRow
from podpool.ledger.domain.token_scope import current_scope
from podpool.ledger.errors import Invalid

T = TypeVar("T")


class AdminService:
    """The administrative calls of one ledger."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        clock: LedgerClock,
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
        self._networks = KnownNetworks(store)

    # Subnets

    async def create_subnet(self, spec: m.SubnetSpec) -> m.SubnetState:
        """Create a subnet."""
        subnets.check_names(spec)
        return await self._change(spec.network, lambda repo, time: subnets.create_subnet(repo, spec, time=time))

    async def grow(self, name: m.SubnetName, growth: m.SubnetGrowth) -> m.SubnetState:
        """Add addresses to a subnet."""
        await self._networks.check_subnet(name)
        return await self._change(name.network, lambda repo, time: subnets.grow_subnet(repo, name, growth, time=time))

    async def drain(self, name: m.SubnetName, *, draining: bool) -> m.SubnetState:
        """Stop granting in a subnet, or start again."""
        await self._networks.check_subnet(name)
        return await self._change(
            name.network, lambda repo, time: subnets.drain_subnet(repo, name, draining=draining, time=time)
        )

    async def delete(self, name: m.SubnetName) -> am.DeletedSubnet:
        """Delete an empty subnet."""
        await self._networks.check_subnet(name)
        await index_all(self._store, network="")  # the history of earlier versions needs the rows of its NCs
        await self._write(lambda repo, time: subnets.delete_subnet(repo, name, time=time), network=name.network)
        self._on_delete(name)
        return am.DeletedSubnet(subnet=name)

    async def details(self, name: m.SubnetName, *, cluster: str | None) -> am.SubnetDetails:
        """Return a subnet with its usage per cluster."""
        current_scope().check(name)
        return await self._read(lambda repo, time: subnets.details(repo, name, cluster=cluster, time=time))

    async def occupancy(self, name: m.SubnetName, *, cluster: str | None) -> am.Occupancy:
        """Return the addresses of a subnet that are not free."""
        current_scope().check(name)
        return await self._read(lambda repo, time: occupancy(repo, name, cluster=cluster, time=time))

    async def networks(self) -> am.NetworkList:
        """Return all networks with subnets that the caller may use."""
        scope = current_scope()
        found = await self._read(lambda repo, time: subnets.networks(repo, scope=scope, time=time))
        return am.NetworkList(networks=tuple(found))

    # Recovery

    async def recovery(self) -> m.RecoveryStatus:
        """Return the inventories that are missing, and the ownership conflicts."""
        return await self._store.query(recovery.recovery_status)

    async def excuse(self, request: m.ExcuseRequest) -> m.RecoveryStatus:
        """Recover without a cluster's inventory, in one network or in all that wait for it."""
        for network in await self._store.query(partial(recovery.networks_awaiting, cluster=request.cluster)):
            if request.network in ("", network):
                await self._write(lambda repo, time: recovery.excuse(repo, request.cluster, time=time), network=network)
        return await self.recovery()

    async def resolve_conflict(self, request: m.ResolveConflictRequest) -> m.RecoveryStatus:
        """Assign a disputed address to one of its two owners."""
        network = await self._networks.existing(request.subnet.network)
        await self._write(lambda repo, time: recovery.resolve_conflict(repo, request, time=time), network=network)
        return await self.recovery()

    # Tokens

    async def create_token(self, request: am.CreateTokenRequest) -> am.TokenInfo:
        """Create a token."""
        secret = tokens.new_secret(self._rng)
        changed = await self._write(lambda repo, time: tokens.create_token(repo, request, secret=secret, time=time))
        await self._refresh_limits(changed.cluster)
        return changed

    async def accept_admin(self, secret: str) -> bool:
        """Make the admin token beside the database valid, unless it was revoked."""
        return await self._write(lambda repo, time: tokens.accept_token(repo, secret, admin=True, time=time))

    async def accept_cluster(self, secret: str) -> bool:
        """Make a cluster's token from a file valid, unless it was revoked; its first use binds it to the cluster."""
        return await self._write(lambda repo, time: tokens.accept_token(repo, secret, admin=False, time=time))

    async def rotate_token(self, name: str, request: am.RotateTokenRequest) -> am.TokenInfo:
        """Create a new token for the cluster of a token."""
        secret = tokens.new_secret(self._rng)
        changed = await self._write(
            lambda repo, time: tokens.rotate_token(repo, name, request, secret=secret, time=time)
        )
        await self._refresh_limits(changed.cluster)
        return changed

    async def revoke_token(self, name: str) -> am.TokenInfo:
        """Revoke a token."""
        changed = await self._write(lambda repo, time: tokens.revoke_token(repo, name, time=time))
        await self._refresh_limits(changed.cluster)
        return changed

    async def bind_token(self, id_: str, cluster: str) -> TokenRow:
        """Bind a token to a cluster."""
        changed = await self._write(lambda repo, time: tokens.bind_token(repo, id_, cluster, time=time))
        await self._refresh_limits(changed.cluster)
        return changed

    async def tokens(self) -> am.TokenList:
        """Return all tokens."""
        return am.TokenList(
            tokens=tuple(
                await self._read(
                    lambda repo, time: [tokens.token_info(repo, row, time=time) for row in repo.tokens()],
                )
            )
        )

    async def token_rows(self) -> list[TokenRow]:
        """Return all valid tokens with their digests."""
        return await self._read(lambda repo, time: tokens.valid_tokens(repo, time=time))

    # Audit log

    async def record(self, *, token: TokenRow, action: str, subject: str, result: str) -> None:
        """Add an administrative call to the audit log."""
        call = AuditRow(at=0.0, token=token.name, token_id=token.id, action=action, object=subject, result=result)
        await self._write(lambda repo, time: audit_log.record(repo, replace(call, at=time)))

    async def audit_log(self, *, limit: str | None = None) -> am.AuditLog:
        """Return the latest administrative calls."""
        count = _parse_limit(limit, maximum=audit_log.MAX_LIMIT)
        return await self._store.query(lambda repo: audit_log.audit_log(repo, count))

    # Clusters

    async def clusters(self) -> am.ClusterList:
        """Return all clusters."""
        return am.ClusterList(clusters=tuple(await self._store.query(clusters.clusters)))

    async def confirm_loss(self, cluster: str) -> am.ClusterList:
        """Close a cluster's circuit breakers: its lost nodes are really gone."""
        for network in await self._store.query(partial(clusters.networks_of, id_=cluster)):
            await self._write(
                lambda repo, time: clusters.confirm_loss(repo, cluster, breaker=self._breaker, time=time),
                network=network,
            )
        return await self.clusters()

    async def retire(self, cluster: str) -> am.RetiredCluster:
        """Release everything of a destroyed cluster."""
        retired = [
            await self._write(lambda repo, time: clusters.retire(repo, cluster, time=time), network=network)
            for network in await self._store.query(partial(clusters.networks_of, id_=cluster))
        ]
        revoked = await self._write(lambda repo, time: tokens.retire_tokens_and_pods(repo, cluster, time=time))
        return am.RetiredCluster(
            cluster=cluster,
            network_containers=sum(each.network_containers for each in retired),
            addresses=sum(each.addresses for each in retired),
            tokens=revoked,
        )

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
        await index_all(self._store)
        moment, count = None if at is None else parse_time(at, field="at"), _parse_limit(limit, maximum=MAX_PERIODS)

        def transaction(repo: Repository, time: float) -> am.AddressHistory:
            begin, end = (0.0, time) if moment is None else (repo.time_row().time_of(moment),) * 2
            query = HistoryQuery(
                by=by, value=value, namespace=namespace, cluster=cluster, begin=begin, end=end, limit=count
            )
            return history(repo, query, retention=self._retention)

        return await self._read(transaction)

    # Metrics

    async def subnet_counters(self) -> list[tuple[m.SubnetState, SubnetRow]]:
        """Return all subnets with their counters."""
        return await self._read(
            lambda repo, time: [(subnet_state(repo, row, time=time), row) for row in repo.subnets()]
        )

    async def _refresh_limits(self, cluster: str | None) -> None:
        """Apply the limits of a cluster's tokens in each of its networks."""
        if cluster is not None:
            for network in await self._store.query(partial(quota.networks_to_refresh, id_=cluster)):
                await self._store.write(partial(quota.refresh_limits, id_=cluster), network=network)

    async def _change(self, network: str, transaction: Callable[[Repository, float], SubnetRow]) -> m.SubnetState:
        return await self._write(
            lambda repo, time: subnet_state(repo, transaction(repo, time), time=time), network=network
        )

    async def _write(self, transaction: Callable[[Repository, float], T], *, network: str = "") -> T:
        return await self._store.write(lambda repo: transaction(repo, self._clock.now(repo)), network=network)

    async def _read(self, transaction: Callable[[Repository, float], T]) -> T:
        return await self._store.query(lambda repo: transaction(repo, self._clock.now(repo)))


def _parse_limit(text: str | None, *, maximum: int) -> int:
    if text is None:
        return 100
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= maximum):
        raise Invalid(f"limit {text}: must be from 1 to {maximum}", field="limit")
    return int(text)
