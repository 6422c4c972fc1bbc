"""What an agent writes to its disk, byte for byte: agents of any version read it after an upgrade or a downgrade."""

import asyncio
import struct

import pytest

from podpool.agent import records as r
from podpool.agent.journal import Journal, read_journal
from podpool.agent.secondary import shared_range_log
from podpool.agent.secondary.shared_range_log import Lending, Lendings
from podpool.agent.state import Book
from podpool.api.azure import IPAssignment, NetworkContainer
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.golden.files import matches_json, matches_lines, matches_text, on_the_wire, read_text
from tests.golden.samples import sample, samples

HEAD = struct.Struct("!III")
OWNER = r.Owner(container_id="sandbox-1", ifname="eth0")
OTHER = r.Owner(container_id="sandbox-2", ifname="net1")
TENANT = r.Tenant(owner=OTHER, podref="default/web", network="wide")
CONTAINER = NetworkContainer(
    id="container-1",
    primary_ip="10.0.0.4",
    subnet_name="pods",
    subnet_address_space="10.0.0.0/24",
    default_gateway="10.0.0.1",
    version=3,
    status="NCUpdateSuccess",
    ip_assignments=tuple(IPAssignment(name=f"grant-{each}", ip=f"10.0.0.{each}") for each in range(11, 16)),
)
SLOTS = tuple(r.Slot(lease="lease-1", address=f"10.9.0.{each}") for each in (1, 2, 3))
TAKEN = r.SliceTaken(
    lease="lease-1", name="wide-node-1", network="wide", range="10.9.0.0/16", slice="10.9.0.0/28", at=4.0
)
HISTORY: tuple[r.AnyRecord, ...] = (
    r.Started(boot_id="boot-1", boot=1.0, wall=1_000_001.0),
    r.Adopted(container="container-1"),
    r.Confirmed(boot=2.0, wall=1_000_002.0),
    r.Confirmed(boot=2.5, wall=1_000_002.5, node_only=True),
    r.Accepted(container=CONTAINER, at=3.0),
    r.Programmed(versions={"container-1": 3}),
    r.Assigned(
        grant="grant-11", owner=OWNER, pod=r.PodName(namespace="default", name="web", uid="uid-1"), network="podpool"
    ),
    r.Assigned(grant="grant-12", owner=OTHER),
    r.Released(grant="grant-12", at=5.0),
    r.Named(grants=("grant-13",), version=3, boot_id="boot-1"),
    TAKEN,
    r.SliceSigned(lease="lease-1"),
    r.SliceGiven(tenant=TENANT, slots=SLOTS),
    r.SliceReturned(slots=SLOTS[1:], at=6.0),
    r.SliceSettled(slots=SLOTS[2:]),
    r.SliceRanged(lease="lease-1", range="10.9.0.0/17"),
)
"""What a node with a container and a slice goes through."""


def readable(content: bytes) -> list[str]:
    """Write each frame as a line: length, checksum of the length, checksum of the payload, payload."""
    lines, at = [], 0
    while at < len(content):
        head = content[at : at + HEAD.size]
        end = at + HEAD.size + HEAD.unpack(head)[0]
        lines.append(f"{head.hex(' ', 4)} {content[at + HEAD.size : end].decode()}")
        at = end
    return lines


def packed(text: str) -> bytes:
    """Read what `readable` wrote."""
    heads = [line.split(" ", 3) for line in text.splitlines()]
    return b"".join(bytes.fromhex("".join(parts[:3])) + parts[3].encode() for parts in heads)


def disk_of(folder: str, *names: str) -> MemoryDisk:
    disk = MemoryDisk()
    disk.written = {name: packed(read_text(f"{folder}/{name}")) for name in names}
    return disk


def written(disk: MemoryDisk, folder: str) -> None:
    for name, content in disk.written.items():
        matches_lines(f"{folder}/{name}", readable(content))


def test_every_record_is_written_and_read() -> None:
    """One record of each type, with every field."""
    every = samples(r.AnyRecord)
    disk = MemoryDisk()
    journal = Journal(disk)
    for each in every:
        journal.append(each)
    written(disk, "journal/records")
    found = read_journal(disk_of("journal/records", "segment.00000001"))
    assert (tuple(every), 0, False) == (found.records, found.torn, found.damaged)


def test_a_compacted_journal_is_written_and_read() -> None:
    """A snapshot with every field, and a record after it."""
    disk = MemoryDisk()
    journal = Journal(disk)
    journal.append(sample(r.Started))
    asyncio.run(journal.compact(sample(r.Snapshot)))
    journal.append(sample(r.Stopped))
    written(disk, "journal/compacted")
    found = read_journal(disk_of("journal/compacted", "snapshot", "segment.00000002"))
    assert (sample(r.Snapshot), sample(r.Stopped)) == found.records
    assert (2, 0, False) == (found.segment, found.torn, found.damaged)


def test_a_history_is_read_to_the_same_state() -> None:
    disk = MemoryDisk()
    journal = Journal(disk)
    for each in HISTORY:
        journal.append(each)
    written(disk, "journal/history")
    clock = SetClock()
    clock.pass_time(10.0)
    book = Book(disk_of("journal/history", "segment.00000001"), clock, fence_limit=60.0, underlay=True)
    found = book.open(boot_id="boot-1")
    assert (HISTORY, 0, False) == (found.records, found.torn, found.damaged)
    matches_json("journal/history/state.json", on_the_wire(book.snapshot()))


def test_addresses_of_shared_ranges_are_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of lines, and the file that follows it when it has become long."""
    disk = MemoryDisk()
    kept, ended = (
        sample(Lending),
        Lending(sandbox=OTHER, podref="", network="", network_name="", ranges=(), reserved=False),
    )
    lendings = Lendings(disk, tell=pytest.fail)
    lendings.keep(kept)
    lendings.keep(ended)
    lendings.end(OTHER)
    lendings.keep(Lending(sandbox=OWNER, podref="", network="", network_name="", ranges=(), reserved=False))
    lendings.end(OWNER)
    first = disk.written["shared-ranges.000001"].decode()
    matches_text("journal/shared-ranges.000001", first)
    monkeypatch.setattr(shared_range_log, "LONG", 1)
    asyncio.run(lendings.sync())
    assert ["shared-ranges.000002"] == disk.names()
    matches_text("journal/shared-ranges.000002", disk.written["shared-ranges.000002"].decode())
    for name in ("shared-ranges.000001", "shared-ranges.000002"):
        found = MemoryDisk()
        found.written[name] = read_text(f"journal/{name}").encode()
        assert {kept.sandbox: kept} == Lendings(found, tell=pytest.fail).all
