"""Live model of one cluster, derived from informer caches: snapshots, and deltas since the last refresh.

A refresh recomputes only nodes whose objects changed, so its cost depends on the changes and not on the cluster size.
The caches may be filled by informers or by tests.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

import msgspec

from podpool.api.azure import ClusterSubnet, NodeNetworkConfig
from podpool.api.builtin import Event, Node
from podpool.api.meta import KeyedObject
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.node_slices import NodeSlices
from podpool.api.whereabouts import IPPool, NodeSlicePool, waiting_nodes
from podpool.inspect import view_models as views
from podpool.inspect.activity import Activity, activity_of, headline, node_activity, subnet_activity
from podpool.inspect.forecast import Forecast, SubnetSample, SubnetTimeSeries
from podpool.inspect.node_slices import slices_of
from podpool.inspect.secondary_networks import Network, NetworkView, read_networks
from podpool.kube.cache import ObjectCache
from podpool.ledger.messages import SubnetSpec, SubnetState

MAX_ACTIVITY = 200
SAMPLE_INTERVAL = 1.0
"""Seconds between two samples at first."""
WAITING_AFTER = 3.0
"""Seconds after which a Pod without an address counts as waiting; before that it is starting."""
PUBLISH_DELAY = 5.0
"""Seconds in which a grant appears in its NodeNetworkConfig."""
_MANY = 5
"""More nodes than this with the same change are counted instead of listed."""


class ClusterCaches(msgspec.Struct, frozen=True, kw_only=True):
    """The caches of the model; empty by default."""

    nodes: ObjectCache[Node] = msgspec.field(default_factory=ObjectCache)
    nncs: ObjectCache[NodeNetworkConfig] = msgspec.field(default_factory=ObjectCache)
    pods: ObjectCache[views.InspectedPod] = msgspec.field(default_factory=ObjectCache)
    pools: ObjectCache[IPPool] = msgspec.field(default_factory=ObjectCache)
    node_slice_pools: ObjectCache[NodeSlicePool] = msgspec.field(default_factory=ObjectCache)
    node_slices: ObjectCache[NodeSlices] = msgspec.field(default_factory=ObjectCache)
    nads: ObjectCache[NetworkAttachmentDefinition] = msgspec.field(default_factory=ObjectCache)
    events: ObjectCache[Event] = msgspec.field(default_factory=ObjectCache)
    cluster_subnets: ObjectCache[ClusterSubnet] = msgspec.field(default_factory=ObjectCache)

    @property
    def slices_only(self) -> bool:
        """Whether podpool serves only secondary networks here: the cluster has some, and nothing of a ledger."""
        of_ledger = len(self.nncs) + len(self.cluster_subnets)
        return not of_ledger and bool(self.nads or self.node_slice_pools or self.node_slices or self.pools)


class ClusterDelta(views.ViewModel, frozen=True, kw_only=True):
    """Changed views, and names of removed objects."""

    at: float
    headline: str = ""
    waiting: int = 0
    """Pods counted in the headline."""
    nodes_waiting: int = 0
    """Nodes that wait for a slice."""
    has_ledger: bool = False
    problems: Mapping[str, str] = {}
    subnets: tuple[views.SubnetView, ...] = ()
    removed_subnets: tuple[str, ...] = ()
    nodes: tuple[views.NodeView, ...] = ()
    removed_nodes: tuple[str, ...] = ()
    networks: tuple[NetworkView, ...] | None = None
    activity: tuple[Activity, ...] = ()
    samples: Mapping[str, SubnetSample] = {}
    forecasts: Mapping[str, Forecast] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return self == ClusterDelta(
            at=self.at,
            headline=self.headline,
            waiting=self.waiting,
            nodes_waiting=self.nodes_waiting,
            has_ledger=self.has_ledger,
            problems=self.problems,
        )


class ClusterSnapshot(views.ViewModel, frozen=True, kw_only=True):
    """The complete state."""

    at: float
    headline: str
    waiting: int
    nodes_waiting: int
    has_ledger: bool
    problems: Mapping[str, str]
    subnets: tuple[views.SubnetView, ...]
    nodes: tuple[views.NodeView, ...]
    networks: tuple[NetworkView, ...]
    activity: tuple[Activity, ...]
    series: Mapping[str, Sequence[SubnetSample]]
    forecasts: Mapping[str, Forecast]


class ClusterModel:
    """The model; `refresh` updates it. With a ledger, subnets come from it; None if the caches decide."""

    def __init__(self, caches: ClusterCaches, *, has_ledger: bool | None = True) -> None:
        self.caches = caches
        self._has_ledger = has_ledger
        self.problems: dict[str, str] = {}
        """Who cannot be reached, and why."""
        self.nodes: dict[str, views.NodeView] = {}
        self.subnets: dict[str, views.SubnetView] = {}
        self.networks: tuple[NetworkView, ...] = ()
        self.activity: tuple[Activity, ...] = ()
        self.series: dict[str, SubnetTimeSeries] = {}
        self.forecasts: dict[str, Forecast] = {}
        self.pods_of = caches.pods.index(lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self.pods_with = caches.pods.index(lambda pod: pod.addresses)
        self.nncs_with = caches.nncs.index(_addresses)
        self.short_of_slices = caches.node_slice_pools.index(waiting_nodes)
        """NodeSlicePools by the nodes that wait for a slice."""
        self._slice_pools_with = caches.node_slice_pools.index(_sliced_nodes)
        self._unpublished: dict[str, deque[tuple[float, int]]] = {}
        """What is reserved of each subnet and shown by no node, at the last refreshes."""
        self._subnet_states: dict[str, SubnetState] = {}
        self._definitions: dict[str, SubnetSpec] = {}
        self._changed_nodes: dict[str, None] = {}
        self._waiting_since: dict[str, float] = {}
        self._at = 0.0
        self._networks_changed = True
        self._new_activity: list[Activity] = []
        self._first_refresh = True
        self._follow(caches)

    def _follow(self, caches: ClusterCaches) -> None:
        caches.nodes.subscribe(lambda old, new: self._mark_node_changed(_name(old), _name(new)))
        caches.nncs.subscribe(lambda old, new: self._mark_node_changed(_name(old), _name(new)))
        caches.pods.subscribe(
            lambda old, new: self._mark_node_changed(*(each.spec.node_name for each in (old, new) if each))
        )
        caches.pools.subscribe(lambda _old, _new: self._mark_networks_changed())
        caches.node_slice_pools.subscribe(self._on_slice_pool)
        caches.node_slices.subscribe(self._on_node_slices)
        caches.events.subscribe(self._on_event)

    @property
    def has_ledger(self) -> bool:
        """Whether the cluster uses a ledger."""
        return not self.caches.slices_only if self._has_ledger is None else self._has_ledger

    @property
    def needs_no_ledger(self) -> bool:
        """Whether podpool serves only secondary networks here, and no ledger is configured."""
        return self._has_ledger is None and self.caches.slices_only

    def set_subnet(self, state: SubnetState, made: SubnetSpec | None = None) -> None:
        """Set a subnet's state from the ledger."""
        key = views.subnet_key(state.subnet.network, state.subnet.name)
        self._subnet_states[key] = state
        if made:
            self._definitions[key] = made

    def refresh_subnet(self, state: SubnetState) -> None:
        """Update the counters of a known subnet unless the known state is newer."""
        known = self._subnet_states.get(views.subnet_key(state.subnet.network, state.subnet.name))
        if known and known.revision <= state.revision:
            self.set_subnet(state)

    def drop_subnet(self, state: SubnetState) -> None:
        """Remove a subnet that the ledger no longer has."""
        for known in (self._subnet_states, self._definitions):
            known.pop(views.subnet_key(state.subnet.network, state.subnet.name), None)

    def knows(self, state: SubnetState) -> bool:
        """Return whether a subnet's definition is known."""
        return views.subnet_key(state.subnet.network, state.subnet.name) in self._definitions

    def refresh(self, *, at: float) -> ClusterDelta:
        """Update the model and return what changed since the last refresh."""
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        nodes, lost_nodes, activity = self._refresh_nodes(moment)
        self._at = at
        waiting = (name for name, node in self.nodes.items() if node.waiting)
        self._waiting_since = {name: min(at, self._waiting_since.get(name, at)) for name in waiting}
        subnets, lost_subnets = self._refresh_subnets(moment, at=at)
        networks = self._refresh_networks()
        samples = self._take_samples(at)
        forecasts = {name: self.series[name].trend() for name in samples}
        self.forecasts |= forecasts
        recent = _latest((*self._new_activity, *activity))
        self._new_activity = []
        self.activity = _latest((*self.activity, *recent))
        self._first_refresh = False
        return ClusterDelta(
            at=at,
            headline=self.headline,
            waiting=sum(each.waiting for each in self._nodes_with_waiting_pods()),
            nodes_waiting=self.nodes_waiting,
            has_ledger=self.has_ledger,
            problems=dict(self.problems),
            subnets=subnets,
            removed_subnets=lost_subnets,
            nodes=nodes,
            removed_nodes=lost_nodes,
            networks=networks,
            activity=recent,
            samples=samples,
            forecasts=forecasts,
        )

    def _take_samples(self, at: float) -> dict[str, SubnetSample]:
        return {
            name: sample
            for name, view in self.subnets.items()
            if (sample := self.series.setdefault(name, SubnetTimeSeries(step=SAMPLE_INTERVAL)).take(view, at=at))
        }

    def snapshot(self, *, at: float) -> ClusterSnapshot:
        """Return the complete state as of the last refresh."""
        return ClusterSnapshot(
            at=at,
            headline=self.headline,
            waiting=sum(each.waiting for each in self._nodes_with_waiting_pods()),
            nodes_waiting=self.nodes_waiting,
            has_ledger=self.has_ledger,
            problems=dict(self.problems),
            subnets=tuple(self.subnets.values()),
            nodes=tuple(self.nodes.values()),
            networks=self.networks,
            activity=self.activity,
            series={name: each.samples for name, each in self.series.items()},
            forecasts=self.forecasts,
        )

    @property
    def headline(self) -> str:
        """One sentence on the state of the cluster."""
        if not self.subnets and (self.has_ledger or not self.nodes):
            return "No data has been read yet."
        return headline(tuple(self.subnets.values()), self._nodes_with_waiting_pods(), self.networks)

    @property
    def nodes_waiting(self) -> int:
        """How many nodes wait for a slice of some network."""
        return len(list(self.short_of_slices))

    def read_networks(self) -> list[Network]:
        """Return every secondary network with all its slices."""
        caches = self.caches
        return read_networks(caches.node_slice_pools.values(), caches.pools.values(), caches.node_slices.values())

    def _nodes_with_waiting_pods(self) -> tuple[views.NodeView, ...]:
        """Nodes whose Pods have been waiting longer than a start takes."""
        long = (name for name, since in self._waiting_since.items() if self._at - since >= WAITING_AFTER)
        return tuple(self.nodes[name] for name in long if name in self.nodes)

    def _refresh_nodes(self, moment: str) -> tuple[tuple[views.NodeView, ...], tuple[str, ...], list[Activity]]:
        touched, self._changed_nodes = self._changed_nodes, {}
        changed: list[views.NodeView] = []
        lost: list[str] = []
        activity: list[Activity] = []
        for name in touched:
            before, after = self.nodes.get(name), self._node(name)
            if before == after:
                continue
            activity += node_activity(before, after, at=moment)
            if after is None:
                del self.nodes[name]
                lost.append(name)
            else:
                self.nodes[name] = after
                changed.append(after)
        return tuple(changed), tuple(lost), [] if self._first_refresh else _counted(activity)

    def _node(self, name: str) -> views.NodeView | None:
        node = self.caches.nodes.get(name)
        config = next(iter(self._nncs_of(name)), None)
        if node is None and config is None:
            return None
        view = views.node_view(name, config, self.pods_of.get(name), there=node is not None)
        own = self.caches.node_slices.get(name)
        wanted = tuple(sorted(each.metadata.name for each in self.short_of_slices.get(name)))
        slices = len(list(slices_of(own))) if own else len(self._slice_pools_with.get(name))
        return msgspec.structs.replace(view, slices=slices, without_slice=wanted)

    def _nncs_of(self, name: str) -> Iterable[NodeNetworkConfig]:
        found = (self.caches.nncs.get(key) for key in (f"kube-system/{name}", name))
        return (each for each in found if each)

    def _refresh_subnets(self, moment: str, *, at: float) -> tuple[tuple[views.SubnetView, ...], tuple[str, ...]]:
        seen = {view.name: self._without_unpublished(view, at=at) for view in self._subnet_views()}
        changed: list[views.SubnetView] = []
        for key, view in seen.items():
            before = self.subnets.get(key)
            if view == before:
                continue
            if before:
                self._new_activity += subnet_activity(before, view, at=moment)
            self.subnets[key] = view
            changed.append(view)
        lost = tuple(key for key in self.subnets if key not in seen)
        for each in lost:
            del self.subnets[each]
            for kept in (self.series, self.forecasts, self._unpublished):
                kept.pop(each, None)
        return tuple(changed), lost

    def _without_unpublished(self, view: views.SubnetView, *, at: float) -> views.SubnetView:
        """Separate other clusters' addresses from grants that are not published yet."""
        seen = self._unpublished.setdefault(view.name, deque())
        seen.append((at, view.other_clusters))
        while not at - PUBLISH_DELAY <= seen[0][0] <= at:  # or the clock was set back
            seen.popleft()
        others = min(count for _, count in seen)
        return msgspec.structs.replace(view, other_clusters=others, idle=view.idle + view.other_clusters - others)

    def _subnet_views(self) -> Iterable[views.SubnetView]:
        caches, nodes = self.caches, self.nodes.values()
        if not self.has_ledger:
            return views.subnet_views_without_ledger(nodes, caches.nncs.values(), caches.cluster_subnets.values())
        on, decided = (
            views.nodes_by_subnet(nodes),
            {each.metadata.name: each for each in caches.cluster_subnets.values()},
        )
        return (
            views.subnet_view(
                views.with_cluster_scaler(state, decided.get(state.subnet.name)),
                self._definitions.get(key),
                on.get(key, ()),
            )
            for key, state in self._subnet_states.items()
        )

    def _refresh_networks(self) -> tuple[NetworkView, ...] | None:
        if not self._networks_changed:
            return None
        self._networks_changed = False
        seen = tuple(each.view for each in self.read_networks())
        before, self.networks = self.networks, seen
        return None if seen == before else seen

    def _mark_node_changed(self, *names: str) -> None:
        self._changed_nodes |= dict.fromkeys(filter(None, names))

    def _mark_networks_changed(self) -> None:
        self._networks_changed = True

    def _on_slice_pool(self, old: NodeSlicePool | None, new: NodeSlicePool | None) -> None:
        for nodes in (waiting_nodes, _sliced_nodes):
            before, after = (set(nodes(each)) if each else set() for each in (old, new))
            self._mark_node_changed(*before ^ after)
        self._mark_networks_changed()

    def _on_node_slices(self, old: NodeSlices | None, new: NodeSlices | None) -> None:
        self._mark_node_changed(_name(old), _name(new))
        self._mark_networks_changed()

    def _on_event(self, _old: Event | None, new: Event | None) -> None:
        activity = activity_of(new) if new else None
        if activity:
            self._new_activity.append(activity)


def _latest(entries: Iterable[Activity]) -> tuple[Activity, ...]:
    """Keep the latest entries by time, one per Event."""
    by_key = {each.key or number: each for number, each in enumerate(entries)}
    return tuple(sorted(by_key.values(), key=lambda each: each.at)[-MAX_ACTIVITY:])


def _counted(entries: list[Activity]) -> list[Activity]:
    """List a few nodes with the same change, and count many."""
    alike = Counter(each.message for each in entries)
    few = [each for each in entries if alike[each.message] <= _MANY]
    first = {each.message: each for each in reversed(entries) if alike[each.message] > _MANY}
    return [*few, *(_for_many(each, alike[message]) for message, each in first.items())]


def _for_many(one: Activity, count: int) -> Activity:
    message = one.message.replace("has ", "have ", 1).replace("was removed, and its", "were removed, and their")
    return msgspec.structs.replace(one, subject=f"{count} nodes", message=message)


def _name(each: KeyedObject | None) -> str:
    return each.metadata.name if each else ""


def _sliced_nodes(pool: NodeSlicePool) -> tuple[str, ...]:
    return tuple(each.node_name for each in pool.status.allocations if each.node_name)


def _addresses(config: NodeNetworkConfig) -> Iterable[str]:
    containers = config.status.network_containers
    given = (each.ip for container in containers for each in container.ip_assignments)
    return chain((each.primary_ip for each in containers if each.primary_ip), given)
