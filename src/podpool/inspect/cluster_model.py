"""All that is seen of a cluster, in step with the stores that mirror it: a picture, and what changed since the last.

Only nodes that something happened to are looked at again, so a picture of 5,000 nodes costs what changed. Whoever fills
the stores does not matter: reflectors on a real cluster, or a test.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain

import msgspec

from podpool.api.azure import ClusterSubnet, NodeNetworkConfig
from podpool.api.builtin import Event, Node
from podpool.api.meta import KeyedObject
from podpool.api.whereabouts import IPPool, NodeSlicePool
from podpool.inspect.changes import ActivityEntry, headline, news_of, node_news, subnet_news
from podpool.inspect.forecast import Forecast
from podpool.inspect.objects import ObservedPod
from podpool.inspect.secondary_networks import NetworkView, network_views
from podpool.inspect.timeseries import SubnetSample, SubnetTimeSeries
from podpool.inspect.view_models import (
    NodeView,
    SubnetView,
    ViewModel,
    as_decided,
    by_subnet,
    node_view,
    subnet_key,
    subnet_view,
    unbooked_views,
)
from podpool.kube.cache import ObjectCache
from podpool.ledger.messages import SubnetSpec, SubnetState

NEWS_KEPT = 200
STEP = 1.0
"""Seconds between two samples, at first."""
PATIENCE = 3.0
"""Seconds after which a node's Pods without an address wait: before that they are being started."""
ON_THE_WAY = 5.0
"""Seconds in which a node shows what it was given."""
_MANY = 5
"""Nodes to which the same happens at once are counted instead of named when they are more."""


class ClusterCaches(msgspec.Struct, frozen=True, kw_only=True):
    """The stores that a scene is made from; empty unless told."""

    nodes: ObjectCache[Node] = msgspec.field(default_factory=ObjectCache)
    configs: ObjectCache[NodeNetworkConfig] = msgspec.field(default_factory=ObjectCache)
    pods: ObjectCache[ObservedPod] = msgspec.field(default_factory=ObjectCache)
    pools: ObjectCache[IPPool] = msgspec.field(default_factory=ObjectCache)
    slice_pools: ObjectCache[NodeSlicePool] = msgspec.field(default_factory=ObjectCache)
    events: ObjectCache[Event] = msgspec.field(default_factory=ObjectCache)
    decided: ObjectCache[ClusterSubnet] = msgspec.field(default_factory=ObjectCache)


class ClusterDelta(ViewModel, frozen=True, kw_only=True):
    """What changed: views that are new or different, and names of what is no more."""

    at: float
    headline: str = ""
    waiting: int = 0
    """Pods that the headline tells of."""
    troubles: Mapping[str, str] = {}
    subnets: tuple[SubnetView, ...] = ()
    lost_subnets: tuple[str, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    networks: tuple[NetworkView, ...] | None = None
    news: tuple[ActivityEntry, ...] = ()
    samples: Mapping[str, SubnetSample] = {}
    forecasts: Mapping[str, Forecast] = {}

    @property
    def empty(self) -> bool:
        """Nothing happened."""
        return self == ClusterDelta(at=self.at, headline=self.headline, waiting=self.waiting, troubles=self.troubles)


class ClusterSnapshot(ViewModel, frozen=True, kw_only=True):
    """Everything, as it is now."""

    at: float
    headline: str
    waiting: int
    troubles: Mapping[str, str]
    subnets: tuple[SubnetView, ...]
    nodes: tuple[NodeView, ...]
    networks: tuple[NetworkView, ...]
    news: tuple[ActivityEntry, ...]
    series: Mapping[str, Sequence[SubnetSample]]
    forecasts: Mapping[str, Forecast]


class ClusterModel:
    """A cluster as it is seen; `look` brings it up to date. `booked` means that a ledger tells of its subnets."""

    def __init__(self, mirrors: ClusterCaches, *, booked: bool = True) -> None:
        self.mirrors = mirrors
        self._booked = booked
        self.troubles: dict[str, str] = {}
        """Who cannot be reached, and why."""
        self.nodes: dict[str, NodeView] = {}
        self.subnets: dict[str, SubnetView] = {}
        self.networks: tuple[NetworkView, ...] = ()
        self.news: tuple[ActivityEntry, ...] = ()
        self.series: dict[str, SubnetTimeSeries] = {}
        self.forecasts: dict[str, Forecast] = {}
        self.pods_of = mirrors.pods.index(lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self.pods_with = mirrors.pods.index(lambda pod: pod.addresses)
        self.configs_with = mirrors.configs.index(_addresses)
        self._beyond: dict[str, deque[tuple[float, int]]] = {}
        """What is reserved of each subnet and shown by no node, at the last looks."""
        self._states: dict[str, SubnetState] = {}
        self._made: dict[str, SubnetSpec] = {}
        self._touched: dict[str, None] = {}
        self._waits_since: dict[str, float] = {}
        self._at = 0.0
        self._redivided = True
        self._fresh: list[ActivityEntry] = []
        self._first = True
        mirrors.nodes.subscribe(lambda old, new: self._touch(_name(old), _name(new)))
        mirrors.configs.subscribe(lambda old, new: self._touch(_name(old), _name(new)))
        mirrors.pods.subscribe(lambda old, new: self._touch(*(each.spec.node_name for each in (old, new) if each)))
        mirrors.pools.subscribe(lambda _old, _new: self._divide())
        mirrors.slice_pools.subscribe(lambda _old, _new: self._divide())
        mirrors.events.subscribe(self._hear)

    def set_subnet(self, state: SubnetState, made: SubnetSpec | None = None) -> None:
        """Take what the ledger tells of a subnet."""
        key = subnet_key(state.subnet.network, state.subnet.name)
        self._states[key] = state
        if made:
            self._made[key] = made

    def refresh_subnet(self, state: SubnetState) -> None:
        """Take the figures of a subnet that is known, unless what is known is newer."""
        known = self._states.get(subnet_key(state.subnet.network, state.subnet.name))
        if known and known.revision <= state.revision:
            self.set_subnet(state)

    def drop_subnet(self, state: SubnetState) -> None:
        """Forget a subnet that the ledger has forgotten."""
        for known in (self._states, self._made):
            known.pop(subnet_key(state.subnet.network, state.subnet.name), None)

    def knows(self, state: SubnetState) -> bool:
        """Tell whether it is known how a subnet was made."""
        return subnet_key(state.subnet.network, state.subnet.name) in self._made

    def look(self, *, at: float) -> ClusterDelta:
        """Bring everything up to date; tell what changed since the last look."""
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        nodes, lost_nodes, told = self._look_at_nodes(moment)
        self._at = at
        waiting = (name for name, node in self.nodes.items() if node.waiting)
        self._waits_since = {name: min(at, self._waits_since.get(name, at)) for name in waiting}
        subnets, lost_subnets = self._look_at_subnets(moment, at=at)
        networks = self._look_at_networks()
        samples = {
            name: sample
            for name, view in self.subnets.items()
            if (sample := self.series.setdefault(name, SubnetTimeSeries(step=STEP)).take(view, at=at))
        }
        outlooks = {name: self.series[name].outlook() for name in samples}
        self.forecasts |= outlooks
        news = _latest((*self._fresh, *told))
        self._fresh = []
        self.news = _latest((*self.news, *news))
        self._first = False
        return ClusterDelta(
            at=at,
            headline=self.headline,
            waiting=sum(each.waiting for each in self._held_up()),
            troubles=dict(self.troubles),
            subnets=subnets,
            lost_subnets=lost_subnets,
            nodes=nodes,
            lost_nodes=lost_nodes,
            networks=networks,
            news=news,
            samples=samples,
            forecasts=outlooks,
        )

    def picture(self, *, at: float) -> ClusterSnapshot:
        """Show everything, as it was at the last look."""
        return ClusterSnapshot(
            at=at,
            headline=self.headline,
            waiting=sum(each.waiting for each in self._held_up()),
            troubles=dict(self.troubles),
            subnets=tuple(self.subnets.values()),
            nodes=tuple(self.nodes.values()),
            networks=self.networks,
            news=self.news,
            series={name: each.samples for name, each in self.series.items()},
            forecasts=self.forecasts,
        )

    @property
    def headline(self) -> str:
        """Say in a sentence how it is."""
        if not self.subnets and (self._booked or not self.nodes):
            return "Nothing has been seen yet."
        return headline(tuple(self.subnets.values()), self._held_up())

    def _held_up(self) -> tuple[NodeView, ...]:
        """The nodes on which Pods have been waiting for longer than it takes to start one."""
        long = (name for name, since in self._waits_since.items() if self._at - since >= PATIENCE)
        return tuple(self.nodes[name] for name in long if name in self.nodes)

    def _look_at_nodes(self, moment: str) -> tuple[tuple[NodeView, ...], tuple[str, ...], list[ActivityEntry]]:
        touched, self._touched = self._touched, {}
        changed: list[NodeView] = []
        lost: list[str] = []
        told: list[ActivityEntry] = []
        for name in touched:
            before, after = self.nodes.get(name), self._node(name)
            if before == after:
                continue
            told += node_news(before, after, at=moment)
            if after is None:
                del self.nodes[name]
                lost.append(name)
            else:
                self.nodes[name] = after
                changed.append(after)
        return tuple(changed), tuple(lost), [] if self._first else _counted(told)

    def _node(self, name: str) -> NodeView | None:
        node = self.mirrors.nodes.get(name)
        config = next(iter(self._configs(name)), None)
        if node is None and config is None:
            return None
        return node_view(name, config, self.pods_of.get(name), there=node is not None)

    def _configs(self, name: str) -> Iterable[NodeNetworkConfig]:
        found = (self.mirrors.configs.get(key) for key in (f"kube-system/{name}", name))
        return (each for each in found if each)

    def _look_at_subnets(self, moment: str, *, at: float) -> tuple[tuple[SubnetView, ...], tuple[str, ...]]:
        seen = {view.name: self._without_travellers(view, at=at) for view in self._subnet_views()}
        changed: list[SubnetView] = []
        for key, view in seen.items():
            before = self.subnets.get(key)
            if view == before:
                continue
            if before:
                self._fresh += subnet_news(before, view, at=moment)
            self.subnets[key] = view
            changed.append(view)
        lost = tuple(key for key in self.subnets if key not in seen)
        for each in lost:
            del self.subnets[each]
            for kept in (self.series, self.forecasts, self._beyond):
                kept.pop(each, None)
        return tuple(changed), lost

    def _without_travellers(self, view: SubnetView, *, at: float) -> SubnetView:
        """Tell other clusters' addresses from those on their way to a node, which it shows before long."""
        seen = self._beyond.setdefault(view.name, deque())
        seen.append((at, view.others))
        while not at - ON_THE_WAY <= seen[0][0] <= at:  # or the clock was set back
            seen.popleft()
        others = min(count for _, count in seen)
        return msgspec.structs.replace(view, others=others, idle=view.idle + view.others - others)

    def _subnet_views(self) -> Iterable[SubnetView]:
        mirrors, nodes = self.mirrors, self.nodes.values()
        if not self._booked:
            return unbooked_views(nodes, mirrors.configs.values(), mirrors.decided.values())
        on, decided = by_subnet(nodes), {each.metadata.name: each for each in mirrors.decided.values()}
        return (
            subnet_view(as_decided(state, decided.get(state.subnet.name)), self._made.get(key), on.get(key, ()))
            for key, state in self._states.items()
        )

    def _look_at_networks(self) -> tuple[NetworkView, ...] | None:
        if not self._redivided:
            return None
        self._redivided = False
        seen = tuple(network_views(self.mirrors.slice_pools.values(), self.mirrors.pools.values()))
        before, self.networks = self.networks, seen
        return None if seen == before else seen

    def _touch(self, *names: str) -> None:
        self._touched |= dict.fromkeys(filter(None, names))

    def _divide(self) -> None:
        self._redivided = True

    def _hear(self, _old: Event | None, new: Event | None) -> None:
        told = news_of(new) if new else None
        if told:
            self._fresh.append(told)


def _latest(news: Iterable[ActivityEntry]) -> tuple[ActivityEntry, ...]:
    """Keep the latest by time, and of an Event that was told again what it says now."""
    by_key = {each.key or number: each for number, each in enumerate(news)}
    return tuple(sorted(by_key.values(), key=lambda each: each.at)[-NEWS_KEPT:])


def _counted(told: list[ActivityEntry]) -> list[ActivityEntry]:
    """Name few nodes to which the same happened, and count many."""
    alike = Counter(each.words for each in told)
    few = [each for each in told if alike[each.words] <= _MANY]
    first = {each.words: each for each in reversed(told) if alike[each.words] > _MANY}
    return [*few, *(_of_many(each, alike[words]) for words, each in first.items())]


def _of_many(one: ActivityEntry, count: int) -> ActivityEntry:
    words = one.words.replace("has ", "have ", 1).replace("is gone, and its", "are gone, and their")
    return msgspec.structs.replace(one, about=f"{count} nodes", words=words)


def _name(each: KeyedObject | None) -> str:
    return each.metadata.name if each else ""


def _addresses(config: NodeNetworkConfig) -> Iterable[str]:
    containers = config.status.network_containers
    given = (each.ip for container in containers for each in container.ip_assignments)
    return chain((each.primary_ip for each in containers if each.primary_ip), given)
