"""SecondaryNetworks beside the node's own, wired together.

plugin's frame -> router -> slices (journal) -> answer                  router, sliced
-> shared ranges (IPPools of all nodes)        classic
IPPools and Leases of this Node (watches) -> slices taken, handed back  pools, keeper
journal -> IPPools                                                      pool_writer
"""

import asyncio
from collections.abc import Sequence

from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.errors import fenced_reason
from podpool.agent.metrics import SliceMetricsSnapshot
from podpool.agent.records import SliceAssigned, SliceRecovered, SliceUnassigned
from podpool.agent.secondary.errors import why_kept_back, why_no_slice
from podpool.agent.secondary.orphan_gc import SliceOrphanGC
from podpool.agent.secondary.router import Router
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
from podpool.agent.secondary.slice_ipam import SliceIPAM
from podpool.agent.secondary.slice_reconciler import SliceReconciler
from podpool.agent.secondary.slice_recovery import SliceRecovery, reported_holders
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.api.builtin import ADDRESSED_PODS, AddressedPod, Node, Pod
from podpool.core.ranges import Prefix
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.kube.cache import Store
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.config import RangeConfig

RECOVERY_INTERVAL = 15.0
"""Seconds between two looks at Pods whose addresses the journal has forgotten."""


class SecondaryNetworks:
    """All sources but the node's own pool."""

    def __init__(self, deps: AgentDeps, options: AgentOptions, state: AgentState, pods: Store[Pod]) -> None:
        namespace, boot_id = options.whereabouts_namespace, deps.boot_id
        self._deps = deps
        self._state = state
        self._pods = pods
        self._strays = SliceOrphanGC()
        self._unsure = SliceRecovery()
        self._keeper = SliceReconciler(deps, state, namespace, boot_id=boot_id, changed=self.changed)
        self.sliced = SliceIPAM(
            deps,
            state,
            usable=self._usable,
            why=self._why,
            touched=self._keeper.touched,
        )
        self._shared = SharedRangeIPAM(
            deps,
            deps.disk,
            namespace=namespace,
            foreign=options.third_party_plugins,
            boot_id=boot_id,
            sliced=self._slice_over,
        )
        self._keeper.pools.restored = self._shared.restored
        self.router = Router(sliced=self.sliced, shared=self._shared, clock=deps.clock, read_file=deps.read_file)

    def node_changed(self, node: Node | None) -> None:
        """Follow the objects of the Node that has our name, and our boot."""
        if node and node.boot_id == self._state.pool.boot_id:
            self._keeper.follow(node)

    def owned_by(self, uid: str) -> bool:
        """Tell whether all slices are known to be of the Node with this UID."""
        return self._keeper.owned_by(uid)

    def changed(self) -> None:
        """Give to those who wait; take what is offered, now that the Node is confirmed."""
        self._keeper.look_if_barred()
        self.sliced.serve()

    def _usable(self, slice_: Slice) -> bool:
        """Tell whether a slice may give: none with an address that a sandbox has through the range as all share it."""
        return self._keeper.usable(slice_) and not self._shared.has_of(slice_.network, slice_.prefix)

    def _why(self, network: str, wanted: RangeConfig) -> str:
        """Say why no slice gives an address of a range."""
        for each in self._state.slices.of(network, wanted.prefix):
            if self._shared.has_of(network, each.prefix):
                return why_kept_back(each.prefix)
        return why_no_slice(self._deps.node, self._keeper.pools, network=network, wanted=wanted)

    def _slice_over(self, network: str, range_: Prefix) -> str:
        over = (each for each in self._state.slices if each.network == network)
        return next((str(each.prefix) for each in over if each.prefix.range.overlaps(range_.range)), "")

    def missing(self) -> str | None:
        """Tell what stands in the way of giving addresses, but that there may be no slice."""
        fence = self._state.node_fence
        return None if fence.is_open() else fenced_reason(self._deps.node, fence.age(), self._deps.settings)

    def heard(self) -> dict[str, float | None]:
        """Tell when each watch last told anything, by the loop's time."""
        return self._keeper.pools.heard()

    def pictures(self) -> tuple[SliceMetricsSnapshot, ...]:
        """Tell how the slices stand."""
        now, rest = self._deps.clock.boot(), self._deps.settings.cooldown
        return tuple(
            SliceMetricsSnapshot(
                network=each.network,
                range=str(each.range),
                slice=str(each.prefix),
                size=each.prefix.usable.size,
                assigned=len(each.held),
                cooling_down=each.resting(now=now, rest=rest),
                lag=self._keeper.lag(each),
            )
            for each in self._state.slices
            if not each.closed
        )

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run())
            group.create_task(self.sliced.run())
            group.create_task(self._shared.run())
            group.create_task(self._look_for_strays())
            group.create_task(self._recollect())

    async def _look_for_strays(self) -> None:
        while True:
            await asyncio.sleep(OBSERVATION_INTERVAL)
            if self._pods.synced.is_set():
                pods = self._pods.values()
                now, asked = self._deps.clock.boot(), self.sliced.asked
                self.sliced.put_back(self._strays.look(self._state.slices, pods, asked, now=now))
                asked.intersection_update(each.key for each in pods)

    async def _recollect(self) -> None:
        while True:
            await asyncio.sleep(RECOVERY_INTERVAL)
            if any(each.unsure for each in self._state.slices):
                try:
                    of_node = f"spec.nodeName={self._deps.node}"
                    pods = (await self._deps.kube.list(ADDRESSED_PODS, fields=of_node)).items
                except (ApiError, Unreachable):
                    continue
                self._recall(pods)

    def _recall(self, pods: Sequence[AddressedPod]) -> None:
        """Take what Pods show for theirs; and when there is no more to come, give the rest again."""
        state, now = self._state, self._deps.clock.boot()
        held = {slot for slot, _ in state.slices.tenants()}
        for slot, tenant in reported_holders(state.slices, pods, self.sliced.asked).items():
            self._deps.tell(f"{slot.address} is {tenant.podref}'s, which the journal had forgotten")
            if slot in held:
                state.write(SliceUnassigned(slots=(slot,), at=now))
            state.write(SliceAssigned(tenant=tenant, slots=(slot,)))
        over = self._unsure.is_over(state.slices, pods, self.sliced.asked, now=now)
        for each in [each for each in state.slices if each.unsure]:
            if over:
                self._deps.tell(f"every Pod has told what it has of slice {each.prefix}: the rest is given again")
                state.write(SliceRecovered(lease=each.lease, at=now))
            self._keeper.touched(each)
        self.sliced.serve()
