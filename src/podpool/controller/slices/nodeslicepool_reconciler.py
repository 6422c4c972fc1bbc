"""The tables of one network: who has which slice, published as NodeSlicePools, and offered.

What must hold: a table is made of what is there now, and nothing is begun for a slice from the moment that it is
another's. What a node may be using is told by claims, never by a table: that only says who is to have what is free, and
who waits, longest waiting first, which a new leader reads where the last one wrote it.

A NodeSlicePool is written before the slices in it are offered, so that whoever leads next goes on with the same ones.
Before that the pools that all nodes share are shut: slices with addresses that somebody has from those are nobody's.

A claim that a table foresaw is no news to it, or each of thousands of nodes that join would have everything decided on
anew, several times.
"""

import logging
from collections.abc import Collection, Iterable

from podpool.api.builtin import Node
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.whereabouts import NODE_SLICE_POOLS, NodeSlicePool
from podpool.controller.metrics import SliceMetrics
from podpool.controller.slices.deps import SliceDeps
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.nad_planner import NADPlanner, key_of
from podpool.controller.slices.objects import DesiredSlice, kept_back, shortage, shown_table, shows, waiting_in
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership, undisputed
from podpool.controller.slices.shared_pool_seal import SharedPoolSeal
from podpool.controller.slices.slice_reconciler import SliceReconciler
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix
from podpool.whereabouts.ippool_owner import allocated_in_shared_pools, slices_in_use
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice, LiveNode, SliceAssignment, assign_slices, read_assignment

_log = logging.getLogger(__name__)


class NodeSlicePoolReconciler:
    """Brings the tables of one network in step, by its name."""

    def __init__(
        self,
        ground: SliceDeps,
        plans: NADPlanner,
        claims: SliceOwnership,
        offers: SliceReconciler,
        *,
        shared: SharedPoolSeal,
        shown: WriteThroughCache[NodeSlicePool],
    ) -> None:
        self._ground = ground
        self._kube = ground.kube
        self._plans = plans
        self._claims = claims
        self._offers = offers
        self._shared = shared
        self._shown = shown
        self._tables: dict[SliceTableKey, SliceAssignment] = {}
        self._contested: set[str] = set()
        """The networks in which claims share addresses, and it matters how much each weighs."""

    def meters(self) -> dict[tuple[str, str], SliceMetrics]:
        """Tell how each table is, by its network and range."""
        return {
            (key.network, str(key.range)): SliceMetrics(
                held=len(table.assigned),
                nodes_waiting=len(table.waiting),
                moving=len(table.outdated),
                disputed=len(table.conflicts),
            )
            for key, table in self._tables.items()
        }

    def foresaw(self, claim: OwnedSlice) -> bool:
        """Tell whether a claim is as the tables have it, so that they would be the same with it and without."""
        return claim.network not in self._contested and self._has(claim.network, claim.holding(None))

    async def reconcile(self, network: str) -> bool:
        """Decide anew who has which slice, write it down, and have it offered, unless something came in between."""
        networks = self._plans.networks
        plans = self._planned(network)
        await self._shared.shut(network, self._cut(network))
        claims = self._claims.of_network(network)
        kept = undisputed(claims)
        nodes, in_use = self._joined(network), self._in_use(network, kept)
        names = {plan.key: [name for name, key in networks.slice_pools.items() if key == plan.key] for plan in plans}
        tables = {
            plan.key: assign_slices(
                plan,
                nodes=[LiveNode(node.metadata.name, node.metadata.uid) for node in nodes.values()],
                in_use=in_use,
                previous=self._before(plan, names[plan.key]),
            )
            for plan in plans
        }
        offers = {offer.place.name: offer for key, table in tables.items() for offer in _offers(key, table, nodes)}
        self._offers.drop(network, offers)
        for plan in plans:
            self._tell(plan, tables[plan.key], self._tables.get(plan.key), nodes)
        self._tables |= tables
        self._contested.discard(network)
        if len(kept) < len(claims) or any(table.conflicts for table in tables.values()):
            self._contested.add(network)
        for key, table in tables.items():
            for name in names[key]:
                await self._publish(name, key, table)
        if not self._still(network, in_use):
            return False
        self._offers.want(network, offers)
        await self._shared.open(network, but=self._cut(network))
        await self._clear(network, tables)
        return True

    def _planned(self, network: str) -> list[SliceTablePlan]:
        return [plan for plan in self._plans.networks.tables if plan.key.network == network]

    def _cut(self, network: str) -> list[Prefix]:
        """List the ranges of which nodes have slices, or are to have some."""
        planned = (plan.key.range for plan in self._planned(network))
        claimed = (range_ for claim in self._claims.of_network(network) for range_ in (claim.range, claim.slice))
        return _widest((*planned, *claimed))

    def _still(self, network: str, in_use: Collection[HeldSlice]) -> bool:
        """Tell whether what was in use is, and nothing else but what the tables have."""
        now, before = set(self._in_use(network, undisputed(self._claims.of_network(network)))), set(in_use)
        return before <= now and all(self._has(network, each) for each in now - before)

    def _has(self, network: str, holding: HeldSlice) -> bool:
        node = self._ground.nodes.get(holding.node)
        if node is None or node.metadata.uid != holding.uid:
            return False
        tables = (table for key, table in self._tables.items() if key.network == network)
        return any(table.assigned.get(holding.node) == holding.slice for table in tables)

    def _joined(self, network: str) -> dict[str, Node]:
        """List the Nodes in the order in which they joined; not those of which it is still to be told who they are."""
        there = sorted(
            self._ground.nodes.values(), key=lambda node: (node.metadata.creation_timestamp or "", node.metadata.name)
        )
        return {node.metadata.name: node for node in there if node.boot_id or not self._is_back(node, network)}

    def _is_back(self, node: Node, network: str) -> bool:
        """Tell whether an earlier Node of this name has a slice that its machine may be using."""
        return any(
            claim.boot and claim.network == network and claim.uid != node.metadata.uid
            for claim in self._claims.of_node(node.metadata.name)
        )

    def _in_use(self, network: str, claims: Iterable[OwnedSlice]) -> list[HeldSlice]:
        """List what may be in use: what is claimed, and what others have taken."""
        nodes = self._ground.nodes
        ours = [claim.holding(nodes.get(claim.node)) for claim in claims]
        if not self._claims.strangers:
            return ours
        theirs = slices_in_use(self._claims.strangers.values(), leased=(), known=self._plans.known(network))
        shared = self._shared.of(network, [plan.key.range for plan in self._planned(network)])
        return [*ours, *theirs.get(network, ()), *allocated_in_shared_pools(shared)]

    def _before(self, plan: SliceTablePlan, names: Collection[str]) -> SliceAssignment | None:
        """Find the table as it was: the last one, or what a NodeSlicePool shows, perhaps of another range or size."""
        shown = next((pool for name in names if (pool := self._shown.get(name))), None)
        if plan.key in self._tables or shown is None:
            return self._tables.get(plan.key)
        return read_assignment(shown, plan.layout, waiting=waiting_in(shown))

    async def _publish(self, name: str, key: SliceTableKey, table: SliceAssignment) -> None:
        """Have a NodeSlicePool show a table."""
        pool, namespace = self._shown.get(name), self._ground.namespace
        wanted = shown_table(key, table, before=pool, now=self._ground.clock.wall())
        if pool is None:
            notes = {each: value for each, value in wanted["metadata"]["annotations"].items() if value is not None}
            meta = {"name": name, "namespace": namespace, "annotations": notes}
            self._shown.note(await self._kube.create(NODE_SLICE_POOLS, {**wanted, "metadata": meta}))
        elif not shows(pool, wanted):
            version = pool.metadata.resource_version
            self._shown.note(
                await self._kube.merge_patch(NODE_SLICE_POOLS, name, wanted, namespace=namespace, precondition=version)
            )

    async def _clear(self, network: str, tables: Collection[SliceTableKey]) -> None:
        """Forget the tables that nobody asks for; their NodeSlicePools stay for as long as a node has a slice."""
        for key in [each for each in self._tables if each.network == network and each not in tables]:
            del self._tables[key]
        slices = [claim.slice for claim in self._claims.of_network(network)]
        for shown in self._ground.mirrors.tables.cache.values():
            was = key_of(shown)
            if was is None or was.network != network or shown.metadata.name in self._plans.networks.slice_pools:
                continue
            if not any(was.range.range.overlaps(each.range) for each in slices):
                await self._shown.end(self._kube, shown)

    def _tell(
        self, plan: SliceTablePlan, table: SliceAssignment, before: SliceAssignment | None, nodes: dict[str, Node]
    ) -> None:
        """Say who waits, and who shares addresses, when that is news."""
        waited = before.waiting if before else ()
        if table.waiting and table.waiting != waited:
            for definition in self._definitions(plan):
                self._ground.telling.short(definition, shortage(plan.key, table))
            for name in [each for each in table.waiting if each not in waited]:
                self._ground.telling.waits(nodes[name], plan.key)
        if table.withheld > (before.withheld if before else 0):
            for definition in self._definitions(plan):
                self._ground.telling.kept_back(definition, kept_back(plan.key, table))
        if before is None or table.conflicts != before.conflicts:
            for one, other in table.conflicts:
                self._say_disputed(plan.key, one, other)
                self._say_disputed(plan.key, other, one)

    def _definitions(self, plan: SliceTablePlan) -> list[NetworkAttachmentDefinition]:
        return list(filter(None, map(self._ground.mirrors.attachments.get, plan.nads)))

    def _say_disputed(self, key: SliceTableKey, one: HeldSlice, other: HeldSlice) -> None:
        names = [PoolIdentifier(range=each.slice, network=key.network, node=each.node).name for each in (one, other)]
        pool = self._claims.pools.get(names[0]) if one.node else None
        if pool is not None:
            shared = f"{other.slice.at(0)} in a pool that all nodes share"
            self._ground.telling.disputed(pool, names[1] if other.node else shared)


def _offers(key: SliceTableKey, table: SliceAssignment, nodes: dict[str, Node]) -> list[DesiredSlice]:
    """Write down what a table gives to whom; a node whose name leaves no room for a pool's gets nothing."""
    disputed = {(each.slice, each.node) for pair in table.conflicts for each in pair}
    offers = (
        DesiredSlice(
            place=PoolIdentifier(range=slice_, network=key.network, node=node),
            uid=nodes[node].metadata.uid,
            range=key.range,
            leave=_why(table, slice_),
            disputed=(slice_, node) in disputed,
        )
        for node, slice_ in table.assigned.items()
    )
    return [offer for offer in offers if _can_be_named(offer.place)]


def _widest(ranges: Iterable[Prefix]) -> list[Prefix]:
    """Leave out what is within another: slices within their range."""
    widest: list[Prefix] = []
    for each in sorted(set(ranges)):
        if not widest or not widest[-1].range.overlaps(each.range):
            widest.append(each)
    return widest


def _can_be_named(place: PoolIdentifier) -> bool:
    try:
        return bool(place.name)
    except InvalidInput as error:
        _log.warning("node %s gets no slice: %s", place.node, error)
        return False


def _why(table: SliceAssignment, slice_: Prefix) -> str:
    """Say why a slice is asked back; nothing when it fits."""
    return "" if table.layout.contains(slice_) else f"{table.layout.range} is cut into slices of /{table.layout.length} now"
