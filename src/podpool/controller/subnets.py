"""What agents read of a subnet: ClusterSubnet with its scaler and exhaustion, and ClusterSubnetState for older ones.

The ledger decides; this follows its stream, so that a change is with the agents at once, and writes only what differs.
A scaler in a ClusterSubnet's spec is a person's: checked, taken over, or refused with the reason in the status.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from decimal import Decimal
from typing import Any

from podpool.controller.settings import Settings
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.numbers import parse_numbers
from podpool.core.quantities import show_share
from podpool.core.scaling import Scaler
from podpool.kube.client import KubeClient
from podpool.kube.errors import AlreadyExists
from podpool.kube.queue import Again
from podpool.kube.store import Store
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Change, SubnetState
from podpool.resources.acn import SUBNET_STATES, SUBNETS, ClusterSubnet, ClusterSubnetState, SubnetScaler

_log = logging.getLogger(__name__)


class Subnets:
    """Publishes the state of each subnet under its name."""

    def __init__(
        self,
        kube: KubeClient,
        *,
        subnets: Store[ClusterSubnet],
        states: Store[ClusterSubnetState],
        settings: Settings,
        changed: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._subnets = subnets
        self._states = states
        self._settings = settings
        self._changed = changed
        self._latest: dict[str, SubnetState] = {}

    def hear(self, state: SubnetState) -> None:
        """Take what the ledger says of a subnet."""
        known = self._latest.get(state.subnet.name)
        if known is None or state.revision >= known.revision:
            self._latest[state.subnet.name] = state
            self._changed(state.subnet.name)

    async def follow(self, ledger: LedgerClient, cluster: str, serve: Callable[[Change], None]) -> None:
        """Listen to the ledger's stream for as long as it lasts, and again."""
        while True:
            try:
                async with aclosing(ledger.changes(cluster)) as changes:
                    async for change in changes:
                        self.hear(change.state)
                        serve(change)
            except PodpoolError as error:
                _log.info("the ledger's stream broke off: %s", error)
            await asyncio.sleep(self._settings.numbers.growth_at_most)

    async def reconcile(self, name: str) -> Again | None:
        """Write what differs."""
        state = self._latest.get(name)
        if state is None:
            return None
        key = f"{self._settings.namespace}/{name}"
        subnet = self._subnets.get(key) or await self._create(SUBNETS, name)
        scaler, refused = _chosen(subnet.spec.scaler, state.scaler)
        wanted = {
            "exhausted": state.exhausted,
            "scaler": {"batch": scaler.batch, "buffer": Decimal(show_share(scaler.buffer))},
            "message": refused,
        }
        if not _shows(subnet, wanted):
            await self._write(SUBNETS, name, wanted | {"timestamp": state.timestamp}, subnet.metadata.resource_version)
        older = self._states.get(key) or await self._create(SUBNET_STATES, name)
        if older.status.exhausted != state.exhausted:
            told = {"exhausted": state.exhausted, "timestamp": state.timestamp}
            await self._write(SUBNET_STATES, name, told, older.metadata.resource_version)
        return None

    def pinned(self, name: str) -> Scaler | None:
        """Tell which scaler a person insists on for this cluster, if it is a good one."""
        subnet = self._subnets.get(f"{self._settings.namespace}/{name}")
        if subnet is None or subnet.spec.scaler == SubnetScaler():
            return None
        state = self._latest.get(name)
        chosen, refused = _chosen(subnet.spec.scaler, state.scaler if state else self._settings.numbers.scaler)
        return None if refused else chosen

    async def _create(self, kind: Any, name: str) -> Any:  # noqa: ANN401  one of two kinds, typed by the caller
        body = {"metadata": {"name": name, "namespace": self._settings.namespace}}
        try:
            return await self._kube.create(kind, body)
        except AlreadyExists:
            return await self._kube.get(kind, name, namespace=self._settings.namespace)

    async def _write(self, kind: Any, name: str, status: dict[str, Any], version: str) -> None:  # noqa: ANN401  as above
        await self._kube.merge(
            kind,
            name,
            {"status": status},
            namespace=self._settings.namespace,
            sub="status",
            precondition=version,
        )


def _chosen(override: SubnetScaler, decided: Scaler) -> tuple[Scaler, str]:
    """Take a person's scaler where it keeps the rules, else the ledger's, with the reason."""
    words = {"batch": str(decided.batch), "buffer": show_share(decided.buffer)}
    if override.batch is not None:
        words["batch"] = str(override.batch)
    if override.buffer is not None:
        words["buffer"] = format(override.buffer, "f")
    try:
        return parse_numbers(words).scaler, ""
    except InvalidInput as error:
        return decided, f"spec.scaler is not used: {error}"


def _shows(subnet: ClusterSubnet, wanted: dict[str, Any]) -> bool:
    status = subnet.status
    shown = {"batch": status.scaler.batch, "buffer": status.scaler.buffer}
    return (status.exhausted, shown, status.message) == (wanted["exhausted"], wanted["scaler"], wanted["message"])
