"""Journals of earlier formats, with or without a number: an agent starts with the state that they have.

`data/journals` has of each commit that wrote another format, made by its code:

- a segment and a snapshot with one record of each type and every field set;
- in `history` a coherent journal, compacted once, with the state that its agent had, in present names: `snapshot.json`
  is that of the snapshot, `state.json` that after the segment. The agent of 2294e34 does not start, so its history is
  made by 7845a16, the first one of this format that does.

`data/journals/history` is of the last commit without a number, `data/journals/format-1` of the last with the number 1.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podpool.agent import records
from podpool.agent.journal import GROUP_COMMIT_INTERVAL, Journal
from podpool.agent.journal_frames import FRAMES, UNCHECKED_LENGTHS, frame_layout
from podpool.agent.journal_reader import FORMAT, UnsupportedJournal, encode_frame, read_journal
from podpool.agent.journal_upgrade import DROPPED_FIELDS, FORMER_FIELDS, FORMER_LINES, FORMER_TAGS
from podpool.agent.records import AnyRecord, CooldownForced, SliceAcquired, Snapshot
from podpool.agent.secondary import shared_range_journal
from podpool.agent.secondary.shared_range_journal import SHARED_RANGE_JOURNAL, SharedAllocation
from podpool.agent.state import AGENT_JOURNAL, AgentState
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.secondary.test_shared_range_journal import open_log
from tests.kube.event_loops import run_virtual

JOURNALS = Path(__file__).parent / "data" / "journals"
SEGMENT, LATER, SNAPSHOT, LINES = "segment.00000001", "segment.00000002", "snapshot", "shared-ranges.000004"
UNCHECKED = ("3adcea5", "bf3bf72", "2c68e07", "4844de4", "7d61eaf", "6813594", "52c6528")
NUMBERED = ("format-1",)
COMMITS = (*UNCHECKED, "3ccb41b", "d1a2104", "59007cb", "1dfa9ca", "d9173ba", "2294e34")
WITH_LINES = COMMITS[2:-1]
NOT_VERSIONED = COMMITS[:8]
"""Without versions of grants and interfaces of assignments."""
SLICE = {"lease": "lease-1", "name": "s", "network": "wide", "range": "10.9.0.0/16", "slice": "10.9.1.0/28"}


def disk_of(folder: str, *names: str) -> MemoryDisk:
    disk = MemoryDisk()
    disk.written = {name: (JOURNALS / folder / name).read_bytes() for name in names}
    return disk


def written(record: dict[str, Any], *, unchecked: bool = False) -> MemoryDisk:
    """Return a disk with a record, or with `unchecked` in a frame without a checksum of the length."""
    disk, payload = MemoryDisk(), msgspec.json.encode(record)
    frame = encode_frame(payload)
    disk.written[SEGMENT] = frame[:4] + frame[8:] if unchecked else frame
    return disk


def opened(disk: MemoryDisk) -> AgentState:
    clock = SetClock()
    clock.pass_time(13.0)
    state = AgentState(disk, clock, fence_limit=60.0, underlay=True)
    state.open(boot_id="boot-1")
    return state


def json_of(state: AgentState) -> dict[str, Any]:
    """Return the state, without what no former format has."""
    found = json.loads(msgspec.json.encode(state.snapshot()))
    return {name: each for name, each in found.items() if name != "journal"}


def only_record(disk: MemoryDisk) -> AnyRecord:
    [record] = read_journal(disk, AGENT_JOURNAL).records
    return record


class TestHistories:
    """An agent that is upgraded has the state of the one before, and where that lacks a fact the safe one."""

    @pytest.mark.parametrize("commit", COMMITS)
    def test_a_snapshot_has_the_same_state(self, commit: str) -> None:
        state = opened(disk_of(f"{commit}/history", SNAPSHOT))
        assert expected(commit, "snapshot.json") == json_of(state)

    @pytest.mark.parametrize("commit", COMMITS)
    def test_a_snapshot_and_a_segment_have_the_same_state(self, commit: str) -> None:
        state = opened(disk_of(f"{commit}/history", SNAPSHOT, LATER))
        assert expected(commit, "state.json") == json_of(state)

    @pytest.mark.parametrize("commit", COMMITS)
    def test_it_goes_on_in_a_new_segment_of_the_present_format(self, commit: str) -> None:
        disk = disk_of(f"{commit}/history", SNAPSHOT, LATER)
        before = dict(disk.written)
        state = opened(disk)
        assert before == {name: disk.written[name] for name in before}
        found = read_journal(disk, AGENT_JOURNAL)
        assert (3, FORMAT, False) == (found.segment, found.format, found.damaged)
        assert json_of(state) == json_of(opened(disk.after_kill()))

    @pytest.mark.parametrize("commit", COMMITS)
    def test_it_is_compacted_to_the_present_format(self, commit: str) -> None:
        disk = disk_of(f"{commit}/history", SNAPSHOT, LATER)
        state = opened(disk)
        asyncio.run(state.journal.compact())
        assert [SNAPSHOT] == disk.names()
        assert b'"journal_format":2' in disk.written[SNAPSHOT]
        assert json_of(state) == json_of(opened(disk.after_kill()))

    @pytest.mark.parametrize("commit", COMMITS)
    def test_after_a_reboot_nothing_is_assigned_and_everything_cools_down(self, commit: str) -> None:
        state = AgentState(disk_of(f"{commit}/history", SNAPSHOT, LATER), SetClock(), fence_limit=60.0)
        state.open(boot_id="boot-2")
        snapshot = state.snapshot()
        assigned = [snapshot.assigned, *(each.assigned for each in snapshot.slices)]
        assert not any((snapshot.unused, *assigned))
        assert (None, None) == (snapshot.confirmed, snapshot.node_confirmed)

    @pytest.mark.parametrize("folder", ["history", "format-1/history"])
    def test_the_last_formats_have_the_same_state(self, folder: str) -> None:
        clock = SetClock()
        clock.pass_time(10.0)
        state = AgentState(disk_of(folder, SEGMENT), clock, fence_limit=60.0, underlay=True)
        state.open(boot_id="boot-1")
        found = with_assignments(json.loads((JOURNALS / folder / "state.json").read_text()))
        assert {name: each for name, each in found.items() if name != "journal"} == json_of(state)


class TestRecords:
    @pytest.mark.parametrize("commit", [*COMMITS, *NUMBERED])
    def test_every_record_and_every_field_is_read(self, commit: str) -> None:
        """A field that is in no format would be refused."""
        disk, number = disk_of(commit, SEGMENT), int(commit in NUMBERED)
        found = read_journal(disk, AGENT_JOURNAL)
        assert (0, False, number) == (found.torn, found.damaged, found.format)
        content = disk.written[SEGMENT]
        assert len(list(frame_layout(content).payloads(content))) == len(found.records) + number  # with its header

    @pytest.mark.parametrize("commit", [*COMMITS, *NUMBERED])
    def test_a_snapshot_is_read(self, commit: str) -> None:
        [record] = read_journal(disk_of(commit, SNAPSHOT), AGENT_JOURNAL).records
        assert isinstance(record, Snapshot)
        assert ("boot_id", "id") == (record.boot_id, record.assigned[0].grant.id)

    def test_no_former_name_has_another_meaning_today(self) -> None:
        """So a record without a number is read in one way, whichever version wrote it."""
        modules = (records, shared_range_journal)
        structs: dict[str, Any] = {name: each for module in modules for name, each in vars(module).items()}
        for name, renamed in FORMER_FIELDS.items():
            present = {each.encode_name for each in msgspec.structs.fields(structs[name])}
            assert present >= set(renamed.values())
            assert present.isdisjoint({*renamed, *DROPPED_FIELDS.get(name, ())})
        tags = {each.__struct_config__.tag for each in structs.values() if hasattr(each, "__struct_config__")}
        assert tags >= set(FORMER_TAGS.values()) | {tag for tag, _ in FORMER_LINES.values()}
        assert tags.isdisjoint(FORMER_TAGS)

    def test_a_slice_that_was_never_used_keeps_what_d9173ba_wrote_of_it(self) -> None:
        """No name of a holder shows that the snapshot is of d9173ba."""
        state = {"type": "snapshot", "slices": [SLICE | {"signed": False, "unsure": True, "doubted_at": 3.0}]}
        disk = MemoryDisk()
        disk.written[SNAPSHOT] = encode_frame(msgspec.json.encode({"segment": 2, "state": state}))
        snapshot = only_record(disk)
        assert isinstance(snapshot, Snapshot)
        [slice_] = snapshot.slices
        assert (False, True, 3.0) == (slice_.confirmed, slice_.recovering, slice_.cooldown_forced_at)

    @pytest.mark.parametrize(
        "record",
        [
            {"is": "invented", "grant": "g"},
            {"type": "invented", "grant": "g"},
            {"type": "stopped", "invented": True},
            {"is": "assigned", "grant": "g", "owner": {"container_id": "c", "ifname": "eth0", "invented": 1}},
            {"is": "assigned", "grant": "g", "owner": {}, "attachment": {"containerID": "c", "ifname": "eth0"}},
            {"is": "assigned", "grant": "g", "owner": "c"},
            {"is": "assigned", "grant": ["g"]},
            {"is": "assigned", "grant": {"id": "g"}},
            {"is": "assigned", "grant": "g", "more": {"owner": "c"}},
            {"is": "snapshot", "confirmed": {"boot": 1.0}},
            {"is": ["snapshot"]},
            {"all": []},
        ],
    )
    @pytest.mark.parametrize("unchecked", [False, True])
    def test_one_that_is_in_no_format_is_refused_and_kept(self, record: dict[str, Any], *, unchecked: bool) -> None:
        disk = written(record, unchecked=unchecked)
        before = dict(disk.written)
        with pytest.raises(UnsupportedJournal, match=rf"{SEGMENT}: record .* is not known"):
            opened(disk)
        assert before == disk.written


def test_a_slice_of_an_earlier_format_is_suspended() -> None:
    """Its Lease is no assignment: nothing of it is assigned before NodeSlices lists and confirms it."""
    for folder, names in (("format-1/history", [SEGMENT]), ("2294e34/history", [SNAPSHOT, LATER])):
        slices = opened(disk_of(folder, *names)).slices
        assert {False} == {each.confirmed for each in slices}
        assert any(each.assigned for each in slices)


class TestSafeValues:
    """What files without checksums of lengths lack, as they may be of a version that did not know it."""

    def test_which_grants_are_lost_is_not_known(self) -> None:
        disk = written({"is": "doubted", "at": 1.0}, unchecked=True)
        assert CooldownForced(at=1.0, incomplete=True) == only_record(disk)

    def test_unless_the_record_has_them(self) -> None:
        disk = written({"is": "doubted", "at": 1.0, "forgotten": ["g"]}, unchecked=True)
        assert CooldownForced(at=1.0, lost=("g",)) == only_record(disk)

    def test_later_versions_wrote_it_if_there_were_any(self) -> None:
        assert CooldownForced(at=1.0) == only_record(written({"is": "doubted", "at": 1.0}))

    @pytest.mark.parametrize("unchecked", [False, True])
    def test_a_snapshot_after_a_forced_cooldown_is_incomplete(self, *, unchecked: bool) -> None:
        snapshot = only_record(written({"is": "snapshot", "doubted_at": 1.0}, unchecked=unchecked))
        assert isinstance(snapshot, Snapshot)
        assert unchecked is snapshot.incomplete

    @pytest.mark.parametrize("unchecked", [False, True])
    def test_a_slice_whose_cooldown_was_forced_is_recovered(self, *, unchecked: bool) -> None:
        acquired = only_record(written({"is": "slice-taken", **SLICE, "at": 1.0, "doubted": True}, unchecked=unchecked))
        assert isinstance(acquired, SliceAcquired)
        assert unchecked is acquired.recovering
        snapshot = only_record(
            written({"is": "snapshot", "slices": [SLICE | {"doubted_at": 1.0}]}, unchecked=unchecked)
        )
        assert isinstance(snapshot, Snapshot)
        assert [unchecked] == [each.recovering for each in snapshot.slices]

    @pytest.mark.parametrize(("address", "length"), [("10.0.0.7", 32), ("fd00::7", 128), ("unreadable", 32)])
    def test_an_assignment_without_a_network_container_has_a_host_route(self, address: str, length: int) -> None:
        grant = {"id": "g", "address": address, "since": 1.0, "container": "gone"}
        held = {"grant": grant, "owner": {"container_id": "c", "ifname": "eth0"}}
        snapshot = only_record(written({"is": "snapshot", "held": [held]}))
        assert isinstance(snapshot, Snapshot)
        assert [(length, "")] == [(each.prefix, each.gateway) for each in snapshot.assigned]


class TestUncheckedLengths:
    """Frames without a checksum of the length: no record that was answered is cut off without notice."""

    def test_a_torn_record_is_truncated(self) -> None:
        whole = content_of("4844de4")
        ends = [0, *(end for _, end in UNCHECKED_LENGTHS.payloads(whole))]
        last = whole[ends[-2] : ends[-1]]
        for size in range(1, len(last)):
            disk = MemoryDisk()
            disk.written[SEGMENT] = whole[: ends[-2] + size]
            found = Journal(disk, AGENT_JOURNAL, Snapshot).open(lambda _: None)
            assert (size, last[:size].endswith(b"}")) == (found.torn, found.damaged)
            assert whole[: ends[-2]] == disk.written[SEGMENT]

    @pytest.mark.parametrize("flip", [1, 0x80, 0xFF])
    def test_any_flipped_byte_is_damage(self, flip: int) -> None:
        whole = (JOURNALS / "3adcea5" / "history" / LATER).read_bytes()
        for at in range(len(whole)):
            disk = MemoryDisk()
            disk.written[SEGMENT] = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
            assert read_journal(disk, AGENT_JOURNAL).damage

    @pytest.mark.parametrize("commit", COMMITS)
    def test_the_layout_of_a_file_is_certain(self, commit: str) -> None:
        layout = UNCHECKED_LENGTHS if commit in UNCHECKED else FRAMES
        for name in (SEGMENT, SNAPSHOT):
            content = (JOURNALS / commit / name).read_bytes()
            assert layout is frame_layout(content)
            assert [layout] == [each for each in (UNCHECKED_LENGTHS, FRAMES) if any(each.payloads(content))]


class TestLinesOfSharedRanges:
    def allocations(self, disk: MemoryDisk) -> list[SharedAllocation]:
        return list(open_log(disk.after_kill()).allocations.values())

    def journal(self, disk: MemoryDisk) -> Journal[shared_range_journal.AnySharedRangeRecord]:
        known = tuple(self.allocations(disk))
        journal = Journal(
            disk, SHARED_RANGE_JOURNAL, lambda: shared_range_journal.SharedRangeSnapshot(allocations=known)
        )
        journal.open(lambda _: None)
        return journal

    @pytest.mark.parametrize("commit", WITH_LINES)
    def test_a_history_has_the_same_entries(self, commit: str) -> None:
        assert entries_of(commit) == self.allocations(disk_of(f"{commit}/history", LINES))

    def test_so_has_a_history_in_frames(self) -> None:
        name = "shared-ranges.segment.00000001"
        assert entries_of("2294e34") == self.allocations(disk_of("2294e34/history", name))
        assert 3 == len(read_journal(disk_of("history", name), SHARED_RANGE_JOURNAL).records)

    @pytest.mark.parametrize("commit", ["2c68e07", "7d61eaf"])
    def test_every_field_is_read(self, commit: str) -> None:
        [entry] = self.allocations(disk_of(commit, "shared-ranges.000001"))
        assert (True, True, "podref") == (entry.releasing, entry.reserved, entry.podref)
        assert bool(entry.addresses and entry.boot_id) is (commit == "7d61eaf")

    @pytest.mark.parametrize("commit", WITH_LINES)
    def test_a_snapshot_replaces_them_soon(self, commit: str) -> None:
        disk = disk_of(f"{commit}/history", LINES)
        run_shortly(self.journal(disk))
        assert ["shared-ranges.snapshot"] == disk.names()
        assert entries_of(commit) == self.allocations(disk)

    def test_what_is_written_after_them_counts(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        first, *others = entries_of("d9173ba")
        self.journal(disk).append(shared_range_journal.SharedReleased(attachment=first.attachment))
        assert others == self.allocations(disk.after_kill())

    def test_they_do_not_count_after_a_snapshot(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        empty = shared_range_journal.SharedRangeSnapshot(allocations=())
        asyncio.run(Journal(disk, SHARED_RANGE_JOURNAL, lambda: empty).compact())
        assert LINES in disk.names()
        assert [] == self.allocations(disk)

    def test_a_file_whose_first_line_was_not_written_does_not_count(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        disk.written["shared-ranges.000005"] = disk.written[LINES][:40]
        assert entries_of("d9173ba") == self.allocations(disk)

    def test_a_torn_line_does_not_count(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        disk.written[LINES] += disk.written[LINES][:40]
        assert entries_of("d9173ba") == self.allocations(disk)
        assert not read_journal(disk, SHARED_RANGE_JOURNAL).damaged

    def test_one_that_is_not_json_is_damage_and_is_set_aside(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        content = disk.written[LINES]
        disk.written[LINES] = content.replace(b'{"kept"', b'["kept"', 1)
        self.journal(disk)
        journal = self.journal(disk)  # of the next agent, too, if this one could not write a snapshot
        assert ["shared-ranges.000004.damaged-1", "shared-ranges.000004.damaged-2"] == [
            each for each in disk.names() if "damaged-" in each
        ]
        run_shortly(journal)
        assert LINES not in disk.names()

    def test_an_unknown_one_is_refused_and_kept(self) -> None:
        disk = disk_of("d9173ba/history", LINES)
        disk.written[LINES] += b'{"invented":1}\n'
        before = dict(disk.written)
        with pytest.raises(UnsupportedJournal, match=LINES):
            self.journal(disk)
        assert before == disk.written


def entries_of(commit: str) -> list[SharedAllocation]:
    """Return the entries that the agent had."""
    text = (JOURNALS / commit / "history" / "shared-ranges.json").read_text()
    return msgspec.json.decode(text, type=list[SharedAllocation])


def run_shortly(journal: Journal[Any]) -> None:
    """Run until the first background sync is done."""

    async def run() -> None:
        background = asyncio.ensure_future(journal.run())
        await asyncio.sleep(GROUP_COMMIT_INTERVAL * 2)
        background.cancel()

    run_virtual(run())


def content_of(commit: str) -> bytes:
    return (JOURNALS / commit / SEGMENT).read_bytes()


def expected(commit: str, name: str) -> dict[str, Any]:
    """Return the state that the agent had, with the safe values."""
    state: dict[str, Any] = json.loads((JOURNALS / commit / "history" / name).read_text())
    if commit in NOT_VERSIONED:
        ncs = {"": state["nc"]} | {each["id"]: each for each in state.get("additional_ncs", ())}
        assigned = [each["grant"] for each in state["assigned"]]
        for grant in (*state.get("unused", ()), *state["used"], *state["pending_release"], *assigned):
            grant["version"] = ncs[grant.get("nc", "")]["version"]
        for each in state["assigned"]:
            each.update(prefix=24, gateway=ncs[each["grant"].get("nc", "")]["defaultGateway"])
    for each in state.get("slices", ()) if commit in UNCHECKED else ():
        doubted = each["lease"] in ("lease-4", "lease-5")
        each.update({"recovering": True} if doubted and commit in ("2c68e07", "4844de4") else {})
        if each.get("closed"):
            each.pop("cooldown_forced_at", None)  # nothing of it is assigned
    if commit in UNCHECKED[:3] and name == "state.json":
        state["incomplete"] = True
    if commit == "2c68e07":
        state["node_confirmed"] = [2.5, 1000002.5]
    return with_assignments(state)


def with_assignments(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with the assignments that its Leases stand for: none is confirmed."""
    for each in state.get("slices", ()):
        each.pop("acknowledged", None)
        each["assignment"] = each.pop("lease")
    return state
