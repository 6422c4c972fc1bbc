"""The plugin against a hostile agent and a hostile runtime: whatever it is sent, it ends in good order.

The compiled plugin is built a second time with every check that the compiler knows (undefined behaviour, bounds,
sizes): a check that fails ends the process with a signal.
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
from podpool.cni.protocol import LARGEST_BODY, VERSIONS

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

CHECKED = (*FLAGS, "-fsanitize=undefined,bounds", "-fsanitize-trap=all")
pieces = st.lists(st.binary(max_size=64), max_size=6)
lengths = st.one_of(st.integers(0, 64), st.integers(0, LARGEST_BODY + 2), st.integers(0, 2**32 - 1))
framed = st.builds(lambda length, sent: [length.to_bytes(4, "big"), *sent], lengths, pieces)
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300)


class Hostile:
    """An agent that answers with what it was told to, in pieces, and hangs up."""

    def __init__(self, home: Path) -> None:
        self.path = home / "agent.sock"
        self.says: list[bytes] = []
        self.reads = 1
        """Bytes that it takes before it answers."""
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(self.path))
        self._door.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._door.accept()
            except OSError:
                return
            with peer:
                self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        try:
            left = self.reads
            while left > 0 and (taken := peer.recv(left)):
                left -= len(taken)
            for piece in self.says:
                peer.sendall(piece)
        except OSError:
            return  # the plugin has seen enough


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
    place = {"PODPOOL_SOCKET": str(hostile.path), "PODPOOL_DELETES": str(hostile.path.parent / "deletes")}
    environment = {**place, "PODPOOL_WAIT_MS": "1", **values}
    return subprocess.run([program], env=environment, input=stdin, capture_output=True, check=False, timeout=60)


@settings(max_examples=200)
@given(says=st.one_of(pieces, framed), command=st.sampled_from(["ADD", "DEL", "CHECK", "GC", "STATUS"]))
def test_whatever_an_agent_answers(checked: Path, hostile: Hostile, says: list[bytes], command: str) -> None:
    """It prints what a whole frame says, or an error, and never dies of it."""
    hostile.says, hostile.reads = says, 1 + len(says)
    done = run(checked, hostile, {"CNI_COMMAND": command, "CNI_CONTAINERID": "box", "CNI_IFNAME": "eth0"})
    sent = b"".join(says)
    length = int.from_bytes(sent[:4], "big")
    if len(sent) >= 4 and 1 <= length <= LARGEST_BODY and len(sent) >= 4 + length:
        assert (sent[4], sent[5 : 4 + length]) == (done.returncode, done.stdout)
    elif command == "DEL":
        assert (0, b"") == (done.returncode, done.stdout)
    else:
        assert 1 == done.returncode
        assert json.loads(done.stdout)["code"] in (5, 11, 50)


@settings(max_examples=100)
@given(
    values=st.dictionaries(
        st.sampled_from(["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_ARGS", "PODPOOL_WAIT_MS"]), words
    ),
    stdin=st.binary(max_size=300),
)
def test_whatever_a_runtime_says(checked: Path, hostile: Hostile, values: dict[str, str], stdin: bytes) -> None:
    hostile.says, hostile.reads = [b"\0\0\0\3\0{}"], 1
    done = run(checked, hostile, {**values, "PODPOOL_WAIT_MS": values.get("PODPOOL_WAIT_MS", "1")[:2]}, stdin)
    assert done.returncode in (0, 1)
    if values.get("CNI_COMMAND") == "VERSION":
        assert list(VERSIONS) == json.loads(done.stdout)["supportedVersions"]
    elif values.get("CNI_COMMAND"):
        assert b"{}" == done.stdout
    else:
        assert 4 == json.loads(done.stdout)["code"]


@pytest.mark.parametrize("room", range(-2, 3))
def test_a_frame_at_the_very_limit(checked: Path, hostile: Hostile, room: int) -> None:
    """One byte more than fits is refused before anybody is asked."""
    hostile.says, hostile.reads = [b"\0\0\0\3\0{}"], 4 + LARGEST_BODY + room
    head = len(b"podpool/1\0ADD\0box\0\0eth0\0\0\0")
    done = run(
        checked,
        hostile,
        {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "box", "CNI_IFNAME": "eth0"},
        bytes(LARGEST_BODY - head + room),
    )
    if room <= 0:
        assert (0, b"{}") == (done.returncode, done.stdout)
    else:
        assert 6 == json.loads(done.stdout)["code"]
