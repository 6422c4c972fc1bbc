"""The plugin process on a real socket, compiled and in Python."""

import asyncio
import json
import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from podpool.agent.cni_socket import serve_cni
from podpool.cni.build import ARCHITECTURES, NoCompiler, compilers
from podpool.cni.install import install
from podpool.cni.protocol import VERSIONS, PluginRequest, decode_request
from tests.cni.elf import INTERPRETER, LOADED, Elf
from tests.cni.plugin_process import ADD, DEL, PluginProcess

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


class TestWithAnAgent:
    def test_request_is_sent_and_response_printed(self, plugin: PluginProcess) -> None:
        values = {**ADD, "CNI_ARGS": "K8S_POD_NAME=web", "CNI_PATH": "/opt/cni/bin"}

        async def scenario() -> None:
            assert (0, b'{"ips": []}') == await plugin.start(values, b'{"name": "\xc3\xa9"}')

        plugin.with_agent(scenario)
        expected = PluginRequest(
            command="ADD",
            container_id="box",
            netns="/run/netns/box",
            ifname="eth0",
            args="K8S_POD_NAME=web",
            path="/opt/cni/bin",
            stdin=b'{"name": "\xc3\xa9"}',
        )
        assert [expected] == plugin.requests

    def test_large_configuration(self, plugin: PluginProcess) -> None:
        stdin = bytes(900_000)

        async def scenario() -> None:
            await plugin.start(ADD, stdin)

        plugin.with_agent(scenario)
        assert stdin == plugin.requests[0].stdin

    def test_concurrent_calls(self, plugin: PluginProcess) -> None:
        async def scenario() -> None:
            done = await asyncio.gather(*(plugin.start(ADD) for _ in range(32)))
            assert {(0, b'{"ips": []}')} == set(done)

        plugin.with_agent(scenario)

    def test_exit_code_is_the_agents(self, plugin: PluginProcess) -> None:
        assert (1, b"{}") == plugin.with_hostile_agent(b"\0\0\0\3\1{}", ADD)

    def test_waits_for_an_agent_that_is_starting(self, plugin: PluginProcess) -> None:
        async def run() -> None:
            early = asyncio.ensure_future(plugin.start(ADD))
            await asyncio.sleep(0.1)  # not to synchronise: only so that its first attempt fails
            async with serve_cni(plugin.socket, plugin.respond):
                assert (0, b'{"ips": []}') == await early

        asyncio.run(run())

    def test_call_is_repeated_when_the_agent_closes_the_connection(self, plugin: PluginProcess) -> None:
        calls = 0

        async def first_hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            await reader.read(8)
            if calls > 1:
                writer.write(b"\0\0\0\3\0{}")
                await writer.drain()
            writer.close()

        async def run() -> tuple[int, bytes]:
            server = await asyncio.start_unix_server(first_hangs_up, plugin.socket)
            async with asyncio.timeout(60), server:
                return await plugin.start(ADD)

        assert (0, b"{}") == asyncio.run(run())
        assert 2 == calls


class TestWithoutAnAgent:
    def test_version_needs_no_agent(self, plugin: PluginProcess) -> None:
        code, response = plugin.run({"CNI_COMMAND": "VERSION"})
        assert 0 == code
        assert list(VERSIONS) == response["supportedVersions"]

    def test_add_fails_with_try_again_later(self, plugin: PluginProcess) -> None:
        code, error = plugin.run(ADD)
        assert (1, 11) == (code, error["code"])
        assert "not running" in error["msg"]

    def test_del_is_deferred_and_succeeds(self, plugin: PluginProcess) -> None:
        assert (0, None) == plugin.run(DEL, b'{"name": "net"}')
        request = decode_request(plugin.deferred.read_bytes())
        assert ("DEL", "box", "eth0", b'{"name": "net"}') == (
            request.command,
            request.container_id,
            request.ifname,
            request.stdin,
        )
        assert plugin.deferred.name.startswith("box-eth0-")

    def test_every_deferred_del_is_kept_and_a_repeated_one_is_one_file(self, plugin: PluginProcess) -> None:
        """The sandboxes `a` and `a-b` with the interfaces `b-c` and `c` have the same text, joined."""
        sent = [("a", "b-c", b'{"name": "net"}'), ("a-b", "c", b'{"name": "net"}'), ("a-b", "c", b'{"name": "other"}')]
        for sandbox, ifname, stdin in (*sent, *sent):
            assert (0, None) == plugin.run({**DEL, "CNI_CONTAINERID": sandbox, "CNI_IFNAME": ifname}, stdin)
        left = [decode_request(each.read_bytes()) for each in plugin.deletes.iterdir()]
        assert sent == sorted((each.container_id, each.ifname, each.stdin) for each in left)

    def test_deferred_file_name_has_no_slashes(self, plugin: PluginProcess) -> None:
        assert (0, None) == plugin.run({**DEL, "CNI_CONTAINERID": "../../etc/x"})
        assert plugin.deferred.name.startswith("_._.._etc_x-eth0-")

    def test_del_that_cannot_be_deferred_fails_with_try_again_later(self, plugin: PluginProcess) -> None:
        plugin.deletes.write_text("not a directory")
        code, error = plugin.run(DEL)
        assert (1, 11) == (code, error["code"])

    def test_missing_command_is_an_error(self, plugin: PluginProcess) -> None:
        code, error = plugin.run({})
        assert (1, 4) == (code, error["code"])

    def test_oversized_configuration_is_rejected(self, plugin: PluginProcess) -> None:
        code, error = plugin.run(ADD, bytes(1 << 20))
        assert (1, 6) == (code, error["code"])

    def test_status_is_unavailable(self, plugin: PluginProcess) -> None:
        assert 50 == plugin.run({"CNI_COMMAND": "STATUS"})[1]["code"]


class TestHostileAgents:
    @pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5\0{}", struct.pack("!I", 0), b"\xff\xff\xff\xff\0\0\0"])
    def test_invalid_response_fails_add_and_defers_del(self, plugin: PluginProcess, sent: bytes) -> None:
        code, response = plugin.with_hostile_agent(sent, ADD)
        assert 1 == code
        assert json.loads(response)["code"] in (5, 11)
        plugin.socket.unlink()
        assert (0, b"") == plugin.with_hostile_agent(sent, DEL)
        assert plugin.deferred.name.startswith("box-eth0-")


class TestBuild:
    def test_binary_is_static(self, shim: Path) -> None:
        """It has no interpreter segment, which would name the dynamic loader."""
        elf = Elf(shim.read_bytes())
        assert LOADED in elf.segments
        assert INTERPRETER not in elf.segments

    def test_installed_file_is_complete_and_executable(self, tmp_path: Path, shim: Path) -> None:
        installed = install(tmp_path / "bin", name="whereabouts")
        assert tmp_path / "bin" / "whereabouts" == installed
        assert shim.read_bytes() == installed.read_bytes()
        assert 0o755 == installed.stat().st_mode & 0o777
        install(tmp_path / "bin", name="whereabouts")
        assert ["whereabouts"] == [each.name for each in installed.parent.iterdir()]

    def test_error_without_a_compiler_names_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        another = next(each for each in ARCHITECTURES if each != platform.machine())
        with pytest.raises(NoCompiler, match="ziglang"):
            compilers(another)

    def test_runs_in_any_directory(self, shim: Path) -> None:
        done = subprocess.run([shim], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True, cwd=os.sep)
        assert done.stdout
