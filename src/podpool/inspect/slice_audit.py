"""Audit of slices: one owner of each, NodeSlicePools that list them, and IPPools of nodes that have them. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from podpool.api.whereabouts import NETWORK_ANNOTATION, NODE_ANNOTATION, NodeSlicePool
from podpool.core.ranges import Prefix, find_prefix, overlapping_pairs
from podpool.inspect.audit_snapshot import AuditSnapshot
from podpool.inspect.ledger_comparison import CONSENT, CONTAINMENT, ONE_OWNER, AuditFinding
from podpool.inspect.node_slices import NodeSlice, NodeSliceState, slices_of_nodes
from podpool.inspect.secondary_networks import is_slice_of, networks_of
from podpool.whereabouts.ippool_identity import KnownNames, slices_in_use

DRAIN = "Drain one of the two nodes: its agent returns a slice that is to be returned when nothing in it is in use."


class _Owned(msgspec.Struct, frozen=True, kw_only=True):
    """A slice and its owner."""

    prefix: Prefix
    node: str
    former: bool = False
    """Of an earlier Node of this name."""
    state: str = ""

    def __str__(self) -> str:
        return f"{self.prefix} of {'former ' * self.former}node {self.node}"


def audit_slices(snapshot: AuditSnapshot) -> Iterator[AuditFinding]:
    """Check one snapshot."""
    slices = slices_of_nodes(snapshot.node_slices)
    owned = _owned(snapshot, slices)
    for network, each in owned.items():
        yield from _overlaps(network, each)
    for pool in snapshot.node_slice_pools:
        yield from _taken_rows(pool, [each for network in networks_of(pool) for each in owned.get(network, ())])
        yield from _unlisted(pool, slices)
    yield from _pools_without_slice(snapshot, slices)


def _owned(snapshot: AuditSnapshot, slices: Sequence[NodeSlice]) -> dict[str, list[_Owned]]:
    """Return by network what belongs to nodes: in their NodeSlices, or in use by a Whereabouts plugin."""
    found: defaultdict[str, list[_Owned]] = defaultdict(list)
    for each in slices:
        if prefix := find_prefix(each.slice):
            former = each.state is NodeSliceState.FORMER
            found[each.network].append(_Owned(prefix=prefix, node=each.node, former=former, state=each.state))
    known = KnownNames(
        nodes=frozenset(each.metadata.name for each in snapshot.nodes),
        networks=frozenset(each.config.network_name for each in snapshot.nads) - {""},
    )
    for network, in_use in slices_in_use(snapshot.pools, known=known).items():
        listed = {(each.prefix, each.node) for each in found[network]}
        pools = (held for held in in_use if (held.slice, held.node) not in listed)
        found[network] += [_Owned(prefix=held.slice, node=held.node, state="in its IPPool") for held in pools]
    return found


def _overlaps(network: str, owned: Sequence[_Owned]) -> Iterator[AuditFinding]:
    """One owner: no slices of two nodes overlap."""
    ordered = sorted(owned, key=lambda one: (one.prefix.range, one.node, one.former))
    for last, each in overlapping_pairs(ordered, lambda one: one.prefix.range):
        if (last.node, last.former) != (each.node, each.former):
            where = f"network {network}" if network else "the unnamed network"
            message = f"in {where}, slice {each} ({each.state}) overlaps slice {last} ({last.state})"
            yield AuditFinding(ONE_OWNER, "slices-overlap", f"nodeslices/{each.node}", message, DRAIN)


def _taken_rows(pool: NodeSlicePool, owned: Sequence[_Owned]) -> Iterator[AuditFinding]:
    """Consent: no slice is listed for a node while another may use it."""
    for row in (each for each in pool.status.allocations if each.node_name):
        given = find_prefix(row.slice_range)
        for each in owned:
            if given and each.node != row.node_name and given.range.overlaps(each.prefix.range):
                message = f"slice {row.slice_range} of {row.node_name} is still held by {each.node}"
                yield AuditFinding(CONSENT, "slice-shared", _subject(pool), message)


def _unlisted(pool: NodeSlicePool, slices: Sequence[NodeSlice]) -> Iterator[AuditFinding]:
    """A NodeSlicePool lists every slice that is assigned, and no other of a node that has a NodeSlices."""
    listed = {(each.node_name, each.slice_range) for each in pool.status.allocations if each.node_name}
    nodes = {each.node for each in slices}
    own = [each for each in slices if is_slice_of(each, pool)]
    lasting = (NodeSliceState.ASSIGNED, NodeSliceState.HELD, NodeSliceState.IN_USE, NodeSliceState.SUSPENDED)
    missing = sorted({(each.node, each.slice) for each in own if each.state in lasting} - listed)
    surplus = sorted(row for row in listed - {(each.node, each.slice) for each in own} if row[0] in nodes)
    action = "Check that the controller runs: it writes the NodeSlicePool from the NodeSlices."
    for node, slice_ in missing:
        message = f"slice {slice_} is assigned to {node}, but not listed"
        yield AuditFinding(CONSENT, "slice-row-differs", _subject(pool), message, action)
    for node, slice_ in surplus:
        message = f"slice {slice_} is listed for {node}, but not assigned to it"
        yield AuditFinding(CONSENT, "slice-row-differs", _subject(pool), message, action)


def _pools_without_slice(snapshot: AuditSnapshot, slices: Sequence[NodeSlice]) -> Iterator[AuditFinding]:
    """Containment: addresses that a node's IPPool lists are in a slice of that node."""
    owned = {(each.network, each.node, each.slice) for each in slices}
    for pool in snapshot.pools:
        notes = pool.metadata.annotations
        node, network = notes.get(NODE_ANNOTATION), notes.get(NETWORK_ANNOTATION, "")
        if node and pool.spec.allocations and (network, node, pool.spec.range) not in owned:
            count = len(pool.spec.allocations)
            message = f"it lists {count} addresses of {pool.spec.range}, which is not a slice of node {node}"
            yield AuditFinding(CONTAINMENT, "pool-without-slice", f"ippool/{pool.metadata.name}", message)


def _subject(pool: NodeSlicePool) -> str:
    return f"nodeslicepool/{pool.metadata.name}"
