"""Sandbox GC: releases the addresses of sandboxes that ended without a DEL.

A runtime may lose a DEL (it is killed, or the deferred DEL is deleted), and containerd sends no GC. Only what an ADD
with K8S_POD_UID got is compared, in the node's pool, slices and shared ranges alike. A sandbox has ended when one of
two sources shows it in two observations, `sandbox_gc_delay` apart (`core.two_observations`):

| source | condition | reason |
|---|---|---|
| runtime | it was listed once, or its ADD is 10 minutes old | containerd lists a sandbox after its ADDs |
| | the list lacks it, and has another of this agent or node | otherwise it is the socket of another runtime |
| | the network namespace of the ADD is not seen to exist | a runtime may lose the state of a sandbox that runs on |
| Pods | no unfinished Pod has its UID, or has it as config hash | the mirror Pod of a static Pod has another UID |
| | the network namespace of the ADD is gone | the sandbox of a force-deleted Pod may run on |

More than 30 % of the sandboxes, and at least 5, are released at once only if a second source agrees: Pods show it and
the runtime, if it has responded since the start, does not list them; or the runtime shows it and their network
namespaces are seen to be gone. No sandbox exists without its namespace, and after a runtime lost all of them, Pods live
on in new ones.

Observations are kept in memory: after a restart they start again.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.netns import present_netns
from podpool.api.builtin import FINISHED, Pod
from podpool.cni.protocol import Attachment
from podpool.core.two_observations import TwoObservations
from podpool.kube.cache import ObjectCache
from podpool.runtime.transport import Unreachable

ADD_CHAIN_SECONDS = 600.0
"""Seconds within which a runtime lists a sandbox after its first ADD, at the latest."""
LIST_TIMEOUT = 10.0
"""Seconds within which the runtime must list its sandboxes."""
MASS_LOSS_SHARE, MASS_LOSS_MINIMUM = 0.3, 5
UNREACHABLE = "cannot list the runtime's sandboxes, lost DELs are found by Pods alone; check --cri-socket"
FOREIGN = "the runtime lists no sandbox of this node, lost DELs are found by Pods alone; check --cri-socket"


class SandboxInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one interface, and what the ADD named. Another ADD makes it another value."""

    attachment: Attachment
    pod: str
    """Namespace/name."""
    pod_uid: str
    netns: str
    added: float
    """When the ADD came, on the boot clock; 0 if that is not known."""
    addresses: tuple[str, ...]

    @property
    def sandbox(self) -> str:
        """The ID of the sandbox."""
        return self.attachment.container_id


class SandboxSource(Protocol):
    """Knows which sandboxes have addresses."""

    def interfaces(self) -> Iterable[SandboxInterface]:
        """Return the interfaces with addresses."""

    def has_address(self, attachment: Attachment) -> bool:
        """Return whether an interface has an address, or is about to have one that is stored already."""

    def schedule_release(self, attachment: Attachment) -> None:
        """Release what an interface has, now or later; also if it has nothing."""


class SandboxGC:
    """Observes at an interval, and releases."""

    def __init__(self, deps: AgentDeps, pods: ObjectCache[Pod], sources: Sequence[SandboxSource]) -> None:
        self.released = 0
        """Sandboxes that were released."""
        self.held_back = 0
        """Sandboxes that seem to have ended and are too many at once."""
        self._deps = deps
        self._sources = sources
        self.runtime = RuntimeObservations(deps)
        self._pods = PodObservations(deps, pods)

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            await asyncio.sleep(self._deps.settings.sandbox_gc_interval)
            await self.collect()

    async def collect(self) -> None:
        """Observe once, and release what was observed for long enough."""
        held = [each for _, each in self._held()]
        unlisted = await self.runtime.observe(held, pods=self._pods.uids())
        podless = await self._pods.observe(held)
        gone = await self._deps.netns_gone({each.netns for each in unlisted if each.netns})
        both = podless - self.runtime.listed(podless) | {each for each in unlisted if each.netns in gone}
        lost = self._limit(unlisted | podless, held, both=both)
        still_held = [(source, each) for source, each in self._held() if each in lost]  # no DEL or other ADD since
        for source, each in still_held:
            reason = "the runtime does not list it" if each in unlisted else "its Pod and network namespace are gone"
            self._release(source, each, reason)
        if still_held:
            self.released += len(_sandboxes(each for _, each in still_held))
            self._deps.changes.notify()

    def _release(self, source: SandboxSource, each: SandboxInterface, reason: str) -> None:
        self._deps.log.warning(
            "sandbox ended without a DEL, releasing its addresses",
            pod=each.pod,
            address=",".join(each.addresses),
            sandbox=each.sandbox,
            reason=reason,
        )
        source.schedule_release(each.attachment)

    def _held(self) -> Iterator[tuple[SandboxSource, SandboxInterface]]:
        return ((source, each) for source in self._sources for each in source.interfaces() if each.pod_uid)

    def _limit(
        self, lost: frozenset[SandboxInterface], held: Iterable[SandboxInterface], *, both: frozenset[SandboxInterface]
    ) -> frozenset[SandboxInterface]:
        """Return what to release: of a mass loss, only what two sources show."""
        credible = lost & both if is_mass_loss(len(_sandboxes(lost)), of=len(_sandboxes(held))) else lost
        held_back = len(_sandboxes(lost - credible))
        if held_back > self.held_back:
            self._deps.log.warning(
                "too many sandboxes ended without a DEL at once, waiting until a second source shows it; check that "
                "--cri-socket is the kubelet's runtime",
                count=held_back,
            )
        self.held_back = held_back
        return credible


class RuntimeObservations:
    """Sandboxes that the runtime does not list."""

    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps
        self._started = deps.clock.boot()
        self._last: Mapping[str, str] | None = None
        self._responded = False
        self._listed_once: set[str] = set()
        self._absent = TwoObservations[SandboxInterface](deps.settings.sandbox_gc_delay)
        self.known = 0
        """Sandboxes with addresses in the last list; 0 if the runtime did not respond."""
        self.problem = ""
        """Why the list of the runtime does not count; empty if it does, and without a runtime."""
        self._error = ""
        self.exists = deps.runtime is not None
        """Whether there is a runtime; one that the agent looks for may start later."""

    @property
    def unreachable(self) -> bool:
        """Whether the runtime has not responded to the last request."""
        return self._deps.runtime is not None and self.problem == UNREACHABLE

    @property
    def note(self) -> str:
        """How lost DELs are found if the runtime does not show them; empty if it does."""
        if not self.exists:
            return "no CRI socket, lost DELs are found by Pods alone"
        return f"{self.problem} ({self._error})" if self._error else self.problem

    def listed(self, interfaces: frozenset[SandboxInterface]) -> frozenset[SandboxInterface]:
        """Return those of listed sandboxes: all while the runtime does not respond, none if it never did."""
        if not self._responded:
            return frozenset()  # no runtime, or the socket of one without CRI
        last = self._last
        return interfaces if last is None else frozenset(each for each in interfaces if each.sandbox in last)

    async def observe(self, held: Sequence[SandboxInterface], *, pods: frozenset[str]) -> frozenset[SandboxInterface]:
        """List the sandboxes; return those of `held` that were absent for long enough. `pods` are UIDs of the node."""
        now, self._last = self._deps.clock.boot(), await self.list_sandboxes()
        self._responded = self._responded or self._last is not None
        known = _sandboxes(held)
        self.known = len(known.intersection(self._last or ()))
        if self._last is None or not self._is_credible(self._last, held, pods=pods, now=now):
            return frozenset()
        self._listed_once = self._listed_once & known | known.intersection(self._last)
        absent = [each for each in held if each.sandbox not in self._last and self._was_listed(each, now=now)]
        ended = await self._without_namespace(absent)
        return frozenset(self._absent.observe(ended, now=now))

    async def _without_namespace(self, absent: Sequence[SandboxInterface]) -> list[SandboxInterface]:
        """Return those whose network namespace is not known to exist."""
        present = await present_netns({each.netns for each in absent if each.netns}, self._deps.netns_gone)
        return [each for each in absent if each.netns not in present]

    def _is_credible(
        self, listed: Mapping[str, str], held: Sequence[SandboxInterface], *, pods: frozenset[str], now: float
    ) -> bool:
        """Return whether the list contains a sandbox of this agent, or of a Pod of this node."""
        credible = not _sandboxes(held).isdisjoint(listed) or not pods.isdisjoint(listed.values())
        foreign = not credible and any(self._was_listed(each, now=now) for each in held)
        self._report(FOREIGN if foreign else "")
        return credible

    def _was_listed(self, each: SandboxInterface, *, now: float) -> bool:
        return each.sandbox in self._listed_once or now - (each.added or self._started) >= ADD_CHAIN_SECONDS

    async def list_sandboxes(self) -> Mapping[str, str] | None:
        """Return the Pod UID of each sandbox by its ID; None without a runtime, and if it does not respond."""
        if self._deps.runtime is None:
            return None
        try:
            async with asyncio.timeout(LIST_TIMEOUT):
                listed = await self._deps.runtime.list_sandboxes()
        except (Unreachable, TimeoutError) as error:
            self.exists = True
            self._report(UNREACHABLE, error=str(error) or "timeout")
            return None
        self.exists = listed is not None
        return listed

    def _report(self, problem: str, *, error: str = "") -> None:
        """Log a change: the runtime is asked at every interval."""
        before, self.problem, self._error = self.problem, problem, error
        if problem and problem != before:
            self._deps.log.warning(problem, **({"error": error} if error else {}))
        elif before and not problem:
            self._deps.log.info("the runtime lists its sandboxes again")


class PodObservations:
    """Sandboxes without Pod and without network namespace."""

    def __init__(self, deps: AgentDeps, pods: ObjectCache[Pod]) -> None:
        self._deps = deps
        self._pods = pods
        self._absent = TwoObservations[SandboxInterface](deps.settings.sandbox_gc_delay)

    def uids(self) -> frozenset[str]:
        """Return the UIDs of the node's unfinished Pods, as far as they are listed."""
        return pod_uids(self._pods.values())

    async def observe(self, held: Sequence[SandboxInterface]) -> frozenset[SandboxInterface]:
        """Return those of `held` that were absent for long enough."""
        if not self._pods.synced.is_set():
            return frozenset()
        now, present = self._deps.clock.boot(), self.uids()
        podless = [each for each in held if each.pod_uid not in present]
        gone = await self._deps.netns_gone({each.netns for each in podless if each.netns})
        return frozenset(self._absent.observe([each for each in podless if each.netns in gone], now=now))


def pod_uids(pods: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of unfinished Pods as the runtime has them: of a static Pod, the hash of its configuration."""
    metas = [pod.metadata for pod in pods if pod.status.phase not in FINISHED]
    return frozenset(uid for meta in metas for uid in (meta.uid, meta.annotations.config_hash) if uid)


def is_mass_loss(lost: int, *, of: int) -> bool:
    """Return whether so many are lost at once that one source is not enough."""
    return lost >= MASS_LOSS_MINIMUM and lost > MASS_LOSS_SHARE * of


def _sandboxes(interfaces: Iterable[SandboxInterface]) -> frozenset[str]:
    return frozenset(each.sandbox for each in interfaces)
