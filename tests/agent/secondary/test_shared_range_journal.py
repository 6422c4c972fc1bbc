"""The log of allocations in shared ranges. Crashes at any byte and full disks are tested with the journal."""

import random

import pytest

from podpool.agent.deps import AgentDeps
from podpool.agent.journal import Journal
from podpool.agent.secondary.shared_range_journal import (
    SHARED_RANGE_JOURNAL,
    ReleasesInProgress,
    SharedAllocation,
    SharedRangeLog,
    SharedRangeSnapshot,
)
from podpool.cni.protocol import Attachment
from podpool.core.addresses import parse_address
from podpool.kube.client import KubeClient
from podpool.runtime.transport import Request, Response
from tests.agent.clocks import SetClock
from tests.agent.disks import FullDisk, MemoryDisk
from tests.kube.event_loops import run_in_loop


class NoTransport:
    async def send(self, request: Request) -> Response:
        raise AssertionError(request)


def open_log(disk: MemoryDisk, *, boot_id: str = "boot-1") -> SharedRangeLog:
    rng = random.Random(1)  # noqa: S311  seeded
    return SharedRangeLog(
        AgentDeps(node="a", boot_id=boot_id, kube=KubeClient(NoTransport()), disk=disk, clock=SetClock(), rng=rng)
    )


def allocation(container_id: str, *, releasing: bool = False, address: str = "") -> SharedAllocation:
    return SharedAllocation(
        attachment=Attachment(container_id=container_id, ifname="net1"),
        podref=f"default/{container_id}",
        network="net",
        network_name="",
        ranges=("10.0.0.0/24",),
        reserved=True,
        releasing=releasing,
        addresses=(address,) if address else (),
        boot_id="boot-1" if address else "",
    )


def contents(disk: MemoryDisk) -> set[SharedAllocation]:
    return set(open_log(disk.after_kill()).allocations.values())


def test_the_last_record_of_an_interface_counts() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for each in (allocation("a"), allocation("b"), allocation("a", releasing=True)):
        log.put(each)
    log.remove(allocation("b").attachment)
    assert {allocation("a", releasing=True)} == contents(disk)


def test_a_change_that_the_disk_refuses_is_not_applied() -> None:
    disk = FullDisk()
    log = open_log(disk)
    log.put(allocation("a"))
    disk.space = 5
    with pytest.raises(OSError, match="No space"):
        log.put(allocation("b"))
    assert {allocation("a")} == set(log.allocations.values())
    disk.space = None
    log.put(allocation("c"))
    assert {allocation("a"), allocation("c")} == contents(disk)


def test_damage_is_logged_and_earlier_records_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    open_log(disk).put(allocation("a"))
    (name,) = disk.names()
    disk.append(name, b"damage" * 8)
    open_log(disk).put(allocation("b"))
    assert {allocation("a"), allocation("b")} == contents(disk)
    assert "shared-range log is damaged, lost entries are released when their Pods are gone" in caplog.text


@run_in_loop
async def test_a_compacted_log_has_the_same_content() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.put(allocation("a", address="10.0.0.1"))
    snapshot = SharedRangeSnapshot(allocations=tuple(log.allocations.values()))
    journal = Journal(disk, SHARED_RANGE_JOURNAL, lambda: snapshot)
    journal.open(lambda _: None)
    await journal.compact()
    assert {allocation("a", address="10.0.0.1")} == contents(disk)


def test_live_addresses_are_those_of_this_boot_that_are_not_being_released() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for each in ("1", "2", "3"):
        log.put(allocation(f"c{each}", address=f"10.0.0.{each}"))
    log.put(allocation("c2", releasing=True, address="10.0.0.2"))
    log.put(allocation("not-allocated-yet"))
    with log.being_released.mark(allocation("c3").attachment):
        assert [parse_address("10.0.0.1")] == [*log.live_addresses("")]
        assert {} == log.live_addresses("", range_="10.9.0.0/24")
        assert {} == log.live_addresses("other")
    assert {} == open_log(disk.after_kill(), boot_id="boot-2").live_addresses("")


def test_of_two_concurrent_releases_the_last_unblocks() -> None:
    box, marks = allocation("a").attachment, ReleasesInProgress()
    with marks.mark(box):
        with marks.mark(box):
            assert box in marks
        assert box in marks
    assert box not in marks
