"""Bugs to plant in the agent: each leaves out one rule. They know private names, as a bug would."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps
from podpool.agent.fence import Fence
from podpool.agent.journal import JournalContents
from podpool.agent.pool_monitor import PoolMonitor
from podpool.agent.scaling import ScalingInputs, NNCPatch
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.pool import Pool
from podpool.agent.pool_ipam import PoolIPAM
from podpool.agent.records import AnyRecord, Assigned, NodeConfirmed, ReleasePending, Snapshot, Started
from podpool.agent.scaling_inputs import InputCollector
from podpool.agent.state import AgentState
from podpool.api.azure import NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import NODES
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable

LATE = 0.5
"""Seconds by which something is written down too late."""


def _written_late(patch: pytest.MonkeyPatch, kind: type[AnyRecord], *, by: float) -> None:
    write = AgentState.write

    def late(state: AgentState, record: AnyRecord) -> None:
        if isinstance(record, kind):
            state._apply(record)
            asyncio.get_running_loop().call_later(by, state.journal.append, record)
        else:
            write(state, record)

    patch.setattr(AgentState, "write", late)


def answered_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """An ADD is answered at once, and written down half a second later."""
    _written_late(patch, Assigned, by=LATE)


def the_underlay_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Whatever a status shows is given at once."""
    patch.setattr(Pool, "_programmed", lambda _pool, _grant: True)


def named_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """A patch that names grants is sent, and the names are written down when it must have been answered."""
    _written_late(patch, ReleasePending, by=20.0)


def a_reboot_voids_everything(patch: pytest.MonkeyPatch) -> None:
    """The journal of another boot is thrown away, and patches have no precondition, which would save the names too."""
    opened, merge = AgentState.open, KubeClient.merge_patch

    def thrown_away(state: AgentState, *, boot_id: str) -> JournalContents[AnyRecord]:
        read = state.journal.open

        def of_this_boot() -> JournalContents[AnyRecord]:
            found = read()
            boots = [each.boot_id for each in found.records if isinstance(each, Started | Snapshot)]
            return JournalContents() if boots and boots[-1] != boot_id else found

        state.journal.open = of_this_boot  # type: ignore[method-assign]  # for this once
        return opened(state, boot_id=boot_id)

    async def at_any_version(kube: KubeClient, *words: Any, **others: Any) -> Any:  # noqa: ANN401  passed on
        return await merge(kube, *words, **{**others, "precondition": None})

    patch.setattr(AgentState, "open", thrown_away)
    patch.setattr(KubeClient, "merge_patch", at_any_version)


def names_are_what_the_list_shows(patch: pytest.MonkeyPatch) -> None:
    """After a start, a name that the NNC does not show was never given."""
    observe = NNCTracker.observe

    def forgetful(own: NNCTracker, config: NodeNetworkConfig | None, *, quorum: bool = False) -> None:
        first = own.newest is None and config is not None
        observe(own, config, quorum=quorum)
        pool = own._state.pool
        for name in [each for each in pool.pending_release if first and config and each not in config.spec.pending_release]:
            pool.grants.unused[name] = pool.grants.pending_release.pop(name)

    patch.setattr(NNCTracker, "observe", forgetful)


def no_rest_after_a_reboot(patch: pytest.MonkeyPatch) -> None:
    """What a Pod used before the reboot is given again at once."""
    start = Pool._start

    def fresh(pool: Pool, record: Started) -> None:
        rebooted = record.boot_id != pool.boot_id
        start(pool, record)
        if rebooted:
            used = pool.grants.used
            pool.grants.unused.update(
                {each: msgspec.structs.replace(grant, since=-1e9, used=False) for each, grant in used.items()}
            )
            used.clear()
            pool._cooldown_forced_at = None

    patch.setattr(Pool, "_start", fresh)


def a_reboot_forgets_the_version(patch: pytest.MonkeyPatch) -> None:
    """After a reboot any status is news."""
    start = Pool._start

    def forgetful(pool: Pool, record: Started) -> None:
        rebooted = record.boot_id != pool.boot_id
        start(pool, record)
        if rebooted and pool.nc:
            pool.nc = msgspec.structs.replace(pool.nc, version=0)

    patch.setattr(Pool, "_start", forgetful)


def names_are_taken_back(patch: pytest.MonkeyPatch) -> None:
    """When Pods need addresses again, those that were named for release are the first to be used."""
    ask = PoolMonitor._send

    async def greedy(monitor: PoolMonitor, inputs: ScalingInputs, change: NNCPatch, **others: Any) -> None:  # noqa: ANN401  passed on
        pool = monitor._state.pool
        if change.request > inputs.spec.requested:
            pool.grants.unused.update(pool.grants.pending_release)
            pool.grants.pending_release.clear()
        await ask(monitor, inputs, change, **others)

    patch.setattr(PoolMonitor, "_send", greedy)


def versions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The last status that was read is believed, whatever its version."""
    accept = Pool._accept

    def accepts(pool: Pool, container: NetworkContainer) -> bool:
        return container.id == pool.adopted_nc and container != pool.nc

    def accept_any(pool: Pool, container: NetworkContainer, *, at: float) -> None:
        pool.nc = None
        accept(pool, container, at=at)

    patch.setattr(Pool, "accepts", accepts)
    patch.setattr(Pool, "_accept", accept_any)


def the_fence_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent gives addresses although it has not confirmed its Node for long."""
    patch.setattr(Fence, "is_open", lambda _: True)


def a_confirmation_counts_from_its_answer(patch: pytest.MonkeyPatch) -> None:
    """It is not older than when it was heard, however long the reads took."""
    write = AgentState.write

    def heard(state: AgentState, record: AnyRecord) -> None:
        clock = state._clock
        write(state, NodeConfirmed(boot=clock.boot(), wall=clock.wall()) if isinstance(record, NodeConfirmed) else record)

    patch.setattr(AgentState, "write", heard)


def only_the_floor_is_rested(patch: pytest.MonkeyPatch) -> None:
    """An address rests for the floor, whether the subnet is exhausted or not."""
    patch.setattr(InputCollector, "cooldown", lambda inputs: inputs._deps.settings.cooldown_exhausted)


def a_delete_is_answered_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A DEL ends the waiting of its sandbox, and takes nothing back."""
    patch.setattr(PoolIPAM, "delete", lambda ipam, attachment: ipam.queue.cancel(attachment))


def an_agent_writes_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """With every confirmation it patches its Node, and changes nothing by it."""
    confirm = NodeConfirmation._confirm

    async def telling(confirmation: NodeConfirmation) -> bool:
        confirmed = await confirm(confirmation)
        await confirmation._deps.kube.merge_patch(NODES, confirmation._deps.node, {"metadata": {}})
        return confirmed

    patch.setattr(NodeConfirmation, "_confirm", telling)


def any_node_of_the_name_confirms(patch: pytest.MonkeyPatch) -> None:
    """Neither the NNC nor its owner nor the container in it is looked at."""
    confirm = NodeConfirmation._confirm

    async def trusting(confirmation: NodeConfirmation) -> bool:
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

    patch.setattr(NodeConfirmation, "_confirm", trusting)


def every_container_is_ours(patch: pytest.MonkeyPatch) -> None:
    """An agent goes on with whatever container its NNC shows, and claims none."""
    for module in ("fence", "scaling_inputs"):
        patch.setattr(f"podpool.agent.{module}.shows_other_nc", lambda _, pool: False)  # noqa: ARG005  as it is called


def a_container_is_never_closed(patch: pytest.MonkeyPatch) -> None:
    """What the NNC shows is this node's, though it was given up before, and nobody said that ours is closed."""
    adopt = Pool._adopt

    def forgiving(pool: Pool, container: str) -> None:
        adopt(pool, container)
        pool.closed_ncs.clear()

    patch.setattr(Pool, "_adopt", forgiving)
    every_container_is_ours(patch)


def a_bookmark_confirms(patch: pytest.MonkeyPatch) -> None:
    """A sign of life from the watch on the own Node counts as a confirmation, when it is read."""
    agents: dict[KubeClient, Agent] = {}
    begin, watch = Agent.__init__, KubeClient.watch

    def known(agent: Agent, deps: AgentDeps, *others: Any) -> None:  # noqa: ANN401  passed on
        begin(agent, deps, *others)
        agents[deps.kube] = agent

    async def lifting(kube: KubeClient, kind: Any, **others: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401  passed on
        async with aclosing(watch(kube, kind, **others)) as changes:
            async for change in changes:
                agent = agents.get(kube)
                if agent and kind is NODES and change.type == "BOOKMARK":
                    clock = agent._deps.clock
                    agent._state.write(NodeConfirmed(boot=clock.boot(), wall=clock.wall()))
                    agent._deps.changes.notify()
                yield change

    patch.setattr(Agent, "__init__", known)
    patch.setattr(KubeClient, "watch", lifting)


def scaled_before_the_pods_are_listed(patch: pytest.MonkeyPatch) -> None:
    """No Pod was seen yet, so there is none."""
    begin = Agent.__init__

    def hasty(agent: Agent, *words: Any, **others: Any) -> None:  # noqa: ANN401  passed on
        begin(agent, *words, **others)
        agent._informers.pods.cache.synced.set()

    patch.setattr(Agent, "__init__", hasty)
