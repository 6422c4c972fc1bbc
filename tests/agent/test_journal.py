"""The agent's memory survives its death, wherever it struck."""

import asyncio
from errno import EIO
from pathlib import Path

import pytest

from podpool.agent import journal as journal_module
from podpool.agent.journal import Journal, read_journal
from podpool.agent.records import (
    Accepted,
    Adopted,
    AnyRecord,
    Assigned,
    Doubted,
    Named,
    Owner,
    Recalled,
    Released,
    Snapshot,
)
from podpool.agent.state import Book
from podpool.core.settings import Settings
from podpool.runtime.disk import LocalDisk
from tests.agent.clocks import SetClock
from tests.agent.disks import DiskDied, FullDisk, MemoryDisk
from tests.agent.statuses import CONTAINER, grants, status

FENCE = Settings().fence
OWNER = Owner(container_id="a", ifname="eth0")
HISTORY: tuple[AnyRecord, ...] = (
    Adopted(container=CONTAINER),
    Accepted(container=status(1, grants(1, 2, 3)), at=1.0),
    Assigned(grant="g1", owner=OWNER),
    Named(grants=("g2",), version=1, boot_id="boot-1"),
    Released(grant="g1", at=2.0),
    Assigned(grant="g3", owner=OWNER),
    Doubted(at=3.0, forgotten=("g1",)),
    Recalled(grants=("g1",), at=4.0),
)


def records_of(disk: MemoryDisk) -> tuple[AnyRecord, ...]:
    return Journal(disk).open().records


def written(*records: AnyRecord) -> MemoryDisk:
    disk = MemoryDisk()
    journal = Journal(disk)
    journal.open()
    for record in records:
        journal.append(record)
    return disk


def opened(disk: MemoryDisk) -> Journal:
    journal = Journal(disk)
    journal.open()
    return journal


def until_death(journal: Journal) -> tuple[AnyRecord, ...]:
    """Append until the disk dies; tells what was answered."""
    answered: list[AnyRecord] = []
    try:
        for record in HISTORY:
            journal.append(record)
            answered.append(record)
    except DiskDied:
        return tuple(answered)
    raise AssertionError("the disk did not die")


class TestAppending:
    def test_what_was_appended_is_found_in_order(self) -> None:
        assert HISTORY == records_of(written(*HISTORY))

    def test_killed_at_any_byte_every_record_that_was_appended_is_found_and_no_half_one(self) -> None:
        size = len(written(*HISTORY).written["segment.00000001"])
        for offset in range(size):
            disk = MemoryDisk()
            journal = Journal(disk)
            journal.open()
            disk.budget = offset
            answered = until_death(journal)
            found = Journal(disk.after_kill()).open()
            assert answered == found.records
            assert not found.damaged

    def test_a_torn_tail_is_cut_off_and_appending_goes_on_behind_the_cut(self) -> None:
        disk = written(*HISTORY)
        disk.written["segment.00000001"] = disk.written["segment.00000001"][:-3]
        again = Journal(disk)
        assert 0 < again.open().torn
        again.append(HISTORY[-1])
        found = Journal(disk).open()
        assert HISTORY == found.records
        assert 0 == found.torn

    def test_a_record_that_the_disk_had_no_room_for_hides_none_that_follow(self) -> None:
        for room in range(40):
            disk = FullDisk()
            journal = Journal(disk)
            journal.open()
            journal.append(HISTORY[0])
            disk.room = room
            with pytest.raises(OSError, match="No space"):
                journal.append(HISTORY[1])
            disk.room = None
            journal.append(HISTORY[2])
            found = Journal(disk.after_kill()).open()
            assert ((HISTORY[0], HISTORY[2]), 0, False) == (found.records, found.torn, found.damaged)

    @pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
    def test_any_flipped_byte_is_damage_and_not_a_torn_write(self, flip: int) -> None:
        content = written(*HISTORY).written["segment.00000001"]
        for offset in range(len(content)):
            disk = MemoryDisk()
            spoilt = bytes([content[offset] ^ flip])
            disk.written["segment.00000001"] = content[:offset] + spoilt + content[offset + 1 :]
            found = Journal(disk).open()
            assert found.damaged, offset
            assert HISTORY[: len(found.records)] == found.records

    def test_damage_is_found_again_until_a_record_tells_of_it(self) -> None:
        """An agent may die, or find no room, between the cut and that record."""
        disk = written(*HISTORY)
        disk.written["segment.00000001"] = disk.written["segment.00000001"][:-1] + b"?"
        assert Journal(disk).open().damaged
        again = Journal(disk)
        assert again.open().damaged
        again.append(HISTORY[-1])
        assert not Journal(disk).open().damaged

    def test_without_room_to_remember_damage_it_is_not_cut_off(self) -> None:
        disk = FullDisk()
        disk.written["segment.00000001"] = spoilt = written(*HISTORY).written["segment.00000001"][:-1] + b"?"
        disk.room = 0
        with pytest.raises(OSError, match="No space"):
            Journal(disk).open()
        assert spoilt == disk.written["segment.00000001"]

    def test_an_empty_disk_is_a_new_beginning(self) -> None:
        found = Journal(MemoryDisk()).open()
        assert ((), 0, False) == (found.records, found.torn, found.damaged)

    def test_on_a_real_disk_too(self, tmp_path: Path) -> None:
        disk = LocalDisk(tmp_path)
        journal = Journal(disk)
        journal.open()
        for record in HISTORY:
            journal.append(record)
        asyncio.run(journal.sync())
        disk.close()
        again = LocalDisk(tmp_path)
        assert HISTORY == Journal(again).open().records
        again.close()


class TestSyncing:
    def test_what_was_synced_survives_the_machine(self) -> None:
        disk = written(*HISTORY)
        assert () == records_of(disk.after_reboot())

        async def sync() -> None:
            journal = Journal(disk)
            journal.open()
            journal.append(HISTORY[0])
            await journal.sync()

        asyncio.run(sync())
        assert (*HISTORY, HISTORY[0]) == records_of(disk.after_reboot())

    def test_what_could_not_be_synced_is_synced_the_next_time(self) -> None:
        async def sync() -> FailingDisk:
            disk = FailingDisk()
            journal = Journal(disk)
            journal.append(HISTORY[0])
            with pytest.raises(OSError, match="Input/output"):
                await journal.sync()
            disk.failing = False
            await journal.sync()
            return disk

        assert HISTORY[:1] == records_of(asyncio.run(sync()).after_reboot())

    def test_many_records_share_one_sync(self) -> None:
        async def group() -> MemoryDisk:
            disk = MemoryDisk()
            journal = Journal(disk)
            for record in HISTORY:
                journal.append(record)
            await journal.group()
            return disk

        disk = asyncio.run(group())
        assert 1 == disk.syncs
        assert HISTORY == records_of(disk.after_reboot())


class FailingDisk(MemoryDisk):
    """Cannot sync while it fails."""

    failing = True

    async def sync(self, name: str) -> None:
        if self.failing:
            raise OSError(EIO, "Input/output error")
        await super().sync(name)


class SlowDisk(MemoryDisk):
    """Stops at the next step that waits, for the test to look at what is there and go on."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[MemoryDisk] = []

    async def sync(self, name: str) -> None:
        self.look()
        await super().sync(name)
        self.look()

    async def replace(self, name: str, data: bytes) -> None:
        self.look()
        await super().replace(name, data)
        self.look()

    def remove(self, name: str) -> None:
        self.look()
        super().remove(name)
        self.look()

    def look(self) -> None:
        self.copies.append(self.after_kill())


class TestCompaction:
    def test_killed_at_any_step_nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        """Records go on being appended while it is under way."""
        disk = SlowDisk()

        async def compact() -> list[tuple[AnyRecord, ...]]:
            journal = Journal(disk)
            journal.open()
            for record in HISTORY[:4]:
                journal.append(record)
            compacting = asyncio.ensure_future(journal.compact(Snapshot(boot_id="all so far")))
            await asyncio.sleep(0)
            journal.append(HISTORY[4])
            disk.look()
            await compacting
            journal.append(HISTORY[5])
            disk.look()
            return [records_of(copy) for copy in disk.copies]

        before, after = HISTORY[:4], (Snapshot(boot_id="all so far"),)
        tails: tuple[tuple[AnyRecord, ...], ...] = ((), HISTORY[4:5], HISTORY[4:6])
        histories = asyncio.run(compact())
        assert all(each in [(*start, *tail) for start in (before, after) for tail in tails] for each in histories)
        assert (*after, *HISTORY[4:6]) == histories[-1]
        assert ["segment.00000002", "snapshot"] == disk.names()

    def test_without_room_for_the_snapshot_everything_stays_as_it_is(self) -> None:
        disk = FullDisk()

        async def compact() -> None:
            journal = Journal(disk)
            journal.open()
            for record in HISTORY[:4]:
                journal.append(record)
            disk.room = 0
            await journal.compact(Snapshot(boot_id="all so far"))
            disk.room = None
            journal.append(HISTORY[4])

        asyncio.run(compact())
        assert HISTORY[:5] == records_of(disk)

    def test_read_while_its_agent_compacts_it_is_whole(self) -> None:
        """A look from outside may fall between the new snapshot and the old segments' end."""
        disk = written(*HISTORY[:4])
        after = MemoryDisk()
        after.written = dict(disk.written)
        asyncio.run(opened(after).compact(Snapshot(boot_id="all so far")))
        opened(after).append(HISTORY[4])

        class Changing(MemoryDisk):
            def names(self) -> list[str]:
                self.written = after.written
                return super().names()

        changing = Changing()
        changing.written = disk.written
        found = read_journal(changing)
        assert ((Snapshot(boot_id="all so far"), HISTORY[4]), False) == (found.records, found.damaged)

    def test_a_damaged_snapshot_is_noticed(self) -> None:
        disk = MemoryDisk()
        asyncio.run(Journal(disk).compact(Snapshot()))
        disk.written["snapshot"] = disk.written["snapshot"][:-1] + b"?"
        assert Journal(disk).open().damaged

    @pytest.mark.parametrize("how", ["damaged", "gone"])
    def test_without_its_snapshot_nothing_counts_and_what_is_written_then_does(self, how: str) -> None:
        """What they go on from is not known: an agent that could not start would serve nobody."""
        disk = MemoryDisk()
        book = Book(disk, SetClock(), fence_limit=FENCE)
        book.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            book.write(record)
        asyncio.run(book.journal.compact(book.snapshot()))
        book.write(HISTORY[2])
        if how == "damaged":
            disk.written["snapshot"] = disk.written["snapshot"][:-1] + b"?"
        else:
            disk.remove("snapshot")
        again = Book(disk, SetClock(), fence_limit=FENCE)
        assert again.open(boot_id="boot-1").damaged
        assert again.pool.suspect
        assert not again.pool.adopted
        for record in HISTORY[:3]:
            again.write(record)
        once_more = Book(disk, SetClock(), fence_limit=FENCE)
        assert not once_more.open(boot_id="boot-1").damaged
        assert again.pool.snapshot() == once_more.pool.snapshot()

    def test_a_book_keeps_its_journal_short_and_its_state(self) -> None:
        async def churn() -> tuple[Book, MemoryDisk]:
            disk = MemoryDisk()
            book = Book(disk, SetClock(), fence_limit=FENCE, segment=2_000)
            book.open(boot_id="boot-1")
            book.write(Adopted(container=CONTAINER))
            book.write(Accepted(container=status(1, grants(1)), at=0.0))
            background = asyncio.ensure_future(book.run())
            for turn in range(60):
                book.write(Assigned(grant="g1", owner=OWNER))
                book.write(Released(grant="g1", at=float(turn)))
                if turn % 10 == 0:
                    await asyncio.sleep(journal_module.GROUP * 2)
            await asyncio.sleep(journal_module.GROUP * 2)
            background.cancel()
            return book, disk

        book, disk = asyncio.run(churn())
        assert sum(map(len, disk.written.values())) < 8_000
        again = Book(disk, SetClock(), fence_limit=FENCE)
        again.open(boot_id="boot-1")
        assert book.pool.snapshot() == again.pool.snapshot()


class TestBook:
    def test_where_the_disk_refuses_nothing_has_happened(self) -> None:
        disk = MemoryDisk()
        book = Book(disk, SetClock(), fence_limit=FENCE)
        book.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            book.write(record)
        disk.budget = 5
        with pytest.raises(DiskDied):
            book.write(HISTORY[2])
        assert not book.pool.holdings

    def test_killed_at_any_byte_the_next_agent_has_the_state_of_what_was_answered(self) -> None:
        whole = MemoryDisk()
        play(whole, HISTORY)
        for offset in range(len(whole.written["segment.00000001"])):
            disk = MemoryDisk()
            disk.budget = offset
            done = play(disk, HISTORY)
            again = Book(disk.after_kill(), SetClock(), fence_limit=FENCE)
            again.open(boot_id="boot-1")
            expected = Book(MemoryDisk(), SetClock(), fence_limit=FENCE)
            expected.open(boot_id="boot-1")
            for record in HISTORY[:done]:
                expected.write(record)
            assert expected.pool.snapshot() == again.pool.snapshot()

    def test_a_clean_stop_spares_the_rest_after_a_reboot(self) -> None:
        disk = MemoryDisk()
        book = Book(disk, SetClock(), fence_limit=FENCE)
        book.open(boot_id="boot-1")
        for record in HISTORY[:2]:
            book.write(record)
        asyncio.run(book.stop())
        again = Book(disk.after_reboot(), SetClock(), fence_limit=FENCE)
        again.open(boot_id="boot-2")
        assert again.pool.next_free(now=0.0, rest=30.0)


def play(disk: MemoryDisk, records: tuple[AnyRecord, ...]) -> int:
    """Write until the disk dies; tells how many records were answered."""
    book = Book(disk, SetClock(), fence_limit=FENCE)
    done = 0
    try:
        book.open(boot_id="boot-1")
        for record in records:
            book.write(record)
            done += 1
    except DiskDied:
        pass
    return done
