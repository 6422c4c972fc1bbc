"""The list of sandboxes by CRI: a real HTTP/2 server in the test, and peers that are none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from h2.exceptions import H2Error
from hypothesis import given
from hypothesis import strategies as st

from podpool.agent import cri
from podpool.agent.cri import LIST_POD_SANDBOX, CRIClient, UnaryCall
from podpool.agent.sandbox_list_decoder import MAX_FIELDS, BadResponse, SandboxListDecoder, decode_sandboxes
from podpool.runtime.transport import Unreachable
from tests.agent.cri_server import CRIServer, field, framed, listening, sandbox, sandbox_list, varint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.agent.cri_server import Serve

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
DATA_ON_CONNECTION = bytes([0, 0, 1, 0, 0, 0, 0, 0, 0, 7])
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8)
RST_STREAM = bytes([0, 0, 4, 3, 0, 0, 0, 0, 1]) + bytes([0, 0, 0, 2])
GOAWAY = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes([0, 0, 0, 1, 0, 0, 0, 11])
IDS = [f"{number:064x}" for number in range(250)]


async def list_from(serve: Serve, tmp_path: Path) -> Mapping[str, str]:
    async with asyncio.timeout(30), listening(tmp_path / "cri.sock", serve) as path:
        return await CRIClient(path).list_sandboxes()


def listed(server: CRIServer, tmp_path: Path) -> set[str]:
    return {*asyncio.run(list_from(server.serve, tmp_path))}


def unreachable(serve: Serve, tmp_path: Path) -> str:
    with pytest.raises(Unreachable) as caught:
        asyncio.run(list_from(serve, tmp_path))
    assert str(tmp_path) in caught.value.peer
    return caught.value.reason


class TestList:
    def test_returns_the_ids_of_all_sandboxes(self, tmp_path: Path) -> None:
        server = CRIServer(body=framed(sandbox_list(IDS)))
        assert {*IDS} == listed(server, tmp_path)
        (request,) = server.requests
        assert ("POST", LIST_POD_SANDBOX) == (request[":method"], request[":path"])
        assert ("application/grpc", "trailers") == (request["content-type"], request["te"])

    def test_a_list_longer_than_the_flow_control_window(self, tmp_path: Path) -> None:
        assert {*IDS} == listed(CRIServer(body=framed(sandbox_list(IDS, annotation=bytes(20_000)))), tmp_path)

    def test_110_pods_with_256_kib_of_annotations(self, tmp_path: Path) -> None:
        """Of these, 33 exceeded a bound of 8 MiB, and the author of a Pod could end the detection of lost DELs."""
        ids = [f"{number:064x}" for number in range(110)]
        assert {*ids} == listed(CRIServer(body=framed(sandbox_list(ids, annotation=bytes(256 << 10)))), tmp_path)

    def test_an_empty_list_is_a_list(self, tmp_path: Path) -> None:
        assert set() == listed(CRIServer(), tmp_path)

    def test_the_runtime_may_restart_between_two_calls(self, tmp_path: Path) -> None:
        for _ in range(2):
            assert {"a"} == listed(CRIServer(body=framed(sandbox_list(["a"]))), tmp_path)
            (tmp_path / "cri.sock").unlink(missing_ok=True)


class TestErrorsOfARuntime:
    def test_a_runtime_without_this_version_of_cri(self, tmp_path: Path) -> None:
        server = CRIServer(body=b"", grpc_status="12")
        assert "gRPC status 12: as the test wants" == unreachable(server.serve, tmp_path)

    def test_an_http_error(self, tmp_path: Path) -> None:
        assert "HTTP status 404" == unreachable(CRIServer(headers=[(":status", "404")]).serve, tmp_path)

    def test_a_response_without_grpc_status(self, tmp_path: Path) -> None:
        server = CRIServer(body=framed(sandbox_list(IDS)))
        server.trailers = [("other", "0")]
        assert "gRPC status none" in unreachable(server.serve, tmp_path)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\0\0\0",
            framed(sandbox_list(IDS))[:-1],
            framed(sandbox_list(IDS), compressed=True),
            framed(sandbox_list(["a"])) + framed(sandbox_list(["b"])),
        ],
        ids=["nothing", "half a header", "cut", "compressed", "two messages"],
    )
    def test_a_body_that_is_not_one_message_is_not_a_shorter_list(self, tmp_path: Path, body: bytes) -> None:
        assert "message" in unreachable(CRIServer(body=body).serve, tmp_path)

    @pytest.mark.parametrize("sent", [RST_STREAM, GOAWAY])
    def test_a_call_that_the_runtime_ends(self, tmp_path: Path, sent: bytes) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(SETTINGS + sent)
            await reader.read()

        assert "it ended the call with HTTP/2 error" in unreachable(serve, tmp_path)

    def test_a_runtime_that_stops_during_the_call(self, tmp_path: Path) -> None:
        async def stop(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)

        assert "it closed the connection before the response was complete" == unreachable(stop, tmp_path)


class TestOtherPeers:
    def test_no_socket(self, tmp_path: Path) -> None:
        with pytest.raises(Unreachable, match="No such file"):
            asyncio.run(CRIClient(str(tmp_path / "none")).list_sandboxes())

    def test_a_socket_without_a_server_and_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(Unreachable, match="refused"):
            asyncio.run(CRIClient(str(tmp_path / "file")).list_sandboxes())

    def test_an_http_1_server(self, tmp_path: Path) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()

        assert "it closed the connection before the response was complete" == unreachable(serve, tmp_path)

    def test_a_peer_that_violates_http_2(self, tmp_path: Path) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(DATA_ON_CONNECTION)
            await reader.read()

        assert "not an HTTP/2 server" in unreachable(serve, tmp_path)

    def test_a_peer_that_never_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cri, "TIMEOUT", 0.05)

        async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()

        assert "no complete response within 0.05 s" == unreachable(serve, tmp_path)

    def test_a_response_that_is_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cri, "MAX_RESPONSE", 200_000)
        server = CRIServer(body=framed(sandbox_list(IDS, annotation=bytes(5000))))
        assert "its response is longer than 200000 bytes" == unreachable(server.serve, tmp_path)

    def test_an_endless_stream_of_frames(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cri, "MAX_RESPONSE", 200_000)

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(SETTINGS)
            while True:
                writer.write(PING * 100)
                await writer.drain()

        assert "longer than" in unreachable(serve, tmp_path)


class TestProtobuf:
    def test_unknown_fields_of_every_type_are_skipped(self) -> None:
        other = field(9, 7) + field(10, b"x") + varint(11 << 3 | 1) + bytes(8) + varint(12 << 3 | 5) + bytes(4)
        assert {"a": "uid"} == decode_sandboxes(other + field(1, other + sandbox("a") + other) + other)

    @pytest.mark.parametrize(
        "item",
        [
            b"",
            field(1, b""),
            field(1, b"\xff"),
            field(1, bytes(256)),
            field(1, b"a") + field(1, b"b"),
            field(2, field(2, b"only metadata")),
            field(1, b"b") + field(2, b"no message"),
            field(1, b"b") + field(2, field(2, b"\xff")),
            field(1, b"b") + field(2, field(2, bytes(256))),
            b"\x0b",
            b"\x0a\x05ab",
            b"\xff" * 11,
        ],
    )
    def test_a_sandbox_without_valid_ids_makes_the_list_invalid(self, item: bytes) -> None:
        """A list without it would be taken for the end of a sandbox."""
        with pytest.raises(BadResponse):
            decode_sandboxes(field(1, sandbox("a")) + field(1, item))

    def test_the_pod_uid_is_part_of_the_metadata(self) -> None:
        items = sandbox("a", uid="uid-1"), sandbox("b", uid=""), field(1, b"c")
        assert {"a": "uid-1", "b": "", "c": ""} == decode_sandboxes(b"".join(field(1, item) for item in items))

    @pytest.mark.parametrize("nested", [False, True])
    def test_the_number_of_fields_is_bounded(self, nested: bool) -> None:
        """The event loop waits for the decoder."""
        fields = field(9, b"") * MAX_FIELDS
        with pytest.raises(BadResponse, match="more than"):
            decode_sandboxes(field(1, fields + sandbox("a")) if nested else field(1, sandbox("a")) + fields)

    @pytest.mark.parametrize(("sandboxes", "annotations"), [(1000, 40), (10, 20_000)])
    def test_annotations_count_against_no_bound(self, sandboxes: int, annotations: int) -> None:
        """The author of a Pod chooses them: 20,000 short ones fit into its 256 KiB."""
        ids = [f"{number:064x}" for number in range(sandboxes)]
        items = (sandbox(each) + field(6, bytes(7)) * annotations for each in ids)
        assert dict.fromkeys(ids, "uid") == decode_sandboxes(b"".join(field(1, item) for item in items))

    @given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=4), st.integers(1, 7))
    def test_a_list_is_the_same_in_whatever_pieces_it_arrives(self, ids: list[str], size: int) -> None:
        decoder, body = SandboxListDecoder(), framed(sandbox_list(ids, annotation=bytes(9)))
        for at in range(0, len(body), size):
            decoder.feed(body[at : at + size])
        assert dict.fromkeys(ids, "uid") == decoder.sandboxes()

    @given(st.binary(max_size=200))
    def test_any_message_is_a_list_or_invalid(self, message: bytes) -> None:
        with suppress(BadResponse):
            decode_sandboxes(message)

    @given(st.lists(st.binary(max_size=100), max_size=5))
    def test_any_bytes_of_a_peer_are_a_response_or_an_error(self, chunks: list[bytes]) -> None:
        decoder = SandboxListDecoder()
        call = UnaryCall(LIST_POD_SANDBOX, decoder)
        with suppress(BadResponse, H2Error):
            for chunk in chunks:
                call.receive(chunk)
            if call.ended:
                call.require_success()
                decoder.sandboxes()
