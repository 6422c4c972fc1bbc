"""The plugin in Python, for machines that no compiler makes the other one for: the same to a runtime, but slower.

Copied as it is to where the runtime looks for plugins, and run by the interpreter alone: it imports as little of the
standard library as possible, and nothing of ours. What it says and does is what `shim.c` says and does.
"""

import os
import socket
import sys
import time

LARGEST = 1 << 20
CONNECT, ANSWER, PAUSE = 5.0, 30.0, 0.02
VALUES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH")
VERSIONS = '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}\n'


class AwayError(Exception):
    """Nobody answers."""


class BrokenError(Exception):
    """Whoever answers is no agent of ours."""


def main() -> int:
    """Carry one call to the agent, and its answer back."""
    command = os.environ.get("CNI_COMMAND", "")
    if not command:
        return fail(4, "CNI_COMMAND is not set: this is a CNI plugin, for a runtime to start")
    if command == "VERSION":
        sys.stdout.write(VERSIONS)
        return 0
    values = [os.fsencode(os.environ.get(each, "")) for each in VALUES]
    body = b"\0".join([b"podpool/1", *values, sys.stdin.buffer.read(LARGEST + 1)])
    if len(body) > LARGEST:
        return fail(6, "the network configuration cannot be read, or is longer than 1 MiB")
    try:
        answer = ask(len(body).to_bytes(4, "big") + body)
    except (AwayError, BrokenError, TimeoutError) as error:
        return without_agent(command, body, error)
    sys.stdout.buffer.write(answer[1:])
    return answer[0]


def ask(request: bytes) -> bytes:
    """Find the agent, which may be about to start; then ask it, again if it went away in the middle."""
    path = os.environ.get("PODPOOL_SOCKET") or "/run/podpool/agent.sock"
    asked = os.environ.get("PODPOOL_WAIT_MS", "")
    wait = int(asked) / 1000 if asked.isdecimal() and int(asked) else CONNECT
    begun = since = time.monotonic()
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
                agent.settimeout(max(begun + ANSWER - time.monotonic(), 0.001))
                agent.connect(path)
                answer = exchange(agent, request)
            if answer:
                return answer
            since = time.monotonic() if since == begun else since
        except (FileNotFoundError, ConnectionError, BlockingIOError):
            pass
        except TimeoutError:
            raise
        except OSError as error:
            raise BrokenError(str(error)) from None
        if time.monotonic() >= min(begun + ANSWER, since + wait):
            raise AwayError
        time.sleep(PAUSE)


def exchange(agent: socket.socket, request: bytes) -> bytes:
    """Send the request and read the answer; nothing, when the agent went away over it."""
    agent.sendall(request)
    header = receive(agent, 4)
    size = int.from_bytes(header, "big")
    if len(header) == 4 and not 1 <= size <= LARGEST:
        raise BrokenError("the answer has no length that an agent of ours would send")
    answer = receive(agent, size)
    return answer if len(header) == 4 and len(answer) == size else b""


def receive(agent: socket.socket, size: int) -> bytes:
    """Read so many bytes; less, when there are no more."""
    got = b""
    while len(got) < size and (piece := agent.recv(size - len(got))):
        got += piece
    return got


def without_agent(command: str, body: bytes, error: Exception) -> int:
    """Answer for an agent that does not."""
    if command == "DEL":
        try:
            leave(body)
        except OSError:
            return fail(11, "podpool's agent does not answer, and the DEL cannot be written down for it")
        return 0
    if isinstance(error, BrokenError):
        return fail(5, "podpool's agent cannot be asked: look at its socket and its log")
    if isinstance(error, TimeoutError):
        return fail(11, "podpool's agent did not answer in time: look at its log")
    code = 50 if command == "STATUS" else 11
    return fail(code, "podpool's agent is not running on this node: see whether its Pod is")


def leave(body: bytes) -> None:
    """Write a DEL down for the agent to work through when it is back, under the sandbox's name."""
    path = os.environ.get("PODPOOL_DELETES") or ""
    if not path:
        make("/run/podpool")
        path = "/run/podpool/deletes"
    make(path)
    container, ifname = os.environ.get("CNI_CONTAINERID") or "none", os.environ.get("CNI_IFNAME") or "none"
    name = f"{container[:200]}-{ifname[:50]}".replace("/", "_")
    name = "_" + name[1:] if name.startswith(".") else name
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        leave_in(directory, name, body)
    finally:
        os.close(directory)


def make(path: str) -> None:
    """Make a directory, unless it is there."""
    try:  # noqa: SIM105  contextlib is not loaded yet
        os.mkdir(path, 0o700)  # noqa: PTH102  pathlib would double the start
    except FileExistsError:
        pass


def leave_in(directory: int, name: str, body: bytes) -> None:
    """Write into a directory, whose owner must gain nothing by it but the DEL: `shim.c` says how."""
    beside = f".{os.getpid()}.new"
    try:  # noqa: SIM105  contextlib is not loaded yet
        os.unlink(beside, dir_fd=directory)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    opened = os.open(beside, flags, 0o600, dir_fd=directory)
    try:
        with open(opened, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(body)
            file.flush()
            give(directory, opened)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(beside, dir_fd=directory)
        raise


def give(directory: int, file: int) -> None:
    """Give a DEL to the owner of its directory, who is the agent; without the right to, it stays ours."""
    owner = os.fstat(directory).st_uid
    try:
        if owner == 0:
            owner = os.stat("..", dir_fd=directory).st_uid
            os.chown(directory, owner, -1)
        os.chown(file, owner, -1)
    except OSError:
        return


def fail(code: int, message: str) -> int:
    """Say why not."""
    sys.stdout.write(f'{{"cniVersion":"1.1.0","code":{code},"msg":"{message}"}}\n')
    return 1


if __name__ == "__main__":
    sys.exit(main())
