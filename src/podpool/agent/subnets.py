"""What the agent knows of its subnet: batch, buffer, and whether it is exhausted.

The ClusterSubnet of the container's own subnet tells all of it. Where there is none, the NNC has the scaler and the
ClusterSubnetState tells about exhaustion, which then scales by single addresses. Nothing is guessed: before it is known
what there is, or that there is nothing, there are no terms. Each watch is of one object.
"""

import asyncio
import random
from collections.abc import Callable
from decimal import Decimal

from podpool.agent.scaling_modes import Terms
from podpool.api.azure import SUBNET_STATES, SUBNETS, ClusterSubnet, ClusterSubnetState, NodeScaler
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.object_informer import Mirror

NAMESPACE = "kube-system"


class Subnets:
    """Follows the objects of one subnet at a time."""

    def __init__(self, kube: KubeClient, *, rng: random.Random, settings: Settings, changed: Callable[[], None]) -> None:
        self._kube = kube
        self._rng = rng
        self._settings = settings
        self._changed = changed
        self._name = ""
        self._renamed = asyncio.Event()
        self._subnet: Mirror[ClusterSubnet] | None = None
        self._state: Mirror[ClusterSubnetState] | None = None

    def follow(self, name: str) -> None:
        """Follow this subnet from now on."""
        if name == self._name:
            return
        self._name = name
        self._subnet = Mirror(
            self._kube,
            SUBNETS,
            name,
            rng=self._rng,
            namespace=NAMESPACE,
            trust=self._settings.relist_interval,
            changed=self._subnet_changed,
        )
        self._state = None
        self._renamed.set()

    def terms(self, told: NodeScaler) -> Terms | None:
        """Put together what holds, `told` being the NNC's scaler; None while something is not known yet."""
        if self._subnet is None or not self._subnet.known:
            return None
        subnet = self._subnet.object
        if subnet is None and (self._state is None or not self._state.known):
            return None
        state = subnet or (self._state and self._state.object)
        exhausted = bool(state and state.status.exhausted)
        maximum = told.max_ip_count if told.max_ip_count > 0 else self._settings.node_maximum
        if subnet and subnet.status.scaler.batch:
            scaler = subnet_scaler(subnet.status.scaler.batch, subnet.status.scaler.buffer, otherwise=self._settings)
            most = 0
        else:
            scaler = node_scaler(told, otherwise=self._settings)
            scaler = scaler.exhausted() if exhausted else scaler
            most = told.release_threshold_percent if told.batch_size > 0 else self._settings.shrink_buffer
        most = scaler.buffer + 100 if exhausted else max(most, scaler.buffer + 100)
        return Terms(scaler=scaler, max_buffer=most, exhausted=exhausted, maximum=maximum)

    @property
    def heard(self) -> float | None:
        """When the server last told anything of the subnet, by the loop's time."""
        times = [each.heard for each in (self._subnet, self._state) if each and each.heard is not None]
        return min(times, default=None)

    async def run(self) -> None:
        """Follow whatever is to be followed, for ever."""
        while True:
            self._renamed.clear()
            async with asyncio.TaskGroup() as group:
                following = [group.create_task(mirror.run()) for mirror in (self._subnet, self._state) if mirror]
                await self._renamed.wait()
                for each in following:
                    each.cancel()

    def _subnet_changed(self) -> None:
        # the older object is read only where the newer is not: an agent's watches are few
        missing = self._subnet is not None and self._subnet.known and self._subnet.object is None
        if not missing and self._state is not None:
            self._state = None
            self._renamed.set()
        if missing and self._state is None:
            self._state = Mirror(
                self._kube,
                SUBNET_STATES,
                self._name,
                rng=self._rng,
                namespace=NAMESPACE,
                trust=self._settings.relist_interval,
                changed=self._changed,
            )
            self._renamed.set()
        self._changed()


def subnet_scaler(batch: int, buffer: Decimal | None, *, otherwise: Settings) -> Scaler:
    """Take a ClusterSubnet's scaler, brought within the rules: hundredths are rounded up, to more free addresses."""
    hundredths = otherwise.buffer if buffer is None else int(-(-buffer * 100 // 1))
    return Scaler(min(max(batch, 1), 256), min(max(hundredths, 0), 400))


def node_scaler(told: NodeScaler, *, otherwise: Settings) -> Scaler:
    """Take an NNC's scaler, brought within the rules; a batch of 0 was never written."""
    if told.batch_size <= 0:
        return otherwise.scaler
    return Scaler(min(told.batch_size, 256), min(max(told.request_threshold_percent, 0), 400))
