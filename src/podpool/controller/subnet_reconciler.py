"""Publishes subnets to agents: ClusterSubnet with scaler, exhaustion and cooldown, ClusterSubnetState for Azure's CNS.

The ledger's change stream is followed, so that agents see a change at once, and it is polled as well. Only differences
are written, and only for subnets that nodes of this cluster use. spec.scaler of a ClusterSubnet overrides the scaler;
an invalid one is reported in the status.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, ClusterSubnet
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.scaler_policy import PublishedSubnet, published_subnet
from podpool.core.errors import PodpoolError
from podpool.core.quantities import show_share
from podpool.core.scaling import Scaler
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiAlreadyExists
from podpool.kube.expectations import Expectations
from podpool.kube.workqueue import Requeue
from podpool.ledger.errors import LedgerError, NotFound
from podpool.ledger.messages import SubnetChange, SubnetName, SubnetState
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

log = get_logger(__name__)

MAX_RECONNECT_DELAY = 5.0
"""Seconds between two attempts to open the ledger's change stream, at most."""


class SubnetReconciler:
    """Publishes each subnet under its name."""

    def __init__(
        self,
        deps: ControllerDeps,
        health: LedgerHealth,
        *,
        enqueue: Callable[[str], None],
        on_publish: Callable[[str], None],
    ) -> None:
        self._deps = deps
        self._health = health
        self._enqueue = enqueue
        self._on_publish = on_publish
        """Called with a subnet's name when agents on it read something else than before."""
        self._expectations = Expectations()
        self._tracked: dict[str, SubnetName] = {}
        self._states: dict[str, SubnetState] = {}
        self._published: dict[str, PublishedSubnet] = {}
        self._errors: dict[str, str] = {}

    def track(self, subnet: SubnetName) -> PublishedSubnet | None:
        """Return what is published for a subnet that a node uses; the first call starts publishing it."""
        if subnet.name not in self._tracked:
            self._tracked[subnet.name] = subnet
            self._enqueue(subnet.name)
        return self._published.get(subnet.name) if self._tracked[subnet.name] == subnet else None

    def error(self, subnet: SubnetName) -> str:
        """Return why a subnet cannot be published, or an empty string."""
        tracked = self._tracked.get(subnet.name, subnet)
        if tracked != subnet:
            unique = "subnet names must be unique within a cluster"
            return f"subnet {subnet} has the same name as subnet {tracked}, which this cluster uses: {unique}"
        return self._errors.get(subnet.name, "")

    def published(self, name: str) -> PublishedSubnet | None:
        """Return what this leader has published for a subnet."""
        return self._published.get(name)

    def pinned(self, name: str) -> Scaler | None:
        """Return the scaler of this cluster's nodes on a subnet, where it does not depend on the ledger."""
        published = self._published.get(name)
        return published.pinned if published else None

    def all_published(self) -> dict[str, PublishedSubnet]:
        """Return what is published, by subnet name."""
        return dict(self._published)

    def on_state(self, state: SubnetState) -> None:
        """Store a subnet's state from the ledger, and enqueue the subnet."""
        name = state.subnet.name
        if self._tracked.get(name) != state.subnet:
            return
        known = self._states.get(name)
        if known is None or state.revision >= known.revision:
            self._states[name] = state
            self._deps.subnet_ranges.update(state)
            self._enqueue(name)

    async def follow(self, cluster: str, on_change: Callable[[SubnetChange], None]) -> None:
        """Follow the ledger's change stream, and reconnect when it ends."""
        backoff = Backoff(
            rng=self._deps.rng, base=self._deps.settings.common.growth_max_delay, maximum=MAX_RECONNECT_DELAY
        )
        while True:
            try:
                async with aclosing(self._deps.ledger.changes(cluster)) as changes:
                    async for change in changes:
                        backoff.reset()
                        self.on_state(change.state)
                        on_change(change)
            except PodpoolError as error:
                log.info("ledger change stream ended, reconnecting", error=error)
            await backoff.wait()

    async def poll(self) -> None:
        """Poll the ledger, in addition to the stream."""
        while True:
            await asyncio.sleep(self._deps.settings.common.utilization_poll)
            for name in tuple(self._tracked):
                try:
                    await self._fetch(name)
                except (Unreachable, LedgerError) as error:
                    log.info("cannot read subnet from the ledger, polling again later", subnet=name, error=error)

    async def _fetch(self, name: str) -> None:
        self.on_state(await self._health.call(self._deps.ledger.subnet(self._tracked[name])))

    async def reconcile(self, name: str) -> Requeue | None:
        """Write ClusterSubnet and ClusterSubnetState where they differ."""
        if name not in self._tracked:
            return None
        if name not in self._states:
            await self._fetch_first(name)
        informers, key = self._deps.informers, f"{self._deps.settings.namespace}/{name}"
        for kind, cache in (("subnet", informers.subnets), ("state", informers.subnet_states)):
            seen = cache.get(key)
            delay = self._expectations.due(f"{kind}/{name}", seen=seen.metadata.resource_version if seen else "")
            if delay:
                return Requeue(after=delay)
        subnet = informers.subnets.get(key) or await self._create(CLUSTER_SUBNETS, name)
        before = self._published.get(name)
        published = published_subnet(
            self._states[name],
            subnet.spec.scaler,
            exhausted_before=before.exhausted if before else bool(subnet.status.exhausted),
            nodes_before=before.nodes if before else subnet.status.nodes or 0,
            settings=self._deps.settings,
        )
        await self._publish(name, subnet, published)
        self._published[name] = published
        if published != before:
            self._on_publish(name)
        return None

    async def _fetch_first(self, name: str) -> None:
        """Read a new subnet from the ledger; that it does not exist is reported on the Nodes that use it."""
        try:
            await self._fetch(name)
        except NotFound as error:
            if self._errors.get(name) != str(error):
                self._errors[name] = str(error)
                self._on_publish(name)
            raise
        self._errors.pop(name, None)

    async def _publish(self, name: str, subnet: ClusterSubnet, published: PublishedSubnet) -> None:
        timestamp = {"timestamp": self._states[name].timestamp}
        scaler = published.scaler
        status = {
            "exhausted": published.exhausted,
            "scaler": {
                "batch": scaler.batch,
                "buffer": Decimal(show_share(scaler.buffer)),
                "cooldownSeconds": published.cooldown,
                "shortestCooldownSeconds": published.shortest_cooldown,
            },
            "nodes": published.nodes,
            "message": published.scaler_error,
        }
        if not _is_current(subnet, status):
            await self._patch_status(CLUSTER_SUBNETS, name, status | timestamp, subnet.metadata.resource_version)
            self._expectations.wrote(f"subnet/{name}", over=subnet.metadata.resource_version)
            if published.scaler_error and published.scaler_error != subnet.status.message:
                self._deps.events.invalid_scaler(subnet, published.scaler_error)
        key = f"{self._deps.settings.namespace}/{name}"
        state = self._deps.informers.subnet_states.get(key) or await self._create(CLUSTER_SUBNET_STATES, name)
        if state.status.exhausted != published.exhausted:
            exhausted = {"exhausted": published.exhausted} | timestamp
            await self._patch_status(CLUSTER_SUBNET_STATES, name, exhausted, state.metadata.resource_version)
            self._expectations.wrote(f"state/{name}", over=state.metadata.resource_version)

    async def _create(self, kind: Any, name: str) -> Any:  # noqa: ANN401  one of two kinds, typed by the caller
        namespace = self._deps.settings.namespace
        try:
            created = await self._deps.kube.create(kind, {"metadata": {"name": name, "namespace": namespace}})
        except ApiAlreadyExists:
            return await self._deps.kube.get(kind, name, namespace=namespace)
        self._expectations.wrote(f"{'subnet' if kind is CLUSTER_SUBNETS else 'state'}/{name}", over="")
        return created

    async def _patch_status(self, kind: Any, name: str, status: dict[str, Any], version: str) -> None:  # noqa: ANN401  as above
        options = {"namespace": self._deps.namespace, "subresource": "status", "precondition": version}
        await self._deps.kube.merge_patch(kind, name, {"status": status}, **options)


def _is_current(subnet: ClusterSubnet, wanted: dict[str, Any]) -> bool:
    status, shown = subnet.status, subnet.status.scaler
    scaler = {
        "batch": shown.batch,
        "buffer": shown.buffer,
        "cooldownSeconds": shown.cooldown_seconds,
        "shortestCooldownSeconds": shown.shortest_cooldown_seconds,
    }
    current = {"exhausted": status.exhausted, "scaler": scaler, "nodes": status.nodes, "message": status.message}
    return current == wanted
