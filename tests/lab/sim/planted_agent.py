"""Bugs to plant in the agent: each omits one rule. They use private names, as a bug would."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps
from podpool.agent.fence import Fence
from podpool.agent.journal_reader import JournalContents
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.pool import Pool
from podpool.agent.pool_ipam import PoolIPAM
from podpool.agent.pool_monitor import PoolMonitor
from podpool.agent.records import AnyRecord, Assigned, NodeConfirmed, PoolGrant, ReleasePending, Snapshot, Started
from podpool.agent.scaling_decision import NNCPatch, ScalingInputs
from podpool.agent.scaling_input_collector import InputCollector
from podpool.agent.state import AgentState
from podpool.api.azure import NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import NODES
from podpool.core.cooldown_levels import CooldownInForce
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable

JOURNAL_DELAY = 0.5
"""Seconds by which a record is journalled too late."""


def _journal_late(patch: pytest.MonkeyPatch, kind: type[AnyRecord], *, delay: float) -> None:
    write = AgentState.write

    def late(state: AgentState, record: AnyRecord) -> None:
        if isinstance(record, kind):
            state._apply(record)
            asyncio.get_running_loop().call_later(delay, state.journal.append, record)
        else:
            write(state, record)

    patch.setattr(AgentState, "write", late)


def adds_are_answered_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """An ADD is answered at once, and journalled half a second later."""
    _journal_late(patch, Assigned, delay=JOURNAL_DELAY)


def the_underlay_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every address of a status is assigned at once."""
    patch.setattr(Pool, "_programmed", lambda _pool, _grant: True)


def releases_are_sent_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """A patch with releases is sent, and they are journalled long after its response."""
    _journal_late(patch, ReleasePending, delay=20.0)


def a_reboot_drops_the_journal(patch: pytest.MonkeyPatch) -> None:
    """The journal of another boot is dropped, and patches have no precondition, which would protect releases too."""
    opened, merge = AgentState.open, KubeClient.merge_patch

    def open_empty(state: AgentState, *, boot_id: str) -> JournalContents[AnyRecord]:
        found = opened(state, boot_id=boot_id)
        boots = [each.boot_id for each in found.records if isinstance(each, Started | Snapshot)]
        if boots and boots[-1] != boot_id:
            for record in (Snapshot(), Started(boot_id=boot_id, boot=0.0, wall=0.0)):
                state._apply(record)
        return found

    async def at_any_version(kube: KubeClient, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  passed on
        return await merge(kube, *args, **{**kwargs, "precondition": None})

    patch.setattr(AgentState, "open", open_empty)
    patch.setattr(KubeClient, "merge_patch", at_any_version)


def releases_are_those_of_the_list(patch: pytest.MonkeyPatch) -> None:
    """After a start, a pending release that the NNC does not show is dropped."""
    observe = NNCTracker.observe

    def observe_and_drop(own: NNCTracker, config: NodeNetworkConfig | None, *, quorum: bool = False) -> None:
        first = own.newest is None and config is not None
        observe(own, config, quorum=quorum)
        pool = own._state.pool
        for name in [
            each for each in pool.pending_release if first and config and each not in config.spec.pending_release
        ]:
            pool.grants.unused[name] = pool.grants.pending_release.pop(name)

    patch.setattr(NNCTracker, "observe", observe_and_drop)


def an_add_starts_no_confirmation(patch: pytest.MonkeyPatch) -> None:
    """A closed fence stays closed until the next periodic confirmation."""
    patch.setattr(NodeConfirmation, "on_add", lambda _confirmation, _fence: None)
    patch.setattr(NodeConfirmation, "_waiting_adds", lambda _confirmation: [])


def no_cooldown_after_a_reboot(patch: pytest.MonkeyPatch) -> None:
    """An address that a Pod used before the reboot is available at once."""
    start = Pool._start

    def start_available(pool: Pool, record: Started) -> None:
        rebooted = record.boot_id != pool.boot_id
        start(pool, record)
        if rebooted:
            used = pool.grants.used
            pool.grants.unused.update(
                {each: msgspec.structs.replace(grant, since=-1e9, used=False) for each, grant in used.items()}
            )
            used.clear()
            pool.cooldown_forced_at = None

    patch.setattr(Pool, "_start", start_available)


def a_reboot_forgets_the_version(patch: pytest.MonkeyPatch) -> None:
    """After a reboot any status is accepted."""
    start = Pool._start

    def start_at_version_zero(pool: Pool, record: Started) -> None:
        rebooted = record.boot_id != pool.boot_id
        start(pool, record)
        if rebooted and pool.nc:
            pool.nc = msgspec.structs.replace(pool.nc, version=0)

    patch.setattr(Pool, "_start", start_at_version_zero)


def releases_are_withdrawn(patch: pytest.MonkeyPatch) -> None:
    """When Pods need addresses again, pending releases become available."""
    send = PoolMonitor._send

    async def withdraw_and_send(monitor: PoolMonitor, inputs: ScalingInputs, change: NNCPatch, **kwargs: Any) -> None:  # noqa: ANN401  passed on
        pool = monitor._state.pool
        if change.request > inputs.spec.requested:
            pool.grants.unused.update(pool.grants.pending_release)
            pool.grants.pending_release.clear()
        await send(monitor, inputs, change, **kwargs)

    patch.setattr(PoolMonitor, "_send", withdraw_and_send)


def versions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The last status read is accepted, whatever its version."""
    accept = Pool._accept

    def accepts(pool: Pool, container: NetworkContainer) -> bool:
        return container.id == pool.adopted_nc and container != pool.nc

    def accept_any(pool: Pool, container: NetworkContainer, *, at: float) -> None:
        pool.nc = None
        accept(pool, container, at=at)

    patch.setattr(Pool, "accepts", accepts)
    patch.setattr(Pool, "_accept", accept_any)


def the_fence_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent assigns addresses without a recent confirmation."""
    patch.setattr(Fence, "is_open", lambda _: True)


def a_confirmation_counts_from_its_response(patch: pytest.MonkeyPatch) -> None:
    """However long its reads took."""
    write = AgentState.write

    def write_now(state: AgentState, record: AnyRecord) -> None:
        clock = state._clock
        write(
            state, NodeConfirmed(boot=clock.boot(), wall=clock.wall()) if isinstance(record, NodeConfirmed) else record
        )

    patch.setattr(AgentState, "write", write_now)


def an_add_without_a_choice_ignores_the_cooldown(patch: pytest.MonkeyPatch) -> None:
    """It gets an address that was used a moment ago if the pool has no other."""
    cooldown = InputCollector.cooldown

    def no_shortest(inputs: InputCollector) -> CooldownInForce:
        return msgspec.structs.replace(cooldown(inputs), shortest=0.0)

    patch.setattr(InputCollector, "cooldown", no_shortest)


def the_last_used_address_is_assigned_first(patch: pytest.MonkeyPatch) -> None:
    """The pool is a stack, and an address is used again after the shortest cooldown."""
    available = Pool.next_available

    def newest(pool: Pool, *, now: float, cooldown: CooldownInForce, **kwargs: Any) -> PoolGrant | None:  # noqa: ANN401  passed on
        cooled = [each for each in pool.grants.used.values() if each.since + cooldown.shortest <= now]
        return cooled[-1] if cooled else available(pool, now=now, cooldown=cooldown, **kwargs)

    patch.setattr(Pool, "next_available", newest)


def a_delete_releases_nothing(patch: pytest.MonkeyPatch) -> None:
    """A DEL ends the waiting ADD of its sandbox, and releases no address."""
    patch.setattr(PoolIPAM, "schedule_release", lambda ipam, attachment: ipam.queue.cancel(attachment))


def an_agent_patches_without_a_change(patch: pytest.MonkeyPatch) -> None:
    """With every confirmation it patches its Node without a change."""
    confirm = NodeConfirmation._confirm

    async def confirm_and_patch(confirmation: NodeConfirmation) -> bool:
        confirmed = await confirm(confirmation)
        await confirmation._deps.kube.merge_patch(NODES, confirmation._deps.node, {"metadata": {}})
        return confirmed

    patch.setattr(NodeConfirmation, "_confirm", confirm_and_patch)


def any_node_of_the_name_confirms(patch: pytest.MonkeyPatch) -> None:
    """The NNC, its owner and its NC are not compared."""
    confirm = NodeConfirmation._confirm

    async def confirm_by_name(confirmation: NodeConfirmation) -> bool:
        deps = confirmation._deps
        boot, wall = deps.clock.boot(), deps.clock.wall()
        confirmed = await confirm(confirmation)
        if not confirmed and confirmation._state.pool.adopted_nc:
            try:
                await deps.kube.get(NODES, deps.node)
            except (ApiError, Unreachable):
                return False
            confirmation._state.write(NodeConfirmed(boot=boot, wall=wall))
        return confirmed

    patch.setattr(NodeConfirmation, "_confirm", confirm_by_name)


def every_nc_is_adopted(patch: pytest.MonkeyPatch) -> None:
    """An agent adopts whatever NC its NNC shows, and reports none as its own."""
    for module in ("fence", "scaling_input_collector"):
        patch.setattr(f"podpool.agent.{module}.shows_other_nc", lambda _, pool: False)  # noqa: ARG005  as it is called


def an_nc_is_never_closed(patch: pytest.MonkeyPatch) -> None:
    """The agent adopts an NC of the NNC that it had closed."""
    adopt = Pool._adopt

    def adopt_again(pool: Pool, container: str) -> None:
        adopt(pool, container)
        pool.closed_ncs.clear()

    patch.setattr(Pool, "_adopt", adopt_again)
    every_nc_is_adopted(patch)


def a_bookmark_confirms(patch: pytest.MonkeyPatch) -> None:
    """A bookmark of the watch of its Node counts as a confirmation when it is read."""
    agents: dict[KubeClient, Agent] = {}
    init, watch = Agent.__init__, KubeClient.watch

    def init_and_record(agent: Agent, deps: AgentDeps, *args: Any) -> None:  # noqa: ANN401  passed on
        init(agent, deps, *args)
        agents[deps.kube] = agent

    async def watch_and_confirm(kube: KubeClient, kind: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401  passed on
        async with aclosing(watch(kube, kind, **kwargs)) as changes:
            async for change in changes:
                agent = agents.get(kube)
                if agent and kind is NODES and change.type == "BOOKMARK":
                    clock = agent._deps.clock
                    agent._state.write(NodeConfirmed(boot=clock.boot(), wall=clock.wall()))
                    agent._deps.changes.notify()
                yield change

    patch.setattr(Agent, "__init__", init_and_record)
    patch.setattr(KubeClient, "watch", watch_and_confirm)


def the_agent_scales_before_the_pods_are_listed(patch: pytest.MonkeyPatch) -> None:
    """It assumes that there is no Pod."""
    init = Agent.__init__

    def init_synced(agent: Agent, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  passed on
        init(agent, *args, **kwargs)
        agent._informers.pods.cache.synced.set()

    patch.setattr(Agent, "__init__", init_synced)
