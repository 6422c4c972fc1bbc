"""The plugin process, on a real socket: the compiled one, and the one in Python that stands in for it."""

import asyncio
import json
import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from podpool.agent.cni_socket import listening
from podpool.cni.build import ARCHITECTURES, NoCompiler, compilers
from podpool.cni.install import install
from podpool.cni.protocol import VERSIONS, Request, decode_request
from tests.cni.elf import INTERPRETER, LOADED, Elf
from tests.cni.plugins import ADD, DEL, Plugin

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


class TestWithAnAgent:
    def test_everything_that_the_runtime_said_arrives_and_the_answer_is_printed(self, plugin: Plugin) -> None:
        said = {**ADD, "CNI_ARGS": "K8S_POD_NAME=web", "CNI_PATH": "/opt/cni/bin"}

        async def play() -> None:
            assert (0, b'{"ips": []}') == await plugin.start(said, b'{"name": "\xc3\xa9"}')

        plugin.with_agent(play)
        expected = Request(
            command="ADD",
            container_id="box",
            netns="/run/netns/box",
            ifname="eth0",
            args="K8S_POD_NAME=web",
            path="/opt/cni/bin",
            stdin=b'{"name": "\xc3\xa9"}',
        )
        assert [expected] == plugin.seen

    def test_a_large_configuration_arrives_whole(self, plugin: Plugin) -> None:
        stdin = bytes(900_000)

        async def play() -> None:
            await plugin.start(ADD, stdin)

        plugin.with_agent(play)
        assert stdin == plugin.seen[0].stdin

    def test_many_at_once_are_all_answered(self, plugin: Plugin) -> None:
        async def play() -> None:
            done = await asyncio.gather(*(plugin.start(ADD) for _ in range(32)))
            assert {(0, b'{"ips": []}')} == set(done)

        plugin.with_agent(play)

    def test_an_exit_code_of_the_agent_is_the_plugins(self, plugin: Plugin) -> None:
        assert (1, b"{}") == plugin.with_hostile_agent(b"\0\0\0\3\1{}", ADD)

    def test_it_waits_for_an_agent_that_is_about_to_start(self, plugin: Plugin) -> None:
        async def run() -> None:
            early = asyncio.ensure_future(plugin.start(ADD))
            await asyncio.sleep(0.1)  # not to synchronise: only to let it look in vain first
            async with listening(plugin.socket, plugin.answer, tell=lambda _sentence: None):
                assert (0, b'{"ips": []}') == await early

        asyncio.run(run())

    def test_an_agent_that_goes_away_in_the_middle_is_asked_again(self, plugin: Plugin) -> None:
        asked = 0

        async def first_hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            await reader.read(8)
            if asked > 1:
                writer.write(b"\0\0\0\3\0{}")
                await writer.drain()
            writer.close()

        async def run() -> tuple[int, bytes]:
            server = await asyncio.start_unix_server(first_hangs_up, plugin.socket)
            async with asyncio.timeout(60), server:
                return await plugin.start(ADD)

        assert (0, b"{}") == asyncio.run(run())
        assert 2 == asked


class TestWithoutAnAgent:
    def test_version_needs_none(self, plugin: Plugin) -> None:
        code, told = plugin.run({"CNI_COMMAND": "VERSION"})
        assert 0 == code
        assert list(VERSIONS) == told["supportedVersions"]

    def test_add_says_try_again_later(self, plugin: Plugin) -> None:
        code, error = plugin.run(ADD)
        assert (1, 11) == (code, error["code"])
        assert "not running" in error["msg"]

    def test_del_is_left_for_later_as_the_agent_reads_it_and_succeeds(self, plugin: Plugin) -> None:
        assert (0, None) == plugin.run(DEL, b'{"name": "net"}')
        left = plugin.deletes / "box-eth0"
        request = decode_request(left.read_bytes())
        assert ("DEL", "box", "eth0", b'{"name": "net"}') == (
            request.command,
            request.container_id,
            request.ifname,
            request.stdin,
        )
        assert [left] == list(plugin.deletes.iterdir())

    def test_a_name_with_slashes_stays_in_its_directory(self, plugin: Plugin) -> None:
        assert (0, None) == plugin.run({**DEL, "CNI_CONTAINERID": "../../etc/x"})
        assert ["_._.._etc_x-eth0"] == [each.name for each in plugin.deletes.iterdir()]

    def test_del_that_cannot_be_left_says_try_again_later(self, plugin: Plugin) -> None:
        plugin.deletes.write_text("not a directory")
        code, error = plugin.run(DEL)
        assert (1, 11) == (code, error["code"])

    def test_without_a_command_it_says_what_it_is(self, plugin: Plugin) -> None:
        code, error = plugin.run({})
        assert (1, 4) == (code, error["code"])

    def test_a_configuration_beyond_all_measure_is_refused(self, plugin: Plugin) -> None:
        code, error = plugin.run(ADD, bytes(1 << 20))
        assert (1, 6) == (code, error["code"])

    def test_a_status_without_an_agent_says_unavailable(self, plugin: Plugin) -> None:
        assert 50 == plugin.run({"CNI_COMMAND": "STATUS"})[1]["code"]


class TestHostileAgents:
    @pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5\0{}", struct.pack("!I", 0), b"\xff\xff\xff\xff\0\0\0"])
    def test_whatever_it_answers_add_is_an_error_and_del_is_left(self, plugin: Plugin, sent: bytes) -> None:
        code, told = plugin.with_hostile_agent(sent, ADD)
        assert 1 == code
        assert json.loads(told)["code"] in (5, 11)
        plugin.socket.unlink()
        assert (0, b"") == plugin.with_hostile_agent(sent, DEL)
        assert (plugin.deletes / "box-eth0").exists()


class TestBuilding:
    def test_it_needs_nothing_on_the_host(self, shim: Path) -> None:
        """Its file names no interpreter, which would be the dynamic loader."""
        made = Elf(shim.read_bytes())
        assert LOADED in made.segments
        assert INTERPRETER not in made.segments

    def test_it_is_installed_whole_and_executable(self, tmp_path: Path, shim: Path) -> None:
        installed = install(tmp_path / "bin", name="whereabouts")
        assert tmp_path / "bin" / "whereabouts" == installed
        assert shim.read_bytes() == installed.read_bytes()
        assert 0o755 == installed.stat().st_mode & 0o777
        install(tmp_path / "bin", name="whereabouts")
        assert ["whereabouts"] == [each.name for each in installed.parent.iterdir()]

    def test_without_a_compiler_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        foreign = next(each for each in ARCHITECTURES if each != platform.machine())
        with pytest.raises(NoCompiler, match="ziglang"):
            compilers(foreign)

    def test_the_environment_is_all_it_reads(self, shim: Path) -> None:
        done = subprocess.run([shim], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True, cwd=os.sep)
        assert done.stdout
