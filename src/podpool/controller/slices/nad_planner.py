"""Plans which slice tables the cluster's NADs need, and reports NADs that are rejected."""

from contextlib import suppress

from podpool.api.whereabouts import NETWORK_ANNOTATION, NodeSlicePool
from podpool.controller.deps import SliceDeps
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, find_prefix
from podpool.core.slice_table import SliceLayout, parse_slice_size
from podpool.whereabouts.ippool_identity import KnownNames
from podpool.whereabouts.nad import ParsedNad, parse_nad, suggest_slice_size
from podpool.whereabouts.network_plan import NadRejection, NetworkPlan, SliceTableKey, plan_networks
from podpool.whereabouts.object_names import PoolIdentifier


class NADPlanner:
    """Holds the plan of all NADs as of the last call of `replan`."""

    def __init__(self, deps: SliceDeps) -> None:
        self._deps = deps
        self._nads = deps.informers.nads
        self.plan = NetworkPlan()
        self.ready = False
        """Whether there is a plan."""
        self._network_names: frozenset[str] = frozenset()
        """Names of all networks, with slices or not."""

    def replan(self) -> NetworkPlan:
        """Plan from the current NADs, and report those that are rejected."""
        parsed: list[ParsedNad] = []
        invalid: list[NadRejection] = []
        for nad in self._nads.values():
            try:
                result = parse_nad(nad, flat=self._deps.settings.flat_file)
            except InvalidInput as error:
                invalid.append(NadRejection(rejected=nad.key, nads=(nad.key,), reason=str(error)))
                continue
            if result:
                parsed.append(result)
        slice_pools = self._deps.informers.slice_pools.cache.values()
        published = {pool.metadata.name: key for pool in slice_pools if (key := table_key(pool))}
        subnets = self._deps.subnet_ranges.all()
        self.plan, self.ready = plan_networks(parsed, published=published, subnets=subnets), True
        self._network_names = frozenset(each.config.network_name for each in parsed)
        for rejection in (*invalid, *self.plan.rejections):
            for involved in filter(None, map(self._nads.get, rejection.nads)):
                self._deps.events.nad_rejected(involved, rejection)
        for each in parsed:
            self._suggest_size(each)
            for source in filter(None, [self._nads.get(each.key)] if each.config.unknown_keys else ()):
                self._deps.events.unknown_keys(source, each.config.unknown_keys)
        return self.plan

    def known_names(self, *networks: str) -> KnownNames:
        """Return the names that pool names may contain, with networks that no NAD has any more."""
        return KnownNames(nodes=set(self._deps.nodes), networks={*networks, *self._network_names})

    def refused_ranges(self, network: str) -> list[Prefix]:
        """Return shared ranges from which nothing new is allocated, because they overlap a subnet of the ledger."""
        return [] if network else list(self.plan.refused_ranges)

    def layouts(self, network: str) -> list[SliceLayout]:
        """Return the slice tables of a network, also those that only NodeSlicePools show."""
        planned = [table.layout for table in self.plan.tables if table.key.network == network]
        for pool in self._deps.informers.slice_pools.cache.values():
            key = table_key(pool)
            if key and key.network == network:
                with suppress(InvalidInput):
                    planned.append(parse_slice_size(pool.spec.slice_size, of=key.range))
        return planned

    def is_slice(self, identifier: PoolIdentifier) -> bool:
        """Return whether a range is part of a range with slices in its network."""
        keys = (table.key for table in self.plan.tables if table.key.network == identifier.network)
        return any(key.range != identifier.range and key.range.range.overlaps(identifier.range.range) for key in keys)

    def _suggest_size(self, parsed: ParsedNad) -> None:
        """Report a NAD that has fast_ipam but no slice size, with a size that fits."""
        nad, config, count = self._nads.get(parsed.key), parsed.config, len(self._deps.nodes)
        if nad is None or not config.fast_ipam or config.sliced or not config.ranges:
            return
        try:
            size = suggest_slice_size(config.ranges[0], nodes=count)
        except InvalidInput as error:
            self._deps.events.slice_size_missing(nad, f"no size fits: {error}")
        else:
            self._deps.events.slice_size_missing(nad, f'set "node_slice_size": "{size}", which fits {count} nodes')


def table_key(pool: NodeSlicePool) -> SliceTableKey | None:
    """Return the slice table that a NodeSlicePool shows; None if podpool did not write it, or it is invalid."""
    network, range_ = pool.metadata.annotations.get(NETWORK_ANNOTATION), find_prefix(pool.spec.range)
    return None if network is None or range_ is None else SliceTableKey(network, range_)
