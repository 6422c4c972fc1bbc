"""`podpool agent journal show` on a journal that has slices in it."""

from pathlib import Path

import pytest

from podpool.agent.records import SliceAcquired, SliceAddress, SliceAssigned, SliceClosed, SliceHolder
from podpool.agent.state import AgentState
from podpool.cli.commands.journal import show_journal
from podpool.cni.protocol import Attachment
from podpool.runtime.disk import LocalDisk
from tests.agent.clocks import SetClock


def test_who_has_what_of_which_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = LocalDisk(tmp_path)
    state = AgentState(disk, SetClock(), fence_limit=600.0)
    state.open(boot_id="boot-1")
    for lease, slice_ in (("one", "10.1.4.0/28"), ("two", "10.1.8.0/28")):
        state.write(SliceAcquired(lease=lease, name=lease, network="", range="10.1.0.0/16", slice=slice_, at=0.0))
    owner = Attachment(container_id="a", ifname="net1")
    state.write(
        SliceAssigned(
            holder=SliceHolder(attachment=owner, podref="default/web-0"),
            addresses=(SliceAddress(lease="one", address="10.1.4.1"),),
        )
    )
    state.write(SliceClosed(lease="two"))
    disk.close()
    show_journal(state=str(tmp_path), output="wide", no_color=True)
    told = capsys.readouterr().out.splitlines()
    assert "10.1.4.1 is assigned to a net1 for default/web-0" in told
    assert "slice 10.1.4.0/28 of 10.1.0.0/16: 1 assigned, 0 used before" in told
    assert "slice 10.1.8.0/28 of 10.1.0.0/16, closed: 0 assigned, 0 used before" in told
