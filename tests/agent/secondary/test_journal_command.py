"""`podpool agent journal show` for a journal with slices."""

from pathlib import Path

import pytest

from podpool.agent.records import SliceAcquired, SliceAddress, SliceAssigned, SliceClosed, SliceHolder
from podpool.agent.state import AgentState
from podpool.cli.commands.journal import show_journal
from podpool.cni.protocol import Attachment
from podpool.runtime.disk import LocalDisk
from tests.agent.clocks import SetClock


def test_slices_and_their_assignments_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = LocalDisk(tmp_path)
    state = AgentState(disk, SetClock(), fence_limit=600.0)
    state.open(boot_id="boot-1")
    for id_, slice_ in (("one", "10.1.4.0/28"), ("two", "10.1.8.0/28")):
        state.write(SliceAcquired(assignment=id_, name=id_, network="", range="10.1.0.0/16", slice=slice_, at=0.0))
    attachment = Attachment(container_id="a", ifname="net1")
    state.write(
        SliceAssigned(
            holder=SliceHolder(attachment=attachment, podref="default/web-0"),
            addresses=(SliceAddress(assignment="one", address="10.1.4.1"),),
        )
    )
    state.write(SliceClosed(assignment="two"))
    disk.close()
    show_journal(state=str(tmp_path), output="wide", no_color=True)
    lines = capsys.readouterr().out.splitlines()
    assert "10.1.4.1 is assigned to a net1 for default/web-0" in lines
    assert "slice 10.1.4.0/28 of 10.1.0.0/16: 1 assigned, 0 used before" in lines
    assert "slice 10.1.8.0/28 of 10.1.0.0/16, closed: 0 assigned, 0 used before" in lines
