"""What a node remembers of shared ranges: it survives the process at any byte, and stays short."""

import msgspec
import pytest

from podpool.agent.secondary.shared_range_log import LONG, SharedAllocation, SharedRangeLog
from podpool.cni.protocol import Attachment
from tests.agent.disks import DiskDied, FullDisk, MemoryDisk
from tests.kube.loops import in_loop


def lending(container: str, *, leaving: bool = False) -> SharedAllocation:
    return SharedAllocation(
        sandbox=Attachment(container_id=container, ifname="net1"),
        podref=f"default/{container}",
        network="net",
        network_name="",
        ranges=("10.0.0.0/24",),
        reserved=True,
        leaving=leaving,
    )


def told(disk: MemoryDisk) -> set[SharedAllocation]:
    return set(SharedRangeLog(disk.after_kill(), tell=print).all.values())


def test_what_was_kept_is_there_again_in_its_last_form() -> None:
    disk = MemoryDisk()
    lendings = SharedRangeLog(disk, tell=print)
    for each in (lending("a"), lending("b"), lending("a", leaving=True)):
        lendings.keep(each)
    lendings.end(lending("b").sandbox)
    assert {lending("a", leaving=True)} == told(disk)


def test_it_dies_at_any_byte_and_has_all_that_was_answered_on() -> None:
    whole = len(msgspec.json.encode(lending("b"))) + 40
    for budget in range(whole):
        disk = MemoryDisk()
        lendings = SharedRangeLog(disk, tell=print)
        lendings.keep(lending("a"))
        disk.budget = budget
        try:
            lendings.keep(lending("b"))
        except DiskDied:
            assert {lending("a")} == told(disk)
        else:
            assert {lending("a"), lending("b")} == told(disk)


def test_a_torn_line_is_cut_off_before_the_next_is_written() -> None:
    disk = MemoryDisk()
    SharedRangeLog(disk, tell=print).keep(lending("a"))
    (name,) = disk.names()
    disk.append(name, b'{"kept":{"sand')
    SharedRangeLog(disk, tell=print).keep(lending("b"))
    assert {lending("a"), lending("b")} == told(disk)


@pytest.mark.parametrize("bad", [b'{"kept":{"sandb{"kept":null}', b"\0\0\0", b"", b'{"kept":7}'])
def test_a_line_that_cannot_be_read_is_left_out_and_said(bad: bytes) -> None:
    disk, said = MemoryDisk(), list[str]()
    SharedRangeLog(disk, tell=print).keep(lending("a"))
    (name,) = disk.names()
    disk.append(name, bad + b"\n")
    SharedRangeLog(disk, tell=said.append).keep(lending("b"))
    assert {lending("a"), lending("b")} == told(disk)
    assert f"line 2 of {name} cannot be read" in said[0]


def test_a_line_that_the_disk_had_no_room_for_spoils_none_that_follow() -> None:
    for room in range(40):
        disk = FullDisk()
        lendings = SharedRangeLog(disk, tell=print)
        lendings.keep(lending("a"))
        disk.room = room
        with pytest.raises(OSError, match="No space"):
            lendings.keep(lending("b"))
        assert {lending("a")} == set(lendings.all.values())
        disk.room = None
        lendings.keep(lending("c"))
        assert {lending("a"), lending("c")} == told(disk)


@in_loop
async def test_without_room_to_be_shortened_it_stays_long_and_loses_nothing() -> None:
    disk = FullDisk()
    lendings = SharedRangeLog(disk, tell=print)
    for each in range(20):
        lendings.keep(lending(f"stays{each}"))
    disk.room = 300
    for _ in range(LONG // 2 + 5):
        lendings.keep(lending("a"))
        lendings.end(lending("a").sandbox)
    await lendings.sync()
    assert {lending(f"stays{each}") for each in range(20)} == told(disk)
    disk.room = None
    lendings.keep(lending("b"))
    await lendings.sync()
    assert {lending("b"), *(lending(f"stays{each}") for each in range(20))} == told(disk)
    assert 1 == len(disk.names())


@in_loop
async def test_the_file_stays_short_however_long_it_runs() -> None:
    disk = MemoryDisk()
    lendings = SharedRangeLog(disk, tell=print)
    lendings.keep(lending("stays"))
    for each in range(2 * LONG):
        lendings.keep(lending(f"c{each}"))
        lendings.end(lending(f"c{each}").sandbox)
        await lendings.sync()
    assert {lending("stays")} == told(disk)
    assert 1 == len(disk.names())
    assert len(disk.written[disk.names()[0]].splitlines()) <= LONG + 1


@in_loop
async def test_what_is_synced_survives_the_machine_also_while_it_is_shortened() -> None:
    class Seen(MemoryDisk):
        """Loses its power whenever it removes a file."""

        def remove(self, name: str) -> None:
            seen.append(set(SharedRangeLog(self.after_reboot(), tell=print).all.values()))
            super().remove(name)

    seen: list[set[SharedAllocation]] = []
    lendings = SharedRangeLog(disk := Seen(), tell=print)
    lendings.keep(lending("stays"))
    for each in range(LONG):
        lendings.keep(lending("a", leaving=bool(each % 2)))
    await lendings.sync()
    assert [{lending("stays"), lending("a", leaving=True)}] == seen
    assert seen[0] == set(SharedRangeLog(disk.after_reboot(), tell=print).all.values())


@in_loop
async def test_a_death_while_it_is_shortened_loses_nothing() -> None:
    for budget in range(0, 400, 7):
        disk = MemoryDisk()
        lendings = SharedRangeLog(disk, tell=print)
        lendings.keep(lending("stays"))
        for each in range(LONG // 2):
            lendings.keep(lending(f"c{each}"))
            if each < LONG // 2 - 1:
                lendings.end(lending(f"c{each}").sandbox)
        last = lending(f"c{LONG // 2 - 1}")
        disk.budget = budget
        try:
            lendings.end(last.sandbox)
            await lendings.sync()
        except DiskDied:
            assert told(disk) in ({lending("stays"), last}, {lending("stays")})
        else:
            assert {lending("stays")} == told(disk)
