"""Which CRI socket `podpool agent run` uses."""

import socket
from pathlib import Path

import pytest

from podpool.cli.commands import agent
from podpool.cli.commands.agent import find_cri_socket
from podpool.core.errors import InvalidInput


@pytest.mark.parametrize("option", ["", "none"])
def test_it_can_be_turned_off(option: str) -> None:
    assert "" == find_cri_socket(option)


@pytest.mark.parametrize("option", ["/run/other.sock", "unix:///run/other.sock"])
def test_a_named_socket_is_used_also_before_it_exists(option: str) -> None:
    assert "/run/other.sock" == find_cri_socket(option)


@pytest.mark.parametrize("option", ["other.sock", "tcp://localhost:1", f"/{'long' * 30}", "unix://run/x"])
def test_other_values_are_rejected_with_the_flag(option: str) -> None:
    with pytest.raises(InvalidInput, match="--cri-socket"):
        find_cri_socket(option)


def test_by_default_the_first_known_socket_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [str(tmp_path / "containerd.sock"), str(tmp_path / "crio.sock")]
    monkeypatch.setattr(agent, "CRI_SOCKETS", known)
    assert "" == find_cri_socket("auto")
    for path in reversed(known):
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)
        assert path == find_cri_socket("auto")
