"""The agent of one node, wired together.

    Pods, Node, NNC, subnet (watches) -> ScalingInputs -> decision -> NNC patch      monitor
    NNC status -> pool -> those who wait                                    config, dynamic
    what works by now -> pool                                               underlay
    plugin's frame -> pool or networks -> journal -> answer                 plugin, dynamic, networks
    Node and NNC (quorum reads) -> fence                                    confirmation
    Pods that wait in vain -> Node condition, taint, Event                  shortage

`run` until cancelled; `handle` answers frames meanwhile. A cancelled agent ends in good order, so that its node's
addresses need not rest when the machine starts again.
"""

import asyncio
import math
import random

from podpool.agent.cni_handler import CNIHandler
from podpool.agent.demand import Demand
from podpool.agent.deps import AgentDeps
from podpool.agent.disk_retry import DiskRetry
from podpool.agent.fence import Fence
from podpool.agent.journal import SEGMENT
from podpool.agent.lost_grant_gc import APART, LostGrantGC
from podpool.agent.metrics import MetricsSnapshot
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.node_condition import NodeConditionReporter
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.notices import Tell, to_log
from podpool.agent.pool import Pool
from podpool.agent.pool_ipam import PoolIPAM
from podpool.agent.pool_monitor import TICK, Monitor
from podpool.agent.records import LostGrantsCleared, PodIdentity
from podpool.agent.scaling import Mode, ScalingInputs
from podpool.agent.scaling_inputs import InputCollector
from podpool.agent.secondary.networks import SecondaryNetworks
from podpool.agent.secondary.router import ReadFile
from podpool.agent.state import AgentState
from podpool.agent.subnet_informer import NAMESPACE, Subnets
from podpool.agent.underlay import Underlay
from podpool.agent.underlay_poller import UnderlayPoller
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS, Pod
from podpool.cni.protocol import Attachment
from podpool.core.errors import PodpoolError
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.events import EventRecorder
from podpool.kube.informer import Informer
from podpool.kube.object_informer import ObjectInformer
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk

LATE_DELETES = 15.0
"""Seconds between two looks for DELs that a plugin left while this agent ran but did not answer it."""


class AgentStopped(PodpoolError):
    """The agent has ended: whoever asks must ask its successor."""


class Agent:
    """One node's agent. `nodes` is about how many share the subnet: they give back one after the other.

    With a `recorder`, which it runs, it writes Events; with `taint` further Pods are kept away from a node whose subnet
    is short. With `pools`, the namespace of Whereabouts' objects, it also serves networks with ranges of their own;
    `foreign` when plugins of Whereabouts itself may be at work there, on any node. With an `underlay` nothing is given
    that it does not know. The journal is made short after `segment` bytes.
    """

    def __init__(  # noqa: PLR0913  everything is handed in
        self,
        node: str,
        kube: KubeClient,
        *,
        disk: Disk,
        clock: Clock,
        rng: random.Random,
        boot_id: str,
        settings: Settings | None = None,
        deletes: Disk | None = None,
        nodes: int = 100,
        mode: Mode = Mode.PODS,
        taint: bool = False,
        recorder: EventRecorder | None = None,
        tell: Tell | None = None,
        pools: str = "",
        foreign: bool = True,
        read_file: ReadFile = lambda _path: None,
        underlay: Underlay | None = None,
        segment: int = SEGMENT,
    ) -> None:
        self.node = node
        self._boot_id = boot_id
        self._recorder = recorder
        self._clock = clock
        self._settings = settings = settings or Settings()
        self._tell = tell = tell or to_log(node)
        deps = AgentDeps(node=node, kube=kube, clock=clock, rng=rng, settings=settings, tell=tell, mode=mode)
        self._deps = deps
        self._state = AgentState(disk, clock, fence_limit=settings.fence, underlay=underlay is not None, segment=segment)
        self._asking = UnderlayPoller(deps, self._state, underlay) if underlay else None
        self._refusals = DiskRetry(self._state.journal, tell=tell)
        self._config = NNCTracker(self._state, clock, tell)
        demand = Demand()
        self._subnets = Subnets(kube, rng=rng, settings=settings, changed=self._changed)
        self._pods: Informer[Pod] = Informer(
            kube, PODS, rng=rng, fields=f"spec.nodeName={node}", trust=settings.relist_interval
        )
        self._pods.store.subscribe(self._pod_changed)
        self._own_node = ObjectInformer(kube, NODES, node, rng=rng, trust=settings.relist_interval, changed=self._node_changed)
        self._own_config = ObjectInformer(
            kube,
            NODE_NETWORK_CONFIGS,
            node,
            rng=rng,
            namespace=NAMESPACE,
            trust=settings.relist_interval,
            changed=self._config_changed,
        )
        self._outlook = outlook = InputCollector(
            deps,
            state=self._state,
            config=self._config,
            subnets=self._subnets,
            demand=demand,
            pods=self._pods.store,
            own_node=self._own_node,
            own_config=self._own_config,
            waiting=self._waiting,
            boot_id=boot_id,
        )
        self._shortage = NodeConditionReporter(
            deps, taint=taint, recorder=recorder, node=lambda: self._own_node.object, why=outlook.why_none
        )
        self._monitor = Monitor(
            deps,
            state=self._state,
            config=self._config,
            see=self._look,
            testify=outlook.statement,
            nodes=nodes,
            asked=self._asked,
        )
        self._networks: SecondaryNetworks | None = None
        if pools:
            self._networks = SecondaryNetworks(
                deps,
                self._state,
                disk,
                namespace=pools,
                foreign=foreign,
                boot_id=boot_id,
                pods=lambda: self._pods.store.values() if self._pods.store.synced.is_set() else None,
                read_file=read_file,
            )
        self._confirmation = NodeConfirmation(
            deps,
            state=self._state,
            config=self._config,
            slices=self._networks.owned_by if self._networks else None,
            changed=self._changed,
        )
        self._dynamic = PoolIPAM(
            deps,
            self._state,
            demand=demand,
            rest=outlook.rest,
            why_none=outlook.why_none,
            changed=self._changed,
        )
        self._plugin = CNIHandler(
            self._dynamic,
            self._networks,
            deletes=deletes,
            closed=lambda: None if self._opened else self._refusals.standing,
            missing=outlook.not_yet,
            changed=self._changed,
            tell=tell,
        )
        self._exhaustions: dict[bool, int] = {}
        self._exhausted: bool | None = None
        self.able = asyncio.Event()
        """Set when it could give addresses of the node's own pool for the first time."""
        self._begun = asyncio.Event()
        self._opened = False
        self._stirred = asyncio.Event()
        self._ended = False

    @property
    def pool(self) -> Pool:
        """The node's addresses, to look at."""
        return self._state.pool

    @property
    def fenced(self) -> bool:
        """Tell whether new addresses are withheld because the Node is not confirmed."""
        return not self._fence.is_open()

    def missing(self) -> str | None:
        """Tell what stands in the way of giving addresses; None when nothing does, but that there may be none left."""
        if self._refusals.standing:
            return self._refusals.standing
        if self._networks and self._fence is self._state.node_fence:
            return self._networks.missing()
        return self._outlook.not_yet()

    @property
    def _fence(self) -> Fence:
        """The fence that counts: a node that never had a container is in a cluster of the other networks alone."""
        bare = self._own_config.known and self._own_config.object is None and not self.pool.adopted
        return self._state.node_fence if self._networks and bare else self._state.fence

    def picture(self) -> MetricsSnapshot:
        """Tell how things stand, for metrics."""
        pool, config = self.pool, self._config.newest
        now, rest = self._clock.boot(), self._outlook.rest()
        shown = config.status.network_containers if config else ()
        resting = {each.id for each in pool.not_rested(now=now, rest=rest)}
        unprogrammed = {each.id for each in pool.unprogrammed()} - resting
        return MetricsSnapshot(
            containers=shown,
            terms=self._outlook.terms(),
            requested=config.spec.requested if config else 0,
            primaries=sum(bool(each.primary_ip) for each in shown),
            listed=pool.listed,
            assigned=len(pool.holdings),
            available=pool.free - len(resting) - len(unprogrammed),
            resting=len(resting),
            unprogrammed=len(unprogrammed),
            named=len(pool.named),
            left_out=len(pool.left_out),
            dropped=sum(each.dropped for each in pool.holdings.values()),
            waiting_adds=len(self._dynamic.queue) + (len(self._networks.sliced.queue) if self._networks else 0),
            waiting_pods=self._shortage.waiting,
            fence_age=self._fence.age(),
            fenced=self.fenced,
            journal_bytes=self._state.journal.size,
            journal_records=self._state.journal.appended,
            silence=self._silence(),
            exhaustions=dict(self._exhaustions),
            slices=self._networks.pictures() if self._networks else (),
        )

    def _silence(self) -> dict[str, float]:
        heard = {
            "pods": self._pods.heard,
            "node": self._own_node.heard,
            "networkconfig": self._own_config.heard,
            "subnet": self._subnets.heard,
            **(self._networks.heard() if self._networks else {}),
        }
        now = asyncio.get_running_loop().time()
        return {watch: math.inf if at is None else now - at for watch, at in heard.items()}

    async def handle(self, frame: bytes) -> bytes:
        """Answer the body of a plugin's frame with the body of the answer; raises `AgentStopped`."""
        await self._begun.wait()
        if self._ended:
            raise AgentStopped(f"the agent of {self.node} has ended")
        return await self._plugin.handle(frame)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._refusals.outlast(self._open)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._refusals.outlast(self._state.run))
                group.create_task(self._refusals.outlast(self._work))
        finally:
            self._ended = True
            await self._stop()

    async def _work(self) -> None:
        self._plugin.work_through()
        self._changed()
        async with asyncio.TaskGroup() as group:
            for part in (self._pods, self._own_node, self._own_config, self._subnets):
                group.create_task(part.run())
            group.create_task(self._pods_listed())
            group.create_task(self._shortage.run())
            if self._recorder:
                group.create_task(self._recorder.run())
            group.create_task(self._confirmation.run())
            group.create_task(self._monitor.run())
            group.create_task(self._serve())
            group.create_task(self._work_through())
            group.create_task(self._recall())
            if self._networks:
                group.create_task(self._networks.run())
            if self._asking:
                group.create_task(self._asking.run(self._changed))

    async def _open(self) -> None:
        try:
            found = self._state.open(boot_id=self._boot_id)
        finally:
            self._begun.set()
        self._opened = True
        if found.damaged:
            self._tell("the journal is damaged: every address rests once, and Pods' addresses may be forgotten")
        elif found.torn:
            self._tell(f"the journal's last {found.torn} bytes were torn and are cut off: nobody was answered on them")

    async def _stop(self) -> None:
        try:
            await self._state.stop()
        except OSError as error:
            self._tell(f"that it ended in good order cannot be written: after a reboot every address rests: {error}")

    async def _pods_listed(self) -> None:
        await self._pods.store.synced.wait()
        self._changed()

    async def _serve(self) -> None:
        """Give addresses to those who wait when some have rested; everything else serves them at once."""
        while True:
            self._stirred.clear()
            now = self._clock.boot()
            rested = self.pool.rested_next(now=now, rest=self._outlook.rest())
            try:
                async with asyncio.timeout(None if rested is None else max(rested - now, TICK)):
                    await self._stirred.wait()
            except TimeoutError:
                self._changed()

    async def _work_through(self) -> None:
        while True:
            await asyncio.sleep(LATE_DELETES)
            self._plugin.work_through()

    async def _recall(self) -> None:
        recollection = LostGrantGC()
        while True:
            await asyncio.sleep(APART)
            if self.pool.forgotten and self._pods.store.synced.is_set():
                pods, now = self._pods.store.values(), self._clock.boot()
                grants = recollection.look(self.pool, pods, self._dynamic.asked, now=now)
                if grants:
                    self._state.write(LostGrantsCleared(grants=grants, at=now))
                    self._changed()

    # What changes

    def _changed(self) -> None:
        if self.pool.container:
            self._subnets.follow(self.pool.container.subnet_name)
        if not self.able.is_set() and self._outlook.not_yet() is None:
            self.able.set()
        self._dynamic.serve()
        if self._asking:
            self._asking.changed()
        if self._networks:
            self._networks.changed()
        self._monitor.changed()
        self._stirred.set()

    def _config_changed(self) -> None:
        self._config.see(self._own_config.object)
        self._confirmation.nudge()
        self._changed()

    def _node_changed(self) -> None:
        if self._networks:
            self._networks.node_changed(self._own_node.object)
        self._confirmation.nudge()
        self._changed()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is None or new is None or _matters(old) != _matters(new):
            self._changed()

    def _asked(self) -> None:
        self._confirmation.nudge()
        self._changed()

    # What is

    def _look(self) -> ScalingInputs | None:
        """Put together what a decision depends on, and what others must know of it."""
        view = self._outlook.view()
        if view is not None:
            self._shortage.look(view.waiting)
            if self._exhausted is not view.terms.exhausted:
                self._exhausted = view.terms.exhausted
                self._exhaustions[self._exhausted] = self._exhaustions.get(self._exhausted, 0) + 1
        return view

    def _waiting(self) -> dict[Attachment, PodIdentity]:
        return self._dynamic.waiting()


def _matters(pod: Pod) -> tuple[bool, bool, str]:
    return pod.needs_address, pod.metadata.deletion_timestamp is not None, pod.metadata.uid
