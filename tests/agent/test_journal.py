"""The write-ahead log survives a crash at any byte, and the agent's state with it."""

import asyncio
from contextlib import suppress
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from podpool.agent.journal import GROUP_COMMIT_INTERVAL, Journal
from podpool.agent.journal_reader import read_journal
from podpool.agent.records import (
    AnyRecord,
    Assigned,
    CooldownForced,
    LostGrantsCleared,
    NCAccepted,
    NCAdopted,
    ReleasePending,
    Snapshot,
    Unassigned,
)
from podpool.agent.state import AGENT_JOURNAL, AgentState, StateClosed
from podpool.cni.protocol import Attachment
from podpool.core.settings import Settings
from podpool.runtime.disk import Disk, LocalDisk
from tests.agent.clocks import SetClock
from tests.agent.disks import DiskDied, DroppingDisk, FullDisk, MemoryDisk
from tests.agent.nc_samples import NC, grants, status

FENCE = Settings().fence
ATTACHMENT = Attachment(container_id="a", ifname="eth0")
HISTORY: tuple[AnyRecord, ...] = (
    NCAdopted(nc=NC),
    NCAccepted(nc=status(1, grants(1, 2, 3)), at=1.0),
    Assigned(grant="g1", attachment=ATTACHMENT),
    ReleasePending(grants=("g2",), version=1, boot_id="boot-1"),
    Unassigned(grant="g1", at=2.0),
    Assigned(grant="g3", attachment=ATTACHMENT),
    CooldownForced(at=3.0, lost=("g1",)),
    LostGrantsCleared(grants=("g1",), at=4.0),
)


def journal_on(disk: Disk) -> Journal[AnyRecord]:
    return Journal(disk, AGENT_JOURNAL, lambda: Snapshot(boot_id="before"))


def ignored(_: AnyRecord) -> None:
    """Apply nothing."""


def records_of(disk: MemoryDisk) -> tuple[AnyRecord, ...]:
    return journal_on(disk).open(ignored).records


def written(*records: AnyRecord) -> MemoryDisk:
    disk = MemoryDisk()
    journal = journal_on(disk)
    journal.open(ignored)
    for record in records:
        journal.append(record)
    return disk


def opened(disk: MemoryDisk) -> Journal[AnyRecord]:
    journal = journal_on(disk)
    journal.open(ignored)
    return journal


def opened_state(disk: MemoryDisk) -> AgentState:
    state = AgentState(disk, SetClock(), fence_limit=FENCE)
    state.open(boot_id="boot-1")
    return state


async def failed_sync(disk: DroppingDisk) -> AgentState:
    """Return a state whose last sync failed, and dropped three records."""
    state = opened_state(disk)
    for record in HISTORY[:3]:
        state.write(record)
    disk.failing = 1
    with pytest.raises(OSError, match="Input/output"):
        await state.sync()
    return state


def append_until_death(journal: Journal[AnyRecord]) -> tuple[AnyRecord, ...]:
    """Append until the disk dies; return what was answered."""
    answered: list[AnyRecord] = []
    try:
        for record in HISTORY:
            journal.append(record)
            answered.append(record)
    except DiskDied:
        return tuple(answered)
    raise AssertionError("the disk did not die")


class TestAppend:
    def test_records_are_read_in_order(self) -> None:
        assert HISTORY == records_of(written(*HISTORY))

    def test_killed_at_any_byte_every_appended_record_is_read_and_no_partial_one(self) -> None:
        size = len(written(*HISTORY).written["segment.00000001"])
        for offset in range(size):
            disk = MemoryDisk()
            journal = journal_on(disk)
            journal.open(ignored)
            disk.budget = offset
            answered = append_until_death(journal)
            found = journal_on(disk.after_kill()).open(ignored)
            assert answered == found.records
            assert not found.damaged

    def test_a_torn_tail_is_truncated_and_appending_continues_after_it(self) -> None:
        disk = written(*HISTORY)
        disk.written["segment.00000001"] = disk.written["segment.00000001"][:-3]
        again = journal_on(disk)
        assert 0 < again.open(ignored).torn
        again.append(HISTORY[-1])
        found = journal_on(disk).open(ignored)
        assert HISTORY == found.records
        assert 0 == found.torn

    def test_a_record_that_a_full_disk_refused_hides_no_later_one(self) -> None:
        for space in range(40):
            disk = FullDisk()
            journal = journal_on(disk)
            journal.open(ignored)
            journal.append(HISTORY[0])
            disk.space = space
            with pytest.raises(OSError, match="No space"):
                journal.append(HISTORY[1])
            disk.space = None
            journal.append(HISTORY[2])
            found = journal_on(disk.after_kill()).open(ignored)
            assert ((HISTORY[0], HISTORY[2]), 0, False) == (found.records, found.torn, found.damaged)

    @pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
    def test_any_flipped_byte_is_damage_and_not_a_torn_write(self, flip: int) -> None:
        content = written(*HISTORY).written["segment.00000001"]
        for offset in range(len(content)):
            disk = MemoryDisk()
            corrupt = bytes([content[offset] ^ flip])
            disk.written["segment.00000001"] = content[:offset] + corrupt + content[offset + 1 :]
            found = journal_on(disk).open(ignored)
            assert found.damaged, offset
            assert HISTORY[: len(found.records)] == found.records

    def test_damage_is_reported_until_the_next_record(self) -> None:
        """An agent may die, or the disk be full, between the truncation and that record."""
        disk = written(*HISTORY)
        disk.written["segment.00000001"] = disk.written["segment.00000001"][:-1] + b"?"
        assert journal_on(disk).open(ignored).damaged
        again = journal_on(disk)
        assert again.open(ignored).damaged
        again.append(HISTORY[-1])
        assert not journal_on(disk).open(ignored).damaged

    def test_damage_is_not_truncated_if_the_marker_cannot_be_written(self) -> None:
        disk = FullDisk()
        disk.written["segment.00000001"] = corrupt = written(*HISTORY).written["segment.00000001"][:-1] + b"?"
        disk.space = 0
        with pytest.raises(OSError, match="No space"):
            journal_on(disk).open(ignored)
        assert corrupt == disk.written["segment.00000001"]

    def test_an_empty_disk_is_an_empty_journal(self) -> None:
        found = journal_on(MemoryDisk()).open(ignored)
        assert ((), 0, False) == (found.records, found.torn, found.damaged)

    def test_on_a_local_disk(self, tmp_path: Path) -> None:
        disk = LocalDisk(tmp_path)
        journal = journal_on(disk)
        journal.open(ignored)
        for record in HISTORY:
            journal.append(record)
        asyncio.run(journal.sync())
        disk.close()
        again = LocalDisk(tmp_path)
        assert HISTORY == journal_on(again).open(ignored).records
        again.close()


class TestSync:
    def test_synced_records_survive_a_reboot(self) -> None:
        disk = written(*HISTORY)
        assert () == records_of(disk.after_reboot())

        async def sync() -> None:
            journal = journal_on(disk)
            journal.open(ignored)
            journal.append(HISTORY[0])
            await journal.sync()

        asyncio.run(sync())
        assert (*HISTORY, HISTORY[0]) == records_of(disk.after_reboot())

    def test_after_a_failed_sync_the_next_success_is_not_believed(self) -> None:
        """What the failed one should have written may be dropped; only a rewritten journal is durable."""
        disk = DroppingDisk()

        async def sync() -> AgentState:
            state = await failed_sync(disk)
            state.write(HISTORY[3])
            await state.sync()
            return state

        state = asyncio.run(sync())
        again = opened_state(disk.after_reboot())
        assert not again.pool.incomplete
        assert state.pool.snapshot() == again.pool.snapshot()

    def test_sync_fails_until_the_journal_is_rewritten(self) -> None:
        class Failing(DroppingDisk):
            full = True

            async def replace(self, name: str, data: bytes) -> None:
                if self.full:
                    raise OSError(ENOSPC, "No space left on device")
                await super().replace(name, data)

        disk = Failing()

        async def sync() -> AgentState:
            state = opened_state(disk)
            disk.failing = 1
            for error in ("Input/output", "No space", "No space"):
                with pytest.raises(OSError, match=error):
                    await state.sync()
            disk.full = False
            await state.sync()
            return state

        state = asyncio.run(sync())
        assert not state.journal.sync_failed
        assert state.pool.snapshot() == opened_state(disk.after_reboot()).pool.snapshot()

    @pytest.mark.parametrize("interruption", [OSError(EIO, "Input/output error"), asyncio.CancelledError()])
    def test_a_snapshot_that_failed_after_its_rename_leaves_no_hole(self, interruption: BaseException) -> None:
        """The rename is done and its sync fails or is cancelled; the next snapshot fails before its rename."""

        class Failing(DroppingDisk):
            attempts = 0

            async def replace(self, name: str, data: bytes) -> None:
                self.attempts += 1
                if self.attempts == 1:
                    await super().replace(name, data)
                raise interruption

        disk = Failing()

        async def sync() -> AgentState:
            state = opened_state(disk)
            for record in HISTORY[:3]:
                state.write(record)
            disk.failing = 1
            for error in (OSError, type(interruption), type(interruption)):
                with pytest.raises(error):
                    await state.sync()
            state.write(HISTORY[3])
            return state

        state = asyncio.run(sync())
        again = AgentState(disk.after_kill(), SetClock(), fence_limit=FENCE)
        assert not again.open(boot_id="boot-1").damaged
        assert state.pool.snapshot() == again.pool.snapshot()

    def test_the_next_process_does_not_believe_it_either(self) -> None:
        """It reads what was dropped from the page cache."""
        disk = DroppingDisk()
        asyncio.run(failed_sync(disk))
        again = opened_state(disk)
        assert again.journal.sync_failed
        asyncio.run(again.sync())
        assert again.pool.snapshot() == opened_state(disk.after_reboot()).pool.snapshot()

    def test_a_cancelled_sync_counts_as_failed(self) -> None:
        class Slow(MemoryDisk):
            async def sync(self, name: str) -> None:
                await asyncio.sleep(10)
                await super().sync(name)

        async def cancel() -> bool:
            journal = journal_on(Slow())
            journal.append(HISTORY[0])
            syncing = asyncio.ensure_future(journal.sync())
            await asyncio.sleep(0)
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)
            return journal.sync_failed

        assert asyncio.run(cancel())

    def test_segments_of_a_killed_predecessor_are_synced_in_order(self) -> None:
        disk = FullDisk()

        async def compact() -> None:
            journal = journal_on(disk)
            journal.append(HISTORY[0])
            disk.space = 0
            await journal.compact()
            disk.space = None
            journal.append(HISTORY[1])

        asyncio.run(compact())
        journal = opened(disk)
        journal.append(HISTORY[2])
        asyncio.run(journal.sync())
        assert HISTORY[:3] == records_of(disk.after_reboot())

    def test_many_records_share_one_sync(self) -> None:
        async def group() -> MemoryDisk:
            disk = MemoryDisk()
            journal = journal_on(disk)
            for record in HISTORY:
                journal.append(record)
            await journal.group_commit()
            return disk

        disk = asyncio.run(group())
        assert 1 == disk.syncs
        assert HISTORY == records_of(disk.after_reboot())


class CopyingDisk(MemoryDisk):
    """Keeps a copy of its contents before and after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[MemoryDisk] = []

    async def sync(self, name: str) -> None:
        self.copy()
        await super().sync(name)
        self.copy()

    async def replace(self, name: str, data: bytes) -> None:
        self.copy()
        await super().replace(name, data)
        self.copy()

    def remove(self, name: str) -> None:
        self.copy()
        super().remove(name)
        self.copy()

    def copy(self) -> None:
        self.copies.append(self.after_kill())


class TestCompaction:
    def test_killed_at_any_step_nothing_is_lost_or_duplicated(self) -> None:
        """Records are appended during the compaction."""
        disk = CopyingDisk()

        async def compact() -> list[tuple[AnyRecord, ...]]:
            journal = journal_on(disk)
            journal.open(ignored)
            for record in HISTORY[:4]:
                journal.append(record)
            compacting = asyncio.ensure_future(journal.compact())
            await asyncio.sleep(0)
            journal.append(HISTORY[4])
            disk.copy()
            await compacting
            journal.append(HISTORY[5])
            disk.copy()
            return [records_of(copy) for copy in disk.copies]

        before, after = HISTORY[:4], (Snapshot(boot_id="before"),)
        tails: tuple[tuple[AnyRecord, ...], ...] = ((), HISTORY[4:5], HISTORY[4:6])
        histories = asyncio.run(compact())
        assert all(each in [(*start, *tail) for start in (before, after) for tail in tails] for each in histories)
        assert (*after, *HISTORY[4:6]) == histories[-1]
        assert ["segment.00000002", "snapshot"] == disk.names()

    def test_on_a_full_disk_everything_is_kept(self) -> None:
        disk = FullDisk()

        async def compact() -> None:
            journal = journal_on(disk)
            journal.open(ignored)
            for record in HISTORY[:4]:
                journal.append(record)
            disk.space = 0
            await journal.compact()
            disk.space = None
            journal.append(HISTORY[4])

        asyncio.run(compact())
        assert HISTORY[:5] == records_of(disk)

    def test_a_read_during_compaction_is_complete(self) -> None:
        """A read may fall between the new snapshot and the removal of the old segments."""
        disk = written(*HISTORY[:4])
        after = MemoryDisk()
        after.written = dict(disk.written)
        asyncio.run(opened(after).compact())
        opened(after).append(HISTORY[4])

        class Changing(MemoryDisk):
            def names(self) -> list[str]:
                self.written = after.written
                return super().names()

        changing = Changing()
        changing.written = disk.written
        found = read_journal(changing, AGENT_JOURNAL)
        assert ((Snapshot(boot_id="before"), HISTORY[4]), False) == (found.records, found.damaged)

    def test_a_damaged_snapshot_is_damage(self) -> None:
        disk = MemoryDisk()
        asyncio.run(journal_on(disk).compact())
        disk.written["snapshot"] = disk.written["snapshot"][:-1] + b"?"
        assert journal_on(disk).open(ignored).damaged

    @pytest.mark.parametrize("how", ["damaged", "gone"])
    def test_without_its_snapshot_only_later_records_count(self, how: str) -> None:
        """The state before them is not known; an agent that could not start would serve no Pod."""
        disk = MemoryDisk()
        state = AgentState(disk, SetClock(), fence_limit=FENCE)
        state.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            state.write(record)
        asyncio.run(state.journal.compact())
        state.write(HISTORY[2])
        if how == "damaged":
            disk.written["snapshot"] = disk.written["snapshot"][:-1] + b"?"
        else:
            disk.remove("snapshot")
        again = AgentState(disk, SetClock(), fence_limit=FENCE)
        assert again.open(boot_id="boot-1").damaged
        assert again.pool.incomplete
        assert not again.pool.adopted_nc
        for record in HISTORY[:3]:
            again.write(record)
        once_more = AgentState(disk, SetClock(), fence_limit=FENCE)
        assert not once_more.open(boot_id="boot-1").damaged
        assert again.pool.snapshot() == once_more.pool.snapshot()

    def test_the_journal_is_compacted_and_the_state_is_kept(self) -> None:
        async def churn() -> tuple[AgentState, MemoryDisk]:
            disk = MemoryDisk()
            state = AgentState(disk, SetClock(), fence_limit=FENCE, segment_bytes=2_000)
            state.open(boot_id="boot-1")
            state.write(NCAdopted(nc=NC))
            state.write(NCAccepted(nc=status(1, grants(1)), at=0.0))
            background = asyncio.ensure_future(state.run())
            for turn in range(60):
                state.write(Assigned(grant="g1", attachment=ATTACHMENT))
                state.write(Unassigned(grant="g1", at=float(turn)))
                if turn % 10 == 0:
                    await asyncio.sleep(GROUP_COMMIT_INTERVAL * 2)
            await asyncio.sleep(GROUP_COMMIT_INTERVAL * 2)
            background.cancel()
            return state, disk

        state, disk = asyncio.run(churn())
        assert sum(map(len, disk.written.values())) < 8_000
        again = AgentState(disk, SetClock(), fence_limit=FENCE)
        again.open(boot_id="boot-1")
        assert state.pool.snapshot() == again.pool.snapshot()


class TestAgentState:
    def test_a_failed_write_changes_nothing(self) -> None:
        disk = MemoryDisk()
        state = AgentState(disk, SetClock(), fence_limit=FENCE)
        state.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            state.write(record)
        disk.budget = 5
        with pytest.raises(DiskDied):
            state.write(HISTORY[2])
        assert not state.pool.assigned

    def test_killed_at_any_byte_the_next_agent_has_the_state_that_was_answered(self) -> None:
        whole = MemoryDisk()
        write_until_death(whole, HISTORY)
        for offset in range(len(whole.written["segment.00000001"])):
            disk = MemoryDisk()
            disk.budget = offset
            done = write_until_death(disk, HISTORY)
            again = AgentState(disk.after_kill(), SetClock(), fence_limit=FENCE)
            again.open(boot_id="boot-1")
            expected = AgentState(MemoryDisk(), SetClock(), fence_limit=FENCE)
            expected.open(boot_id="boot-1")
            for record in HISTORY[:done]:
                expected.write(record)
            assert expected.pool.snapshot() == again.pool.snapshot()

    def test_a_clean_shutdown_avoids_the_cooldown_after_a_reboot(self) -> None:
        disk = MemoryDisk()
        state = AgentState(disk, SetClock(), fence_limit=FENCE)
        state.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            state.write(record)
        asyncio.run(state.stop())
        again = AgentState(disk.after_reboot(), SetClock(), fence_limit=FENCE)
        again.open(boot_id="boot-2")
        assert again.pool.next_available(now=0.0, cooldown=Settings().cooldown_levels.in_force(30.0))

    @pytest.mark.parametrize("space", [None, 0])
    def test_nothing_is_written_after_a_shutdown(self, space: int | None) -> None:
        """After the clean-shutdown marker, or where it did not fit: nothing would sync it."""
        disk = FullDisk()
        state = opened_state(disk)
        disk.space = space
        with suppress(OSError):
            asyncio.run(state.stop())
        disk.space, before = None, dict(disk.written)
        with pytest.raises(StateClosed, match="has stopped"):
            state.write(HISTORY[0])
        assert (before, "") == (disk.written, state.pool.adopted_nc)


def write_until_death(disk: MemoryDisk, records: tuple[AnyRecord, ...]) -> int:
    """Write until the disk dies; return how many records were answered."""
    state = AgentState(disk, SetClock(), fence_limit=FENCE)
    done = 0
    try:
        state.open(boot_id="boot-1")
        for record in records:
            state.write(record)
            done += 1
    except DiskDied:
        pass
    return done
