"""An agent that cannot confirm its Node assigns no new address."""

import pytest

from podpool.agent.fence import Fence, own_nc, own_report
from podpool.agent.pool import Pool
from podpool.agent.records import NCAdopted, NodeConfirmed, Snapshot, Started
from podpool.api.azure import AGENT_ANNOTATION, NetworkConfigStatus, NodeNetworkConfig
from podpool.api.builtin import Node, NodeStatus, NodeSystemInfo
from podpool.api.meta import ObjectMeta, OwnerReference
from tests.agent.clocks import SetClock
from tests.agent.nc_samples import status

LIMIT = 600.0


def confirmed_fence(clock: SetClock) -> Fence:
    fence = Fence(clock, limit=LIMIT)
    fence.apply(Started(boot_id="boot-1", boot=clock.boot(), wall=clock.wall()))
    fence.apply(NCAdopted(nc="nc-1"))
    fence.apply(NodeConfirmed(boot=clock.boot(), wall=clock.wall()))
    return fence


class TestFence:
    def test_it_is_closed_before_the_first_confirmation(self) -> None:
        assert not Fence(SetClock(), limit=LIMIT).is_open()

    def test_it_is_open_for_the_fence_time_and_no_longer(self) -> None:
        clock = SetClock()
        fence = confirmed_fence(clock)
        clock.pass_time(LIMIT - 0.001)
        assert fence.is_open()
        clock.pass_time(0.001)
        assert not fence.is_open()

    @pytest.mark.parametrize("jump", [LIMIT, -LIMIT, -1_000_000.0])
    def test_the_clock_that_advanced_more_decides(self, jump: float) -> None:
        clock = SetClock()
        fence = confirmed_fence(clock)
        clock.wall_seconds += jump
        assert (jump < 0) == fence.is_open()
        clock.boot_seconds += LIMIT
        assert not fence.is_open()

    def test_a_restart_in_the_same_boot_goes_on_counting(self) -> None:
        clock = SetClock()
        fence = confirmed_fence(clock)
        clock.pass_time(400.0)
        fence.apply(Started(boot_id="boot-1", boot=clock.boot(), wall=clock.wall()))
        assert fence.is_open()
        assert 400.0 == fence.age()

    def test_a_reboot_starts_fenced(self) -> None:
        clock = SetClock()
        fence = confirmed_fence(clock)
        clock.boot_seconds = 0.0
        fence.apply(Started(boot_id="boot-2", boot=0.0, wall=clock.wall()))
        assert not fence.is_open()

    def test_another_nc_needs_its_own_confirmation(self) -> None:
        fence = confirmed_fence(SetClock())
        fence.apply(NCAdopted(nc="nc-1"))
        assert fence.is_open()
        fence.apply(NCAdopted(nc="nc-2"))
        assert not fence.is_open()

    def test_a_damaged_journal_needs_another_confirmation(self) -> None:
        clock = SetClock()
        fence = confirmed_fence(clock)
        fence.apply(Started(boot_id="boot-1", boot=clock.boot(), wall=clock.wall(), damaged=True))
        assert not fence.is_open()

    @pytest.mark.parametrize("node_only", [True, False])
    def test_node_fence_and_nc_fence_open_each_by_their_own_confirmation(self, node_only: bool) -> None:
        clock = SetClock()
        fences = {each: Fence(clock, limit=LIMIT, node_only=each) for each in (True, False)}
        for fence in fences.values():
            fence.apply(NodeConfirmed(boot=clock.boot(), wall=clock.wall(), node_only=node_only))
        assert [node_only] == [each for each, fence in fences.items() if fence.is_open()]

    def test_a_snapshot_restores_it(self) -> None:
        clock = SetClock()
        before = confirmed_fence(clock)
        after = Fence(clock, limit=LIMIT)
        after.apply(Snapshot(boot_id="boot-1", adopted_nc="nc-1", confirmed=before.confirmed))
        after.apply(Started(boot_id="boot-1", boot=clock.boot(), wall=clock.wall()))
        assert after.is_open()


def node(*, uid: str = "uid-1", boot_id: str = "boot-1") -> Node:
    return Node(metadata=ObjectMeta(uid=uid), status=NodeStatus(node_info=NodeSystemInfo(boot_id=boot_id)))


def nnc(*ncs: str, owner: str = "uid-1", annotation: str = "{}") -> NodeNetworkConfig:
    owners = (OwnerReference(api_version="v1", kind="Node", name="n", uid=owner),)
    return NodeNetworkConfig(
        metadata=ObjectMeta(owner_references=owners, annotations={AGENT_ANNOTATION: annotation}),
        status=NetworkConfigStatus(network_containers=tuple(status(1, {}, nc=each) for each in ncs)),
    )


def pool_on(boot_id: str, *adopted: str) -> Pool:
    pool = Pool()
    pool.apply(Started(boot_id=boot_id, boot=0.0, wall=0.0))
    for nc in adopted:
        pool.apply(NCAdopted(nc=nc))
    return pool


class TestOwnNC:
    def test_node_owner_and_boot_must_all_be_ours(self) -> None:
        pool = pool_on("boot-1")
        found = own_nc(node(), nnc("nc-1"), pool=pool)
        assert found
        assert "nc-1" == found.id
        assert None is own_nc(node(boot_id="boot-2"), nnc("nc-1"), pool=pool)
        assert None is own_nc(node(uid="uid-2"), nnc("nc-1"), pool=pool)
        assert None is own_nc(node(), nnc(), pool=pool)

    def test_a_closed_nc_is_never_adopted_again(self) -> None:
        pool = pool_on("boot-1", "nc-1", "nc-2")
        assert None is own_nc(node(), nnc("nc-1"), pool=pool)

    def test_the_adopted_nc_stays_ours_next_to_others(self) -> None:
        found = own_nc(node(), nnc("nc-1", "nc-2"), pool=pool_on("boot-1", "nc-2"))
        assert found
        assert "nc-2" == found.id

    def test_an_invalid_annotation_is_an_empty_report(self) -> None:
        assert "" == own_report(nnc(annotation="{")).boot_id
        assert "b" == own_report(nnc(annotation='{"bootID": "b"}')).boot_id
