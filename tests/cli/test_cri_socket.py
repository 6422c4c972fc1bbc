"""Which CRI socket `podpool agent run` uses."""

import asyncio
import socket
from pathlib import Path

import pytest

from podpool.cli.commands import agent
from podpool.cli.commands.agent import choose_cri_socket, find_cri_sockets, runtime_at
from podpool.core.errors import InvalidInput
from podpool.runtime.transport import Unreachable
from tests.agent.cri_server import CRIServer, listening


@pytest.mark.parametrize("option", ["", "none"])
def test_it_can_be_turned_off(option: str) -> None:
    assert () == find_cri_sockets(option)


@pytest.mark.parametrize("option", ["/run/other.sock", "unix:///run/other.sock"])
def test_a_named_socket_is_used_also_before_it_exists(option: str) -> None:
    assert ("/run/other.sock",) == find_cri_sockets(option)
    assert "/run/other.sock" == asyncio.run(choose_cri_socket(find_cri_sockets(option)))


@pytest.mark.parametrize("option", ["other.sock", "tcp://localhost:1", f"/{'long' * 30}", "unix://run/x"])
def test_other_values_are_rejected_with_the_flag(option: str) -> None:
    with pytest.raises(InvalidInput, match="--cri-socket"):
        find_cri_sockets(option)


def test_by_default_the_known_sockets_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tuple(str(tmp_path / name) for name in ("containerd.sock", "crio.sock", "absent.sock"))
    monkeypatch.setattr(agent, "CRI_SOCKETS", known)
    assert () == find_cri_sockets("auto")
    for path in known[:2]:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)
    assert known[:2] == find_cri_sockets("auto")


class TestChoice:
    def test_without_sockets_there_is_none(self) -> None:
        assert "" == asyncio.run(choose_cri_socket(()))

    @pytest.mark.parametrize(
        ("statuses", "chosen"), [(("0", "0"), 0), (("12", "0"), 1), (("0", "12"), 0), (("12", "12"), 0)]
    )
    def test_it_is_the_first_that_lists_sandboxes(self, tmp_path: Path, statuses: tuple[str, str], chosen: int) -> None:
        """A containerd without CRI, such as Docker's, answers with status 12."""

        async def choose() -> None:
            async with (
                listening(tmp_path / "containerd.sock", CRIServer(grpc_status=statuses[0]).serve) as containerd,
                listening(tmp_path / "crio.sock", CRIServer(grpc_status=statuses[1]).serve) as crio,
            ):
                assert (containerd, crio)[chosen] == await choose_cri_socket((containerd, crio))

        asyncio.run(choose())


class TestARuntimeThatStartsLater:
    def test_its_socket_is_found_at_the_next_list(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = [tmp_path / name for name in ("containerd.sock", "crio.sock")]
        monkeypatch.setattr(agent, "CRI_SOCKETS", tuple(map(str, paths)))

        async def check() -> None:
            runtime = runtime_at("auto")
            assert runtime is not None
            assert await runtime.list_sandboxes() is None
            async with listening(paths[0], CRIServer(grpc_status="12").serve):
                with pytest.raises(Unreachable):
                    await runtime.list_sandboxes()
                async with listening(paths[1], CRIServer().serve):
                    assert {} == await runtime.list_sandboxes()
            with pytest.raises(Unreachable):  # it has responded: that it is gone is a failure
                await runtime.list_sandboxes()

        asyncio.run(check())

    def test_without_the_option_there_is_none(self) -> None:
        assert runtime_at("none") is None
