"""What the parts of an agent share: dependencies from outside, options, and the change signal."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from podpool.agent.journal import SEGMENT_BYTES
from podpool.agent.scaling_decision import ScalingMode
from podpool.core.errors import PodpoolError
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.events import EventRecorder
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk
from podpool.runtime.logging import Logger, get_logger

NAMESPACE = "kube-system"
"""The namespace of NNCs and subnet objects."""
MIN_WAIT = 0.001
"""Seconds to wait at least: two clocks may differ in the last digit, which would make a busy loop."""


class Underlay(Protocol):
    """Reports what is programmed."""

    async def programmed(self) -> Mapping[str, int]:
        """Return the programmed version of each NC; raises `Unreachable` or `BadUnderlay`."""


class ContainerRuntime(Protocol):
    """The container runtime of the node (CRI)."""

    async def list_sandboxes(self) -> Mapping[str, str] | None:
        """Return the Pod UID of each Pod sandbox by its ID, ready or not; None while there is no runtime.

        Raises `Unreachable`.
        """


class Uplink(Protocol):
    """The node's interface on which the kernel answers ARP and NDP for its Pods. All raise `UplinkFailed`."""

    def prepare(self) -> None:
        """Let the kernel answer for what is added."""

    def entries(self) -> frozenset[str]:
        """Return the addresses that were added, also by an agent before this one."""

    def add(self, address: str) -> None:
        """Answer for an address."""

    def remove(self, address: str) -> None:
        """Stop answering for an address."""

    def announce(self, addresses: Iterable[str]) -> None:
        """Let all neighbors update their caches."""


class UplinkFailed(PodpoolError):
    """The kernel does not answer for a Pod; the text has the interface, the reason and what to do."""


async def no_flat_file(_path: str) -> bytes | None:
    """Return None: there is no flat file."""
    return None


async def no_netns_gone(_paths: Collection[str]) -> frozenset[str]:
    """Return nothing: where network namespaces cannot be seen, none is known to be gone."""
    return frozenset()


async def event_or_timeout(event: asyncio.Event, timeout: asyncio.Timeout) -> bool:  # noqa: ASYNC109  made by the caller
    """Wait for an event; return False when the timeout ended first."""
    try:
        async with timeout:
            return await event.wait()
    except TimeoutError:
        return False


class ChangeSignal:
    """Notifies subscribers that the agent's state or inputs changed; each then evaluates everything it depends on."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, subscriber: Callable[[], None]) -> None:
        """Call this on every change, in the order of subscription."""
        self._subscribers.append(subscriber)

    def notify(self) -> None:
        """Call all subscribers."""
        for subscriber in self._subscribers:
            subscriber()


@dataclass(frozen=True, kw_only=True)
class AgentDeps:
    """One node's dependencies. Many agents with their own fit in one process."""

    node: str
    boot_id: str
    kube: KubeClient
    disk: Disk
    clock: Clock
    rng: random.Random
    settings: Settings = field(default_factory=Settings)
    recorder: EventRecorder | None = None
    """Writes Events, and is run by the agent; None for no Events."""
    deferred_deletes: Disk | None = None
    """Where the plugin leaves DELs that no agent answered."""
    underlay: Underlay | None = None
    """No address is assigned before the underlay has programmed it; None for networks without such a step."""
    uplink: Uplink | None = None
    """Where the kernel answers ARP and NDP for Pods behind the node; None if the network has routes to them."""
    runtime: ContainerRuntime | None = None
    """Lists the node's sandboxes, to find those whose DEL or record was lost; None: only Pods are compared."""
    netns_gone: Callable[[Collection[str]], Awaitable[frozenset[str]]] = no_netns_gone
    """Returns the network namespaces, of these paths, that are known not to exist any more."""
    read_flat_file: Callable[[str], Awaitable[bytes | None]] = no_flat_file
    """Reads Whereabouts' flat file at a path, or the default one; raises `InvalidInput`."""
    changes: ChangeSignal = field(default_factory=ChangeSignal)

    @cached_property
    def log(self) -> Logger:
        """The agent's logger; every line has the node."""
        return get_logger("podpool.agent").bind(node=self.node)


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """What an operator chooses for an agent."""

    mode: ScalingMode = ScalingMode.PODS
    taint: bool = False
    """Taint the Node while its Pods wait for addresses, to keep further Pods away."""
    whereabouts_namespace: str = ""
    """The namespace of Whereabouts' objects; with one the agent also serves secondary networks."""
    third_party_plugins: bool = True
    """Whether Whereabouts' own plugin may run on any node."""
    routed_network: str = ""
    """The CNI network whose Pods are behind the node; with an uplink."""
    segment_bytes: int = SEGMENT_BYTES
    """The journal is compacted after so many bytes."""
