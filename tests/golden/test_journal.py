"""What an agent writes to its disk, byte for byte: agents of any version read it after an upgrade or a downgrade.

A field with a default that older agents may ignore can be added. Anything else, also a new type of record, is a new
format: raise `NEWEST_FORMAT` (journal_reader.py) in one release, and write it with `FORMAT` in the next.
"""

import asyncio
import struct

import pytest

from podpool.agent import journal as journal_module
from podpool.agent import records as r
from podpool.agent.journal import Journal
from podpool.agent.journal_reader import read_journal
from podpool.agent.secondary.shared_range_journal import SHARED_RANGE_JOURNAL, AnySharedRangeRecord, SharedRangeSnapshot
from podpool.agent.state import AGENT_JOURNAL, AgentState
from podpool.api.azure import IPAssignment, NetworkContainer
from podpool.cni.protocol import Attachment
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.golden.files import matches_json, matches_lines, on_the_wire, read_text
from tests.golden.samples import sample, samples

HEAD = struct.Struct("!III")
ATTACHMENT = Attachment(container_id="sandbox-1", ifname="eth0")
OTHER = Attachment(container_id="sandbox-2", ifname="net1")
HOLDER = r.SliceHolder(
    attachment=OTHER, podref="default/web", network="wide", pod_uid="uid-1", netns="/run/netns/cni-2", added=5.0
)
NC = NetworkContainer(
    id="container-1",
    primary_ip="10.0.0.4",
    subnet_name="pods",
    subnet_address_space="10.0.0.0/24",
    default_gateway="10.0.0.1",
    version=3,
    status="NCUpdateSuccess",
    ip_assignments=tuple(IPAssignment(name=f"grant-{each}", ip=f"10.0.0.{each}") for each in range(11, 16)),
)
ADDRESSES = tuple(r.SliceAddress(assignment="assignment-1", address=f"10.9.0.{each}") for each in (1, 2, 3))
ACQUIRED = r.SliceAcquired(
    assignment="assignment-1", name="wide-node-1", network="wide", range="10.9.0.0/16", slice="10.9.0.0/28", at=4.0
)
HISTORY: tuple[r.AnyRecord, ...] = (
    r.Started(boot_id="boot-1", boot=1.0, wall=1_000_001.0),
    r.NCAdopted(nc="container-1"),
    r.NodeConfirmed(boot=2.0, wall=1_000_002.0),
    r.NodeConfirmed(boot=2.5, wall=1_000_002.5, node_only=True),
    r.NCAccepted(nc=NC, at=3.0),
    r.NCProgrammed(versions={"container-1": 3}),
    r.Assigned(
        grant="grant-11",
        attachment=ATTACHMENT,
        pod=r.PodIdentity(namespace="default", name="web", uid="uid-1"),
        network="podpool",
        netns="/run/netns/cni-1",
        added=4.0,
    ),
    r.Assigned(grant="grant-12", attachment=OTHER),
    r.Unassigned(grant="grant-12", at=5.0),
    r.ReleasePending(grants=("grant-13",), version=3, boot_id="boot-1"),
    ACQUIRED,
    r.SliceConfirmed(assignment="assignment-1"),
    r.SliceAssigned(holder=HOLDER, addresses=ADDRESSES),
    r.SliceUnassigned(addresses=ADDRESSES[1:], at=6.0),
    r.SliceCooledDown(addresses=ADDRESSES[2:]),
    r.SliceRangeChanged(assignment="assignment-1", range="10.9.0.0/17"),
    r.NodeSlicesObserved(version="12"),
)
"""The history of a node with an NC and a slice."""


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files have the version that wrote them."""
    monkeypatch.setattr(journal_module, "__version__", "1.2.3")


def readable(content: bytes) -> list[str]:
    """Return each frame as a line: length, checksum of the length, checksum of the payload, payload."""
    lines, at = [], 0
    while at < len(content):
        head = content[at : at + HEAD.size]
        end = at + HEAD.size + HEAD.unpack(head)[0]
        lines.append(f"{head.hex(' ', 4)} {content[at + HEAD.size : end].decode()}")
        at = end
    return lines


def packed(text: str) -> bytes:
    """Parse what `readable` returned."""
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
    journal = Journal(disk, AGENT_JOURNAL, lambda: sample(r.Snapshot))
    for each in every:
        journal.append(each)
    written(disk, "journal/records")
    found = read_journal(disk_of("journal/records", "segment.00000001"), AGENT_JOURNAL)
    assert (tuple(every), 0, False) == (found.records, found.torn, found.damaged)


def test_a_compacted_journal_is_written_and_read() -> None:
    """A snapshot with every field, and a record after it."""
    disk = MemoryDisk()
    journal = Journal(disk, AGENT_JOURNAL, lambda: sample(r.Snapshot))
    journal.append(sample(r.Started))
    asyncio.run(journal.compact())
    journal.append(sample(r.Stopped))
    written(disk, "journal/compacted")
    found = read_journal(disk_of("journal/compacted", "snapshot", "segment.00000002"), AGENT_JOURNAL)
    assert (sample(r.Snapshot), sample(r.Stopped)) == found.records
    assert (2, 0, False) == (found.segment, found.torn, found.damaged)


def test_a_history_is_read_to_the_same_state() -> None:
    disk = MemoryDisk()
    journal = Journal(disk, AGENT_JOURNAL, lambda: sample(r.Snapshot))
    for each in HISTORY:
        journal.append(each)
    written(disk, "journal/history")
    clock = SetClock()
    clock.pass_time(10.0)
    state = AgentState(disk_of("journal/history", "segment.00000001"), clock, fence_limit=60.0, underlay=True)
    found = state.open(boot_id="boot-1")
    assert (HISTORY, 0, False) == (found.records, found.torn, found.damaged)
    matches_json("journal/history/state.json", on_the_wire(state.snapshot()))


def test_records_of_shared_ranges_are_written_and_read() -> None:
    """One record of each type with every field, and a compacted journal."""
    every = samples(AnySharedRangeRecord)
    disk = MemoryDisk()
    journal = Journal(disk, SHARED_RANGE_JOURNAL, lambda: sample(SharedRangeSnapshot))
    for each in every:
        journal.append(each)
    written(disk, "journal/shared-ranges")
    found = read_journal(disk_of("journal/shared-ranges", "shared-ranges.segment.00000001"), SHARED_RANGE_JOURNAL)
    assert (tuple(every), 0, False) == (found.records, found.torn, found.damaged)
    asyncio.run(journal.compact())
    assert ["shared-ranges.snapshot"] == disk.names()
    written(disk, "journal/shared-ranges")
