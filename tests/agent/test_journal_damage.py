"""A damaged journal is set aside and the agent rebuilds, also if a record can be read and not applied."""

import asyncio

import msgspec
import pytest

from podpool.agent.journal import KEPT_COPIES, Journal
from podpool.agent.journal_reader import FORMAT, SnapshotFile, encode_frame
from podpool.agent.pool import Pool
from podpool.agent.records import (
    AnyRecord,
    Assigned,
    NCAccepted,
    NCAdopted,
    NodeConfirmed,
    SliceSnapshot,
    Snapshot,
    Unassigned,
)
from podpool.agent.secondary.shared_range_journal import SHARED_RANGE_JOURNAL, AnySharedRangeRecord, SharedRangeSnapshot
from podpool.agent.state import AGENT_JOURNAL, AgentState, read_agent_journal
from podpool.cni.protocol import Attachment
from tests.agent.clocks import SetClock
from tests.agent.disks import DiskDied, FullDisk, MemoryDisk
from tests.agent.nc_samples import NC, grants, status
from tests.agent.node_env import NodeEnv, in_node_env

SEGMENT = "segment.00000001"
ATTACHMENT = Attachment(container_id="a", ifname="eth0")
OTHER = Attachment(container_id="b", ifname="eth0")
HISTORY: tuple[AnyRecord, ...] = (
    NCAdopted(nc=NC),
    NCAccepted(nc=status(1, grants(1, 2, 3)), at=1.0),
    NodeConfirmed(boot=0.0, wall=0.0),
    Assigned(grant="g1", attachment=ATTACHMENT),
)
IMPOSSIBLE: dict[str, AnyRecord] = {
    "of a grant that does not exist": Assigned(grant="g9", attachment=OTHER),
    "of an address that is not assigned": Unassigned(grant="g2", at=2.0),
    "of an address that is assigned": Assigned(grant="g1", attachment=OTHER),
    "of two addresses, one of which is assigned": Assigned(grant="g2", more=("g1",), attachment=OTHER),
}


def opened(disk: MemoryDisk) -> AgentState:
    state = AgentState(disk, SetClock(), fence_limit=600.0)
    state.open(boot_id="boot-1")
    return state


def written(*records: AnyRecord) -> MemoryDisk:
    """Return a journal with records that were never applied, as of two agents."""
    disk = MemoryDisk()
    state = opened(disk)
    for record in records:
        state.journal.append(record)
    return disk


def segmented() -> FullDisk:
    """Return a journal of three segments with a record each: its snapshots did not fit."""
    disk = FullDisk()
    journal = Journal(disk, AGENT_JOURNAL, Snapshot)
    for record in HISTORY[:3]:
        disk.space = None
        journal.append(record)
        disk.space = 0
        asyncio.run(journal.compact())
    disk.space = None
    return disk


class TestRecordThatCannotBeApplied:
    @pytest.mark.parametrize("record", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
    def test_it_is_damage_and_the_agent_starts_fenced(self, record: AnyRecord) -> None:
        disk = written(*HISTORY, record, Unassigned(grant="g1", at=3.0))
        state = AgentState(disk, SetClock(), fence_limit=600.0)
        found = state.open(boot_id="boot-1")
        assert found.damaged
        assert f"record {type(record).__name__} cannot be applied" in found.damage
        assert state.pool.incomplete
        assert not state.fence.is_open()
        assert {"g1"} == set(state.pool.assigned)

    def test_no_part_of_the_state_keeps_it(self) -> None:
        """The pool can apply this snapshot, and is asked first; the slices cannot."""
        slice_state = SliceSnapshot(assignment="a", name="n", network="x", range="not a range", slice="not a range")
        snapshot = msgspec.structs.replace(opened(written(*HISTORY)).snapshot(), slices=(slice_state,))
        assert snapshot.nc
        file = SnapshotFile(journal_format=FORMAT, podpool="1.0", segment=2, state=snapshot)
        disk = MemoryDisk()
        asyncio.run(disk.replace("snapshot", encode_frame(msgspec.json.encode(file))))
        state = AgentState(disk, SetClock(), fence_limit=600.0)
        assert "cannot be applied" in state.open(boot_id="boot-1").damage
        assert "" == state.pool.adopted_nc
        assert {} == dict(state.pool.assigned)
        assert not state.fence.is_open()

    @pytest.mark.parametrize("record", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
    def test_what_was_before_it_is_the_state_and_the_next_agent_has_it_too(self, record: AnyRecord) -> None:
        disk = written(*HISTORY, record, Unassigned(grant="g1", at=3.0))
        state, again = opened(disk), opened(disk.after_kill())
        assert state.snapshot() == again.snapshot()
        assert not again.journal.open(lambda _: None).damaged

    def test_a_snapshot_that_cannot_be_applied_is_damage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = written(*HISTORY)
        state = opened(disk)
        asyncio.run(state.journal.compact())
        apply = Pool.apply

        def fails(pool: Pool, record: AnyRecord) -> None:
            if isinstance(record, Snapshot) and record.nc:
                raise KeyError(record.nc.id)
            apply(pool, record)

        monkeypatch.setattr(Pool, "apply", fails)
        state = AgentState(disk, SetClock(), fence_limit=600.0)
        assert "snapshot: record Snapshot cannot be applied" in state.open(boot_id="boot-1").damage
        assert not state.pool.adopted_nc
        assert "snapshot.damaged-1" in disk.names()

    def test_the_command_shows_what_is_before_it(self) -> None:
        disk = written(*HISTORY, IMPOSSIBLE["of a grant that does not exist"])
        found = read_agent_journal(disk)
        assert (HISTORY, True) == (found.records[1:], found.damaged)

    @in_node_env
    async def test_the_agent_serves_again_once_the_users_are_known(self, env: NodeEnv) -> None:
        agent = await env.start()
        given = await env.add("a")
        await env.kill()
        grant = next(iter(agent.pool.assigned))
        journal = Journal(env.disk, AGENT_JOURNAL, Snapshot)
        journal.open(lambda _: None)
        journal.append(Assigned(grant=grant, attachment=OTHER))
        journal.append(Unassigned(grant="unknown", at=1.0))
        agent = await env.start()
        assert given == await env.add("a")
        assert any("journal is damaged" in line and "cannot be applied" in line for line in env.warnings)
        await env.kill()
        warnings = len([line for line in env.warnings if "journal is damaged" in line])
        await env.start()
        assert given == await env.add("a")
        assert warnings == len([line for line in env.warnings if "journal is damaged" in line])


class TestMissingSegment:
    @pytest.mark.parametrize("missing", [1, 2])
    def test_it_is_damage_wherever_it_is(self, missing: int) -> None:
        disk = segmented()
        name = f"segment.{missing:08}"
        disk.remove(name)
        journal = Journal(disk, AGENT_JOURNAL, Snapshot)
        found = journal.open(lambda _: None)
        assert (f"{name} is missing", HISTORY[: missing - 1]) == (found.damage, found.records)
        journal.append(HISTORY[3])
        again = Journal(disk, AGENT_JOURNAL, Snapshot).open(lambda _: None)
        assert ((*found.records, HISTORY[3]), False) == (again.records, again.damaged)

    def test_killed_while_later_segments_are_removed_none_of_them_counts(self) -> None:
        class Dying(MemoryDisk):
            steps = 0

            def _alive(self) -> None:
                self.steps -= 1
                if self.steps < 0:
                    raise DiskDied

        for steps in range(3):
            disk = Dying()
            disk.written, disk.steps = segmented().written, steps
            disk.written[SEGMENT] = disk.written[SEGMENT][:-1] + b"?"
            with pytest.raises(DiskDied):
                Journal(disk, AGENT_JOURNAL, Snapshot).open(lambda _: None)
            found = Journal(disk.after_kill(), AGENT_JOURNAL, Snapshot).open(lambda _: None)
            assert ((), True) == (found.records, found.damaged), steps


class TestCopies:
    def damaged(self, disk: MemoryDisk) -> None:
        disk.written[SEGMENT] = disk.written[SEGMENT][:-1] + b"?"

    def test_all_files_are_kept_as_they_were(self) -> None:
        disk = written(*HISTORY)
        self.damaged(disk)
        before = dict(disk.written)
        state = AgentState(disk, SetClock(), fence_limit=600.0)
        assert ".damaged-1" == state.open(boot_id="boot-1").set_aside
        assert before == {name: disk.written[f"{name}.damaged-1"] for name in before}

    def test_only_the_last_few_are_kept(self) -> None:
        disk = written(*HISTORY)
        for _ in range(KEPT_COPIES + 2):
            self.damaged(disk)
            opened(disk)
        kept = [f"{SEGMENT}.damaged-{number}" for number in range(3, KEPT_COPIES + 3)]
        assert kept == [name for name in disk.names() if "damaged-" in name]

    def test_without_space_for_a_copy_the_agent_starts_and_earlier_copies_stay(self) -> None:
        """The first segment could be copied; a partial copy would be worth less than a complete earlier one."""
        disk = segmented()
        self.damaged(disk)
        before = {f"{SEGMENT}.damaged-{number}": b"copy" for number in range(1, KEPT_COPIES + 1)}
        disk.written |= before
        disk.space = 300
        assert len(disk.written[SEGMENT]) < disk.space < len(disk.written["segment.00000002"])
        state = AgentState(disk, SetClock(), fence_limit=600.0)
        found = state.open(boot_id="boot-1")
        assert ("", True) == (found.set_aside, state.pool.incomplete)
        assert "its files could not be copied ([Errno 28] No space left on device)" in found.damage
        assert before == {name: content for name, content in disk.written.items() if "damaged-" in name}

    def test_a_file_of_zeros_is_damage(self) -> None:
        """As a file system may leave after a power loss."""
        disk = written(*HISTORY)
        disk.written[SEGMENT] = bytes(len(disk.written[SEGMENT]))
        assert opened(disk).pool.incomplete

    def test_a_torn_tail_is_no_damage_and_not_kept(self) -> None:
        disk = written(*HISTORY)
        disk.written[SEGMENT] = disk.written[SEGMENT][:-1]
        opened(disk)
        assert [SEGMENT] == disk.names()


def test_the_shared_range_log_is_set_aside_too() -> None:
    disk = MemoryDisk()
    applied: list[AnySharedRangeRecord] = []
    journal = Journal(disk, SHARED_RANGE_JOURNAL, lambda: SharedRangeSnapshot(allocations=()))
    journal.append(SharedRangeSnapshot(allocations=()))
    disk.append(f"shared-ranges.{SEGMENT}", encode_frame(b'{"type":"shared-snapshot","allocations":[]}'))

    def apply(record: AnySharedRangeRecord) -> None:
        if applied:
            raise KeyError("planted")
        applied.append(record)

    found = Journal(disk, SHARED_RANGE_JOURNAL, lambda: applied[0]).open(apply)
    assert (tuple(applied), True) == (found.records, found.damaged)
    assert [f"shared-ranges.{SEGMENT}", f"shared-ranges.{SEGMENT}.damaged-1"] == [
        name for name in disk.names() if SEGMENT in name
    ]
