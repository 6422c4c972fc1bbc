"""The format number of a journal: older formats are read, newer ones are refused, and nothing is ever cut off.

`data/journals` has a segment and a snapshot of each commit that wrote another format, with one record of each type and
every field set, made by the code of that commit; and in `history` a coherent journal of the last one.
"""

import asyncio
import json
from pathlib import Path

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
from podpool.agent.secondary.shared_range_log import SHARED_RANGE_JOURNAL
from podpool.agent.state import AGENT_JOURNAL, AgentState
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk

JOURNALS = Path(__file__).parent / "data" / "journals"
SEGMENT = "segment.00000001"
REFUSED = {
    **dict.fromkeys(("3adcea5", "bf3bf72", "2c68e07", "4844de4"), "a development version wrote it"),
    **dict.fromkeys(("7d61eaf", "6813594", "52c6528"), "a development version wrote it"),
    **dict.fromkeys(("3ccb41b", "d1a2104", "59007cb", "1dfa9ca", "d9173ba"), "record .* is not known"),
}
"""Commits before the first release, by what is wrong: frames without a checksum of the length, other names."""
RECORDS: tuple[AnyRecord, ...] = (Started(boot_id="boot-1", boot=1.0, wall=2.0), NCAdopted(nc="nc-1"))


def disk_of(folder: str, *names: str) -> MemoryDisk:
    disk = MemoryDisk()
    disk.written = {name: (JOURNALS / folder / name).read_bytes() for name in names}
    return disk


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


class TestEarlierFormats:
    @pytest.mark.parametrize(("commit", "name"), [(each, name) for each in REFUSED for name in (SEGMENT, "snapshot")])
    def test_those_of_development_versions_are_refused_and_kept(self, commit: str, name: str) -> None:
        text = refusal(disk_of(commit, name))
        assert f"cannot read the journal file {name}: " in text
        assert "Nothing was changed" in text

    @pytest.mark.parametrize(("commit", "reason"), REFUSED.items())
    def test_the_error_has_the_reason(self, commit: str, reason: str) -> None:
        with pytest.raises(UnsupportedJournal, match=reason):
            opened(disk_of(commit, SEGMENT))

    @pytest.mark.parametrize("commit", ["2c68e07", "7d61eaf"])
    def test_logs_of_json_lines_are_refused_and_kept(self, commit: str) -> None:
        disk = disk_of(commit, "shared-ranges.000001")
        with pytest.raises(UnsupportedJournal, match=r"shared-ranges\.000001: a development version wrote it"):
            read_journal(disk, SHARED_RANGE_JOURNAL)

    def test_every_record_without_a_number_is_read(self) -> None:
        found = read_journal(disk_of("2294e34", SEGMENT), AGENT_JOURNAL)
        assert (22, 0, False, 0) == (len(found.records), found.torn, found.damaged, found.format)

    def test_a_snapshot_without_a_number_is_read(self) -> None:
        found = read_journal(disk_of("2294e34", "snapshot"), AGENT_JOURNAL)
        assert [Snapshot] == [type(each) for each in found.records]

    def test_a_history_without_a_number_has_the_same_state(self) -> None:
        clock = SetClock()
        clock.pass_time(10.0)
        state = AgentState(disk_of("history", SEGMENT), clock, fence_limit=60.0, underlay=True)
        assert not state.open(boot_id="boot-1").damaged
        expected = json.loads((JOURNALS / "history" / "state.json").read_text())
        assert expected == json.loads(msgspec.json.encode(state.snapshot()))

    def test_the_shared_range_log_without_a_number_is_read(self) -> None:
        found = read_journal(disk_of("history", "shared-ranges.segment.00000001"), SHARED_RANGE_JOURNAL)
        assert (3, 0, False) == (len(found.records), found.torn, found.damaged)

    def test_a_segment_of_another_format_is_not_continued(self) -> None:
        disk = disk_of("history", SEGMENT)
        before = disk.written[SEGMENT]
        state = AgentState(disk, SetClock(), fence_limit=60.0)
        state.open(boot_id="boot-1")
        state.write(Stopped())
        assert before == disk.written[SEGMENT]
        found = read_journal(disk, AGENT_JOURNAL)
        assert (FORMAT, 2, Stopped()) == (found.format, found.segment, found.records[-1])


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
