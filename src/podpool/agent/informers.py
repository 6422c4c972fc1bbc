"""The agent's informers: Pods, Node and NNC of its node, and the objects of its subnet.

Batch, buffer, exhaustion, cooldown and the number of nodes are in the ClusterSubnet of the NC's subnet. What it lacks
is elsewhere: the scaler in the NNC, exhaustion in the ClusterSubnetState, in which case scaling is by single addresses.
Nothing is assumed: until it is known what exists, there are no scaling parameters.
"""

import asyncio
import math
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from podpool.agent.deps import NAMESPACE, AgentDeps
from podpool.agent.scaling_decision import ScalingParameters
from podpool.api.azure import (
    CLUSTER_SUBNET_STATES,
    CLUSTER_SUBNETS,
    NODE_NETWORK_CONFIGS,
    ClusterSubnet,
    ClusterSubnetState,
    ClusterSubnetStatus,
    NodeScaler,
    PublishedScaler,
)
from podpool.api.builtin import NODES, PODS, Pod
from podpool.api.meta import Kind, T
from podpool.core.cooldown_levels import MAX_COOLDOWN, CooldownInForce, CooldownLevels
from podpool.core.quantities import hundredths
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.kube.informer import Informer, ObjectInformer

_Sources: TypeAlias = tuple[NodeScaler, ClusterSubnet | None, ClusterSubnetState | None]


class AgentInformers:
    """Informers that the API server filters by node or name, so that their cost does not grow with the cluster."""

    def __init__(self, deps: AgentDeps, *, on_node: Callable[[], None], on_nnc: Callable[[], None]) -> None:
        kube, rng, node, relist = deps.kube, deps.rng, deps.node, deps.settings.relist_interval
        self._changes = deps.changes
        self.subnet = SubnetInformer(deps)
        self.pods: Informer[Pod] = Informer(kube, PODS, rng=rng, fields=f"spec.nodeName={node}", relist_interval=relist)
        self.pods.cache.subscribe(self._on_pod)
        self.node = ObjectInformer(kube, NODES, node, rng=rng, relist_interval=relist, on_change=on_node)
        self.nnc = ObjectInformer(
            kube, NODE_NETWORK_CONFIGS, node, rng=rng, namespace=NAMESPACE, relist_interval=relist, on_change=on_nnc
        )

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.pods, self.node, self.nnc, self.subnet):
                group.create_task(informer.run())
            await self.pods.cache.synced.wait()
            self._changes.notify()  # an empty list calls no subscriber

    def lag(self, others: dict[str, float | None]) -> dict[str, float]:
        """Return the seconds since each watch last received anything; infinite before the first time."""
        received = {
            "pods": self.pods.last_contact,
            "node": self.node.last_contact,
            "nnc": self.nnc.last_contact,
            "subnet": self.subnet.last_contact,
            **others,
        }
        now = asyncio.get_running_loop().time()
        return {watch: math.inf if at is None else now - at for watch, at in received.items()}

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._changes.notify()


def _relevant(pod: Pod) -> tuple[bool, bool, str]:
    """Return what of a Pod changes demand: other updates are ignored."""
    return pod.needs_address, pod.metadata.deletion_timestamp is not None, pod.metadata.uid


class SubnetInformer:
    """Follows the objects of one subnet at a time."""

    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps
        self._name = ""
        self._restart = asyncio.Event()
        self._subnet: ObjectInformer[ClusterSubnet] | None = None
        self._state: ObjectInformer[ClusterSubnetState] | None = None
        self._computed: tuple[_Sources, ScalingParameters] | None = None
        """The last parameters, and what they were computed from: every ADD needs them."""

    def follow(self, name: str) -> None:
        """Follow this subnet from now on."""
        if name != self._name:
            self._name = name
            self._subnet, self._state = self._informer(CLUSTER_SUBNETS, name), None
            self._restart.set()

    def parameters(self, nnc_scaler: NodeScaler) -> ScalingParameters | None:
        """Return what the subnet prescribes, with the scaler of the NNC; None while something is not known."""
        if self._subnet is None or not self._subnet.synced:
            return None
        if self._lacks_exhaustion() and (self._state is None or not self._state.synced):
            return None
        sources = (nnc_scaler, self._subnet.object, self._state.object if self._state else None)
        if self._computed is None or self._computed[0] != sources:
            self._computed = sources, self._compute(nnc_scaler, self._subnet.object)
        return self._computed[1]

    def _compute(self, nnc_scaler: NodeScaler, subnet: ClusterSubnet | None) -> ScalingParameters:
        settings, exhausted = self._deps.settings, self._is_exhausted()
        status = subnet.status if subnet else ClusterSubnetStatus()
        if status.scaler.batch:
            scaler = subnet_scaler(status.scaler.batch, status.scaler.buffer, default=settings)
        else:
            scaler = node_scaler(nnc_scaler, default=settings)
            scaler = scaler.exhausted() if exhausted else scaler
        max_buffer = 0 if exhausted else _max_buffer(nnc_scaler, default=settings)
        return ScalingParameters(
            scaler=scaler,
            max_buffer=max(max_buffer, scaler.buffer + 100),
            exhausted=exhausted,
            maximum=nnc_scaler.max_ip_count if nnc_scaler.max_ip_count > 0 else settings.node_maximum,
            cooldown=_cooldown(status.scaler, settings.cooldown_levels, exhausted=exhausted),
            nodes=status.nodes if status.nodes and status.nodes > 0 else None,
        )

    def _lacks_exhaustion(self) -> bool:
        """Return whether exhaustion is to be read from the older object."""
        subnet = self._subnet.object if self._subnet else None
        return subnet is None or subnet.status.exhausted is None

    def _is_exhausted(self) -> bool:
        informer = self._state if self._lacks_exhaustion() else self._subnet
        return bool(informer and informer.object and informer.object.status.exhausted)

    @property
    def last_contact(self) -> float | None:
        """When a watch last received anything, by the loop's time."""
        times = [each.last_contact for each in (self._subnet, self._state) if each and each.last_contact is not None]
        return min(times, default=None)

    async def run(self) -> None:
        """Run the informers of the followed subnet, until cancelled."""
        while True:
            self._restart.clear()
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(each.run()) for each in (self._subnet, self._state) if each]
                await self._restart.wait()
                for task in running:
                    task.cancel()

    def _on_change(self) -> None:
        # the older object is watched only for what the newer lacks: an agent has few watches
        missing = self._subnet is not None and self._subnet.synced and self._lacks_exhaustion()
        if not missing and self._state is not None:
            self._state = None
            self._restart.set()
        if missing and self._state is None:
            self._state = self._informer(CLUSTER_SUBNET_STATES, self._name)
            self._restart.set()
        self._deps.changes.notify()

    def _informer(self, kind: Kind[T], name: str) -> ObjectInformer[T]:
        deps, relist = self._deps, self._deps.settings.relist_interval
        return ObjectInformer(
            deps.kube, kind, name, rng=deps.rng, namespace=NAMESPACE, relist_interval=relist, on_change=self._on_change
        )


def subnet_scaler(batch: int, buffer: Decimal | None, *, default: Settings) -> Scaler:
    """Return a ClusterSubnet's scaler within the allowed values; hundredths are rounded up, to more free addresses."""
    share = hundredths(buffer)
    return Scaler(min(max(batch, 1), 256), min(max(default.buffer if share is None else share, 0), 400))


def _cooldown(published: PublishedScaler, levels: CooldownLevels, *, exhausted: bool) -> CooldownInForce:
    """Return the cooldown in force; a subnet that does not publish its level counts as filling or exhausted."""
    level, shortest = published.cooldown_seconds, published.shortest_cooldown_seconds
    if level is None:
        level = levels.of_subnet(exhausted=exhausted, configured_batch=False)
    return levels.in_force(min(max(level, 0.0), MAX_COOLDOWN), shortest=shortest)


def _max_buffer(nnc_scaler: NodeScaler, *, default: Settings) -> int:
    """Return an NNC's max buffer if it is more than the least for the buffer beside it, else 0."""
    if nnc_scaler.batch_size <= 0:
        return default.max_buffer or 0
    explicit = nnc_scaler.release_threshold_percent > nnc_scaler.request_threshold_percent + 100
    return nnc_scaler.release_threshold_percent if explicit else 0


def node_scaler(nnc_scaler: NodeScaler, *, default: Settings) -> Scaler:
    """Return an NNC's scaler within the allowed values; a batch of 0 was never written."""
    if nnc_scaler.batch_size <= 0:
        return default.scaler
    return Scaler(min(nnc_scaler.batch_size, 256), min(max(nnc_scaler.request_threshold_percent, 0), 400))
