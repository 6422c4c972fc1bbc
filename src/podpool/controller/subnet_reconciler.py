"""What agents read of a subnet: ClusterSubnet with its scaler and exhaustion, and ClusterSubnetState for older ones.

The ledger is asked now and then, and its stream followed, so that a change is with the agents at once; only what
differs is written. Only subnets that nodes of this cluster are on are looked at, each for itself. A scaler in a
ClusterSubnet's spec is a person's: taken over, or refused with the reason in the status.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, ClusterSubnet
from podpool.controller.deps import ControllerDeps
from podpool.controller.expectations import Expectations
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.scaler_policy import PublishedSubnet, offer
from podpool.core.errors import PodpoolError
from podpool.core.quantities import show_share
from podpool.core.scaling import Scaler
from podpool.kube.errors import ApiAlreadyExists
from podpool.kube.workqueue import Requeue
from podpool.ledger.errors import LedgerError, NotFound
from podpool.ledger.messages import SubnetChange, SubnetName, SubnetState
from podpool.runtime.transport import Unreachable

_log = logging.getLogger(__name__)


class SubnetReconciler:
    """Publishes the state of each subnet under its name."""

    def __init__(
        self,
        ground: ControllerDeps,
        presence: LedgerHealth,
        *,
        look: Callable[[str], None],
        moved: Callable[[str], None],
    ) -> None:
        self._ground = ground
        self._presence = presence
        self._look = look
        self._moved = moved
        """Whom to tell when the nodes of a subnet are told something else than before."""
        self._echoes = Expectations()
        self._used: dict[str, SubnetName] = {}
        self._latest: dict[str, SubnetState] = {}
        self._offers: dict[str, PublishedSubnet] = {}
        self._trouble: dict[str, str] = {}

    def use(self, subnet: SubnetName) -> PublishedSubnet | None:
        """Tell what is published of a subnet that a node is on; None while nothing is, which is then mended."""
        if subnet.name not in self._used:
            self._used[subnet.name] = subnet
            self._look(subnet.name)
        return self._offers.get(subnet.name) if self._used[subnet.name] == subnet else None

    def trouble(self, subnet: SubnetName) -> str:
        """Tell why nothing will be published of a subnet, if that is known."""
        used = self._used.get(subnet.name, subnet)
        if used != subnet:
            return f"subnet {subnet} has the name of subnet {used}, which this cluster uses: one name, one subnet"
        return self._trouble.get(subnet.name, "")

    def published(self, name: str) -> PublishedSubnet | None:
        """Tell what agents were told in this term."""
        return self._offers.get(name)

    def pinned(self, name: str) -> Scaler | None:
        """Tell which scaler this cluster insists on."""
        made = self._offers.get(name)
        return made.pinned if made else None

    def offers(self) -> dict[str, PublishedSubnet]:
        """List what is published, by the subnet's name."""
        return dict(self._offers)

    def hear(self, state: SubnetState) -> None:
        """Take what the ledger says of a subnet."""
        name = state.subnet.name
        if self._used.get(name) != state.subnet:
            return
        known = self._latest.get(name)
        if known is None or state.revision >= known.revision:
            self._latest[name] = state
            self._look(name)

    async def follow(self, cluster: str, serve: Callable[[SubnetChange], None]) -> None:
        """Listen to the ledger's stream for as long as it lasts, and again."""
        while True:
            try:
                async with aclosing(self._ground.ledger.changes(cluster)) as changes:
                    async for change in changes:
                        self.hear(change.state)
                        serve(change)
            except PodpoolError as error:
                _log.info("the ledger's stream broke off: %s", error)
            await asyncio.sleep(self._ground.settings.common.growth_max_delay)

    async def poll(self) -> None:
        """Ask now and then, whatever the stream says."""
        while True:
            await asyncio.sleep(self._ground.settings.common.utilization_poll)
            for name in tuple(self._used):
                try:
                    await self._ask(name)
                except (Unreachable, LedgerError) as error:
                    _log.info("subnet %s: the ledger does not tell: %s", name, error)

    async def _ask(self, name: str) -> None:
        self.hear(await self._presence.ask(self._ground.ledger.subnet(self._used[name])))

    async def reconcile(self, name: str) -> Requeue | None:
        """Write what differs."""
        if name not in self._used:
            return None
        if name not in self._latest:
            await self._learn(name)
        mirrors, key = self._ground.mirrors, f"{self._ground.settings.namespace}/{name}"
        for kind, mirror in (("subnet", mirrors.subnets), ("state", mirrors.states)):
            seen = mirror.get(key)
            wait = self._echoes.due(f"{kind}/{name}", seen=seen.metadata.resource_version if seen else "")
            if wait:
                return Requeue(after=wait)
        subnet = mirrors.subnets.get(key) or await self._create(CLUSTER_SUBNETS, name)
        before = self._offers.get(name)
        made = offer(
            self._latest[name],
            subnet.spec.scaler,
            exhausted_before=before.exhausted if before else bool(subnet.status.exhausted),
            settings=self._ground.settings,
        )
        await self._publish(name, subnet, made)
        self._offers[name] = made
        if made != before:
            self._moved(name)
        return None

    async def _learn(self, name: str) -> None:
        """Ask for a subnet that nothing was heard of yet; that there is none is told to those who are on it."""
        try:
            await self._ask(name)
        except NotFound as error:
            if self._trouble.get(name) != str(error):
                self._trouble[name] = str(error)
                self._moved(name)
            raise
        self._trouble.pop(name, None)

    async def _publish(self, name: str, subnet: ClusterSubnet, made: PublishedSubnet) -> None:
        moment = {"timestamp": self._latest[name].timestamp}
        told = {
            "exhausted": made.exhausted,
            "scaler": {"batch": made.scaler.batch, "buffer": Decimal(show_share(made.scaler.buffer))},
            "message": made.refused,
        }
        if not _shows(subnet, told):
            await self._write(CLUSTER_SUBNETS, name, told | moment, subnet.metadata.resource_version)
            self._echoes.wrote(f"subnet/{name}", over=subnet.metadata.resource_version)
            if made.refused and made.refused != subnet.status.message:
                self._ground.herald.override_refused(subnet, made.refused)
        key = f"{self._ground.settings.namespace}/{name}"
        older = self._ground.mirrors.states.get(key) or await self._create(CLUSTER_SUBNET_STATES, name)
        if older.status.exhausted != made.exhausted:
            await self._write(
                CLUSTER_SUBNET_STATES, name, {"exhausted": made.exhausted} | moment, older.metadata.resource_version
            )
            self._echoes.wrote(f"state/{name}", over=older.metadata.resource_version)

    async def _create(self, kind: Any, name: str) -> Any:  # noqa: ANN401  one of two kinds, typed by the caller
        namespace = self._ground.settings.namespace
        try:
            made = await self._ground.kube.create(kind, {"metadata": {"name": name, "namespace": namespace}})
        except ApiAlreadyExists:
            return await self._ground.kube.get(kind, name, namespace=namespace)
        self._echoes.wrote(f"{'subnet' if kind is CLUSTER_SUBNETS else 'state'}/{name}", over="")
        return made

    async def _write(self, kind: Any, name: str, status: dict[str, Any], version: str) -> None:  # noqa: ANN401  as above
        await self._ground.kube.merge(
            kind,
            name,
            {"status": status},
            namespace=self._ground.settings.namespace,
            sub="status",
            precondition=version,
        )


def _shows(subnet: ClusterSubnet, wanted: dict[str, Any]) -> bool:
    status = subnet.status
    shown = {"batch": status.scaler.batch, "buffer": status.scaler.buffer}
    return (status.exhausted, shown, status.message) == (wanted["exhausted"], wanted["scaler"], wanted["message"])
