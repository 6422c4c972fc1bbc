"""`podpool agent journal show` on a journal that has slices in it."""

from pathlib import Path

import pytest

from podpool.agent.records import Owner, SliceClosed, SliceGiven, SliceTaken, Slot, Tenant
from podpool.agent.state import Book
from podpool.cli.journal_cmd import show_journal
from podpool.runtime.disk import LocalDisk
from tests.agent.clocks import SetClock


def test_who_has_what_of_which_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = LocalDisk(tmp_path)
    book = Book(disk, SetClock(), fence_limit=600.0)
    book.open(boot_id="boot-1")
    for lease, slice_ in (("one", "10.1.4.0/28"), ("two", "10.1.8.0/28")):
        book.write(SliceTaken(lease=lease, name=lease, network="", range="10.1.0.0/16", slice=slice_, at=0.0))
    owner = Owner(container_id="a", ifname="net1")
    book.write(
        SliceGiven(tenant=Tenant(owner=owner, podref="default/web-0"), slots=(Slot(lease="one", address="10.1.4.1"),))
    )
    book.write(SliceClosed(lease="two"))
    disk.close()
    show_journal(state=str(tmp_path), output="wide", no_color="true")
    told = capsys.readouterr().out.splitlines()
    assert "10.1.4.1 is held by a net1 for default/web-0" in told
    assert "slice 10.1.4.0/28 of 10.1.0.0/16: 1 in use, 0 used before" in told
    assert "slice 10.1.8.0/28 of 10.1.0.0/16, closed: 0 in use, 0 used before" in told
