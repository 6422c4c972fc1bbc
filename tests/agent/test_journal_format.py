"""The format number of a journal: older formats are read, newer ones are refused, and nothing is ever cut off.

The journals of development versions, which have no number, are tested in `test_journal_upgrade.py`.
"""

import asyncio

import msgspec
import pytest

from podpool import __version__
from podpool.agent import journal as journal_module
from podpool.agent import journal_reader
from podpool.agent.journal import Journal
from podpool.agent.journal_reader import (
    FORMAT,
    FileHeader,
    JournalContents,
    UnsupportedJournal,
    encode_frame,
    read_journal,
)
from podpool.agent.records import AnyRecord, NCAdopted, Snapshot, Started, Stopped
from podpool.agent.state import AGENT_JOURNAL, AgentState
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk

SEGMENT = "segment.00000001"
RECORDS: tuple[AnyRecord, ...] = (Started(boot_id="boot-1", boot=1.0, wall=2.0), NCAdopted(nc="nc-1"))


def journal_on(disk: MemoryDisk) -> Journal[AnyRecord]:
    return Journal(disk, AGENT_JOURNAL, Snapshot)


def opened(disk: MemoryDisk) -> JournalContents[AnyRecord]:
    return journal_on(disk).open(lambda _: None)


def written(*records: AnyRecord) -> MemoryDisk:
    disk = MemoryDisk()
    journal = journal_on(disk)
    for record in records:
        journal.append(record)
    return disk


def refusal(disk: MemoryDisk) -> str:
    """Open a journal that is refused, and check that nothing changes; return the error."""
    before = dict(disk.written)
    with pytest.raises(UnsupportedJournal) as refused:
        opened(disk)
    with pytest.raises(UnsupportedJournal):
        AgentState(disk, SetClock(), fence_limit=60.0).open(boot_id="boot-1")
    assert before == disk.written
    return str(refused.value)


class TestNewerFormat:
    def newer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "FORMAT", FORMAT + 1)
        monkeypatch.setattr(journal_module, "__version__", "9.8.7")

    def test_a_segment_is_refused_with_the_version_that_wrote_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.newer(monkeypatch)
        disk = written(*RECORDS)
        monkeypatch.undo()
        text = refusal(disk)
        assert f"{SEGMENT}: podpool 9.8.7 wrote it in format {FORMAT + 1}" in text
        assert f"this is podpool {__version__}, which reads journal formats up to {FORMAT}" in text
        assert "run the version that wrote it" in text

    def test_a_snapshot_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.newer(monkeypatch)
        disk = written(*RECORDS)
        asyncio.run(journal_on(disk).compact())
        monkeypatch.undo()
        assert "snapshot: podpool 9.8.7" in refusal(disk)

    def test_it_is_refused_before_damage_elsewhere_sets_it_aside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = written(*RECORDS)
        disk.written[SEGMENT] = disk.written[SEGMENT][:-1] + b"?"
        self.newer(monkeypatch)
        later = written(*RECORDS)
        monkeypatch.undo()
        disk.written["segment.00000002"] = later.written[SEGMENT]
        assert "segment.00000002: podpool 9.8.7" in refusal(disk)

    def test_an_unknown_record_of_a_known_format_is_refused(self) -> None:
        disk = written(*RECORDS)
        disk.append(SEGMENT, encode_frame(b'{"type":"invented-later","grant":"g1"}'))
        disk.append(SEGMENT, encode_frame(b'{"type":"stopped"}'))
        assert "record invented-later is not known" in refusal(disk)

    def test_a_format_can_be_read_a_release_before_it_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.newer(monkeypatch)
        disk = written(*RECORDS)
        monkeypatch.undo()
        monkeypatch.setattr(journal_reader, "NEWEST_FORMAT", FORMAT + 1)
        journal = journal_on(disk)
        assert RECORDS == journal.open(lambda _: None).records
        journal.append(Stopped())
        found = read_journal(disk, AGENT_JOURNAL)
        assert ((*RECORDS, Stopped()), FORMAT) == (found.records, found.format)


class TestHeader:
    def test_every_segment_starts_with_it_once(self) -> None:
        header = encode_frame(msgspec.json.encode(FileHeader(journal_format=FORMAT, podpool=__version__)))
        disk = written(*RECORDS)
        journal = journal_on(disk)
        journal.open(lambda _: None)
        journal.append(Stopped())
        content = disk.written[SEGMENT]
        assert content.startswith(header)
        assert 1 == content.count(header)

    def test_it_is_written_again_after_it_was_torn(self) -> None:
        whole = written(*RECORDS)
        for size in range(len(whole.written[SEGMENT])):
            disk = MemoryDisk()
            disk.written[SEGMENT] = whole.written[SEGMENT][:size]
            journal = journal_on(disk)
            kept = journal.open(lambda _: None).records
            journal.append(Stopped())
            found = read_journal(disk, AGENT_JOURNAL)
            assert ((*kept, Stopped()), FORMAT, False) == (found.records, found.format, found.damaged)
