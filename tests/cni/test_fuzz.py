"""The plugin against a hostile agent and a hostile runtime: any input ends in a defined way.

The compiled plugin is built a second time with the compiler's checks (undefined behaviour, bounds): a check that fails
ends the process with a signal.
"""

import json
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podpool.cni.build import FLAGS, SOURCE
from podpool.cni.protocol import MAX_BODY, VERSIONS

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

CHECKED = (*FLAGS, "-fsanitize=undefined,bounds", "-fsanitize-trap=all")
chunks = st.lists(st.binary(max_size=64), max_size=6)
lengths = st.one_of(st.integers(0, 64), st.integers(0, MAX_BODY + 2), st.integers(0, 2**32 - 1))
framed = st.builds(lambda length, sent: [length.to_bytes(4, "big"), *sent], lengths, chunks)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300)


class Hostile:
    """An agent that responds with given bytes, in chunks, and closes the connection."""

    def __init__(self, home: Path) -> None:
        self.path = home / "agent.sock"
        self.response: list[bytes] = []
        self.request_size = 1
        """Bytes that it request_size before it responds."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                self._respond(peer)

    def _respond(self, peer: socket.socket) -> None:
        try:
            remaining = self.request_size
            while remaining > 0 and (data := peer.recv(remaining)):
                remaining -= len(data)
            for chunk in self.response:
                peer.sendall(chunk)
        except OSError:
            return  # the plugin has closed the connection


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("checked") / "podpool"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-musl"]
    subprocess.run([*zig, *CHECKED, SOURCE, "-o", made], check=True)
    return made


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    agent = Hostile(tmp_path_factory.mktemp("hostile"))
    yield agent
    agent.close()


def run(
    program: Path, hostile: Hostile, values: dict[str, str], stdin: bytes = b"{}"
) -> subprocess.CompletedProcess[bytes]:
    paths = {"PODPOOL_SOCKET": str(hostile.path), "PODPOOL_DEFERRED_DELETES": str(hostile.path.parent / "deletes")}
    environment = {**paths, "PODPOOL_WAIT_MS": "1", **values}
    return subprocess.run([program], env=environment, input=stdin, capture_output=True, check=False, timeout=60)


@settings(max_examples=200)
@given(response=st.one_of(chunks, framed), command=st.sampled_from(["ADD", "DEL", "CHECK", "GC", "STATUS"]))
def test_any_response_of_an_agent(checked: Path, hostile: Hostile, response: list[bytes], command: str) -> None:
    """It prints the content of a complete frame, or an error, and never crashes."""
    hostile.response, hostile.request_size = response, 1 + len(response)
    done = run(checked, hostile, {"CNI_COMMAND": command, "CNI_CONTAINERID": "box", "CNI_IFNAME": "eth0"})
    sent = b"".join(response)
    length = int.from_bytes(sent[:4], "big")
    if len(sent) >= 4 and 1 <= length <= MAX_BODY and len(sent) >= 4 + length:
        assert (sent[4], sent[5 : 4 + length]) == (done.returncode, done.stdout)
    elif command == "DEL":
        assert (0, b"") == (done.returncode, done.stdout)
    else:
        assert 1 == done.returncode
        assert json.loads(done.stdout)["code"] in (5, 11, 50)


@settings(max_examples=100)
@given(
    values=st.dictionaries(
        st.sampled_from(["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_ARGS", "PODPOOL_WAIT_MS"]), text
    ),
    stdin=st.binary(max_size=300),
)
def test_any_input_of_a_runtime(checked: Path, hostile: Hostile, values: dict[str, str], stdin: bytes) -> None:
    hostile.response, hostile.request_size = [b"\0\0\0\3\0{}"], 1
    done = run(checked, hostile, {**values, "PODPOOL_WAIT_MS": values.get("PODPOOL_WAIT_MS", "1")[:2]}, stdin)
    assert done.returncode in (0, 1)
    if values.get("CNI_COMMAND") == "VERSION":
        assert list(VERSIONS) == json.loads(done.stdout)["supportedVersions"]
    elif values.get("CNI_COMMAND"):
        assert b"{}" == done.stdout
    else:
        assert 4 == json.loads(done.stdout)["code"]


@pytest.mark.parametrize("excess", range(-2, 3))
def test_frame_at_the_size_limit(checked: Path, hostile: Hostile, excess: int) -> None:
    """One byte above the limit is rejected before the agent is called."""
    hostile.response, hostile.request_size = [b"\0\0\0\3\0{}"], 4 + MAX_BODY + excess
    header = len(b"podpool/1\0ADD\0box\0\0eth0\0\0\0")
    done = run(
        checked,
        hostile,
        {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "box", "CNI_IFNAME": "eth0"},
        bytes(MAX_BODY - header + excess),
    )
    if excess <= 0:
        assert (0, b"{}") == (done.returncode, done.stdout)
    else:
        assert 6 == json.loads(done.stdout)["code"]
