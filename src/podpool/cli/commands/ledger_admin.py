"""`podpool ledger`: manage subnets, tokens, clusters, history and recovery of a running ledger."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from podpool.cli.context import LedgerContext
from podpool.cli.output import TextTable
from podpool.cli.state_tables import history_table
from podpool.controller.settings import parse_subnet
from podpool.core.quantities import parse_count, parse_duration, show_share
from podpool.core.settings import parse_settings
from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m

T = TypeVar("T")
Parts = Iterable[TextTable | str]


def _show(context: LedgerContext, result: T, render: Callable[[T], Parts]) -> None:
    context.printer.result(result, *render(result))


async def subnet_create(
    context: LedgerContext, *, network_subnet: str, cidr: str, gateway: str, exclude: str, settings: str
) -> None:
    """Create a subnet, unless an equal one exists."""
    name, excluded = _subnet(network_subnet), _split(exclude)
    spec = m.SubnetSpec(
        network=name.network, name=name.name, cidr=cidr, gateway=gateway or None, excluded_ranges=excluded
    )
    _show(context, await context.client.create_subnet(spec.with_settings(parse_settings(settings))), _subnet_line)


async def subnet_list(context: LedgerContext) -> None:
    """List all subnets."""
    _show(context, await context.client.subnets(), _subnet_table)


async def subnet_show(context: LedgerContext, *, network_subnet: str) -> None:
    """Show a subnet and the clusters that hold its addresses."""
    _show(context, await context.client.details(_subnet(network_subnet)), _details)


async def subnet_grow(context: LedgerContext, *, network_subnet: str, cidr: str, exclude: str) -> None:
    """Extend a subnet."""
    growth = m.SubnetGrowth(cidr=cidr, excluded_ranges=_split(exclude))
    _show(context, await context.client.grow_subnet(_subnet(network_subnet), growth), _subnet_line)


async def subnet_drain(context: LedgerContext, *, network_subnet: str) -> None:
    """Stop granting addresses of a subnet."""
    _show(context, await context.client.drain_subnet(_subnet(network_subnet)), _subnet_line)


async def subnet_reopen(context: LedgerContext, *, network_subnet: str) -> None:
    """Resume granting addresses of a subnet."""
    _show(context, await context.client.reopen_subnet(_subnet(network_subnet)), _subnet_line)


async def subnet_delete(context: LedgerContext, *, network_subnet: str) -> None:
    """Delete an empty subnet."""
    _show(context, await context.client.delete_subnet(_subnet(network_subnet)), lambda gone: [f"{gone.subnet} deleted"])


async def token_create(  # noqa: PLR0913  one for each option
    context: LedgerContext,
    *,
    name: str,
    cluster: str,
    admin: bool,
    allow: str,
    expires_in: str,
    max_addresses: str,
    max_network_containers: str,
    priority: str,
) -> None:
    """Create a token and print nothing but its secret, for a file."""
    scope, lifetime = _split(allow) or None, _lifetime(expires_in)
    limits = _limits(m.TokenLimits(), max_addresses, max_network_containers, priority)
    of_cluster = cluster or None
    new = f.CreateTokenRequest(
        name=name, cluster=of_cluster, admin=admin, scope=scope, lifetime=lifetime, limits=limits
    )
    _show(context, await context.client.create_token(new), _secret)


async def token_rotate(  # noqa: PLR0913  one for each option
    context: LedgerContext,
    *,
    name: str,
    overlap: str,
    allow: str,
    expires_in: str,
    max_addresses: str,
    max_network_containers: str,
    priority: str,
) -> None:
    """Create a token like another one, and print nothing but its secret, for a file."""
    scope, lifetime = _split(allow) or None, _lifetime(expires_in)
    limits = None
    if max_addresses or max_network_containers or priority:
        found = [each for each in (await context.client.tokens()).tokens if name in (each.name, each.id)]
        former = max(found, key=lambda each: each.created_at).limits if found else m.TokenLimits()
        limits = _limits(former, max_addresses, max_network_containers, priority)
    request = f.RotateTokenRequest(
        overlap=parse_duration(overlap, what="--overlap"), scope=scope, lifetime=lifetime, limits=limits
    )
    _show(context, await context.client.rotate_token(name, request), _secret)


async def token_list(context: LedgerContext) -> None:
    """List all tokens."""

    def render(found: f.TokenList) -> Parts:
        rows = [
            (
                *(each.name, _role(each), _token_state(each), each.expires_at or "never", _scope(each)),
                *(_shown_limits(each.limits), each.id, each.created_at),
            )
            for each in found.tokens
        ]
        return [TextTable(("NAME", "CLUSTER", "STATE", "EXPIRES", "SCOPE", "LIMITS", "ID", "CREATED"), rows, wide=1)]

    _show(context, await context.client.tokens(), render)


async def token_revoke(context: LedgerContext, *, name: str) -> None:
    """Revoke a token."""
    _show(context, await context.client.revoke_token(name), lambda token: [f"{token.name} revoked"])


async def audit_log(context: LedgerContext, *, limit: str) -> None:
    """List the latest administrative calls."""

    def render(found: f.AuditLog) -> Parts:
        rows = [
            (each.at, each.token, each.action, each.object or "-", each.result, each.token_id) for each in found.entries
        ]
        return [TextTable(("AT", "TOKEN", "ACTION", "OBJECT", "RESULT", "TOKEN-ID"), rows, wide=1)]

    _show(context, await context.client.audit_log(limit=parse_count(limit, what="--limit")), render)


async def cluster_list(context: LedgerContext) -> None:
    """List all clusters."""
    _show(context, await context.client.clusters(), _clusters)


async def cluster_retire(context: LedgerContext, *, cluster: str) -> None:
    """Release everything that a destroyed cluster held."""

    def render(done: f.RetiredCluster) -> Parts:
        released = f"{done.network_containers} network containers closed, {done.addresses} addresses cooling down"
        return [f"{released}, {done.tokens} tokens revoked"]

    _show(context, await context.client.retire(cluster), render)


async def cluster_confirm_loss(context: LedgerContext, *, cluster: str) -> None:
    """Confirm a mass loss of nodes."""
    _show(context, await context.client.confirm_loss(cluster), _clusters)


async def history_address(context: LedgerContext, *, address: str, at: str, cluster: str) -> None:
    """Show the past owners of an address."""
    _show(context, await context.client.history(address=address, at=at, cluster=cluster), _history)


async def history_node(context: LedgerContext, *, node: str, at: str, cluster: str) -> None:
    """Show the past addresses of a node."""
    _show(context, await context.client.history(node=node, at=at, cluster=cluster), _history)


async def history_pod(context: LedgerContext, *, pod: str, at: str, cluster: str) -> None:
    """Show the past addresses of a Pod; without a namespace, of all Pods with that name."""
    namespace, _, name = pod.rpartition("/")
    _show(context, await context.client.pod_history(name, namespace=namespace, at=at, cluster=cluster), _history)


async def recovery_status(context: LedgerContext) -> None:
    """Show awaited inventories and addresses with two owners."""
    _show(context, await context.client.recovery(), _recovery)


async def recovery_excuse(context: LedgerContext, *, cluster: str) -> None:
    """Stop waiting for a cluster's inventory."""
    _show(context, await context.client.excuse(cluster), _recovery)


async def recovery_resolve(context: LedgerContext, *, network_subnet: str, address: str, nc: str) -> None:
    """Assign an address with two owners to one of them."""
    decision = m.ResolveConflictRequest(subnet=_subnet(network_subnet), address=address, nc_id=nc)
    _show(context, await context.client.resolve_conflict(decision), _recovery)


def _subnet(text: str) -> m.SubnetName:
    return parse_subnet(text, what="NETWORK.SUBNET")


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _subnet_line(state: m.SubnetState) -> list[str]:
    cidrs = ", ".join((state.cidr, *state.additional_cidrs))
    conditions = "".join(f"; {word}" for word in _conditions(state))
    return [f"{state.subnet}: {cidrs} with {state.capacity} addresses, {state.reserved} of them reserved{conditions}"]


def _conditions(state: m.SubnetState) -> list[str]:
    full = ["full"] if state.waiting else []
    return full + [word for word in ("exhausted", "frozen", "draining") if getattr(state, word)]


def _subnet_table(found: m.SubnetList) -> Parts:
    rows = [
        (
            *(each.subnet, each.cidr, each.capacity, each.reserved, each.cooling_down, each.waiting, _scaler(each)),
            *(_state(",".join(_conditions(each))), each.projected, each.excluded, each.gateway or "-"),
        )
        for each in found.subnets
    ]
    head = ("SUBNET", "CIDR", "CAPACITY", "RESERVED", "COOLING", "WAITING", "BATCH/BUFFER", "STATE")
    return [TextTable((*head, "PROJECTED", "EXCLUDED", "GATEWAY"), rows, wide=3)]


def _state(words: str) -> str:
    return words or "ok"


def _scaler(state: m.SubnetState) -> str:
    return f"{state.scaler.batch}/{show_share(state.scaler.buffer)}"


def _details(found: f.SubnetDetails) -> Parts:
    state = found.state
    lines = [
        *_subnet_line(state),
        f"gateway {state.gateway or 'none'}, excluded {state.excluded}",
        f"reserved for primaries {state.reserved_for_primaries}",
        f"cooling down {state.cooling_down}, waiting {state.waiting}, waiting for buffer {state.waiting_for_buffer}",
        f"projected {state.projected}",
        f"batch and buffer {_scaler(state)}, cooldown in force {state.cooldown:g} s",
    ]
    rows = [
        (each.cluster, each.network_containers, each.held, each.waiting, each.waiting_for_buffer)
        for each in found.clusters
    ]
    return [*lines, TextTable(("CLUSTER", "NCS", "HELD", "WAITING", "WAITING-BUFFER"), rows)] if rows else lines


def _secret(token: f.TokenInfo) -> list[str]:
    return [token.secret or ""]


def _lifetime(text: str) -> float | None:
    return parse_duration(text, what="--expires-in") if text else None


def _limits(former: m.TokenLimits, addresses: str, ncs: str, priority: str) -> m.TokenLimits:
    """Return limits with those that an option sets."""
    return m.TokenLimits(
        max_addresses=_quota(addresses, former.max_addresses, what="--max-addresses"),
        max_network_containers=_quota(ncs, former.max_network_containers, what="--max-network-containers"),
        priority=parse_count(priority, what="--priority") if priority else former.priority,
    )


def _quota(text: str, former: int | None, *, what: str) -> int | None:
    if text == "unlimited":
        return None
    return parse_count(text, what=what) if text else former


def _shown_limits(limits: m.TokenLimits) -> str:
    words = [f"{limits.max_addresses} addresses"] if limits.max_addresses is not None else []
    words += [f"{limits.max_network_containers} NCs"] if limits.max_network_containers is not None else []
    words += [f"priority {limits.priority}"] if limits.priority != 1 else []
    return ", ".join(words) or "none"


def _token_state(token: f.TokenInfo) -> str:
    return _state("revoked" * token.revoked + "expired" * token.expired)


def _scope(token: f.TokenInfo) -> str:
    return "all" if token.scope is None else ",".join(token.scope)


def _role(token: f.TokenInfo) -> str:
    return "admin" if token.admin else token.cluster or "(first user)"


def _clusters(found: f.ClusterList) -> Parts:
    rows = [
        (each.id, each.network, each.network_containers, _cluster_state(each), each.term, ", ".join(each.tokens))
        for each in found.clusters
    ]
    return [TextTable(("CLUSTER", "NETWORK", "NCS", "STATE", "TERM", "TOKENS"), rows, wide=2)]


def _cluster_state(cluster: f.ClusterSummary) -> str:
    words = [f"mass loss unconfirmed since {cluster.breaker_open_since}"] if cluster.breaker_open_since else []
    return _state(", ".join([*words, *["inventory awaited"] * cluster.inventory_pending]))


def _history(found: f.AddressHistory) -> Parts:
    if not (found.periods or found.pod_usages):
        return [f"no records; history is kept for {found.retention_seconds / 3600:g} h"]
    return [history_table(found.periods, found.pod_usages)]


def _recovery(state: m.RecoveryStatus) -> Parts:
    awaited = [f"{each.subnet}: inventory awaited of cluster {each.cluster}" for each in state.pending_inventories]
    conflicts = [
        f"{each.address} of {each.subnet} has two owners: network containers {each.holder} and {each.claimant}"
        for each in state.conflicts
    ]
    return [*awaited, *conflicts] or ["no recovery in progress"]
