"""The plugin in Python, for machines for which no compiler can build `shim.c`. It behaves the same, but is slower.

The file is copied to the runtime's plugin directory and run by the interpreter alone: it imports as little of the
standard library as possible, and nothing from podpool.
"""

import os
import select
import socket
import sys
import time

MAX_BODY = 1 << 20
STDOUT = 1
CONNECT_TIMEOUT, RESPONSE_TIMEOUT, RETRY_INTERVAL = 5.0, 30.0, 0.02
VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH")
VERSIONS = '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}\n'


class UnreachableError(Exception):
    """No agent accepts connections."""


class ProtocolError(Exception):
    """The socket cannot be used, or its peer does not follow the protocol."""


class AbandonedError(Exception):
    """The result is no longer read: see `shim.c`."""


def main() -> int:
    """Send one call to the agent and print its response."""
    command = os.environ.get("CNI_COMMAND", "")
    if not command:
        return fail(4, "CNI_COMMAND is not set: this is a CNI plugin, started by a container runtime")
    if command == "VERSION":
        sys.stdout.write(VERSIONS)
        return 0
    values = [os.fsencode(os.environ.get(each, "")) for each in VARIABLES]
    body = b"\0".join([b"podpool/1", *values, sys.stdin.buffer.read(MAX_BODY + 1)])
    if len(body) > MAX_BODY:
        return fail(6, "the network configuration cannot be read, or is longer than 1 MiB")
    try:
        response = call_agent(len(body).to_bytes(4, "big") + body, abandonable=command != "DEL")
    except AbandonedError:
        return 1
    except (UnreachableError, ProtocolError, TimeoutError) as error:
        return without_agent(command, body, error)
    sys.stdout.buffer.write(response[1:])
    return response[0]


def call_agent(request: bytes, *, abandonable: bool) -> bytes:
    """Return the agent's response. Waits for an agent that is starting, and repeats the call if it restarts."""
    path = os.environ.get("PODPOOL_SOCKET") or "/run/podpool/agent.sock"
    wait_ms = os.environ.get("PODPOOL_WAIT_MS", "")
    wait = int(wait_ms) / 1000 if wait_ms.isdecimal() and int(wait_ms) else CONNECT_TIMEOUT
    start = unreachable_since = time.monotonic()
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as agent:
                agent.connect(path)
                connection = AgentConnection(agent, deadline=start + RESPONSE_TIMEOUT, abandonable=abandonable)
                response = connection.exchange(request)
            if response:
                return response
            unreachable_since = time.monotonic() if unreachable_since == start else unreachable_since
        except (FileNotFoundError, ConnectionError, BlockingIOError):
            pass
        except TimeoutError:
            raise
        except OSError as error:
            raise ProtocolError(str(error)) from None
        if time.monotonic() >= min(start + RESPONSE_TIMEOUT, unreachable_since + wait):
            raise UnreachableError
        wait_ready(None, 0, RETRY_INTERVAL, abandonable=abandonable)


class AgentConnection:
    """A connection to the agent."""

    def __init__(self, agent: socket.socket, *, deadline: float, abandonable: bool) -> None:
        self._agent = agent
        self._deadline = deadline
        self._abandonable = abandonable

    def exchange(self, request: bytes) -> bytes:
        """Send the request and return the response; empty if the agent closed the connection first."""
        while request:
            self._wait(select.POLLOUT)
            request = request[self._agent.send(request) :]
        header = self._receive(4)
        size = int.from_bytes(header, "big")
        if len(header) == 4 and not 1 <= size <= MAX_BODY:
            raise ProtocolError("invalid length of the response")
        response = self._receive(size)
        return response if len(header) == 4 and len(response) == size else b""

    def _receive(self, size: int) -> bytes:
        """Return `size` bytes, or fewer if the connection ends."""
        received = b""
        while len(received) < size:
            self._wait(select.POLLIN)
            chunk = self._agent.recv(size - len(received))
            if not chunk:
                break
            received += chunk
        return received

    def _wait(self, events: int) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0 or not wait_ready(self._agent, events, left, abandonable=self._abandonable):
            raise TimeoutError


def wait_ready(agent: socket.socket | None, events: int, seconds: float, *, abandonable: bool) -> bool:
    """Wait until the socket is ready; False when the time is over. Raises when the reader of the result is gone."""
    poll = select.poll()
    if agent:
        poll.register(agent, events)
    if abandonable:
        poll.register(STDOUT, 0)  # without events, only an error or hang-up is reported
    ready = [descriptor for descriptor, _ in poll.poll(seconds * 1000)]
    if STDOUT in ready:
        raise AbandonedError
    return bool(ready)


def without_agent(command: str, body: bytes, error: Exception) -> int:
    """Handle the command without the agent: defer a DEL, fail anything else."""
    if command == "DEL":
        try:
            defer(body)
        except OSError:
            return fail(11, "the podpool agent does not respond, and the DEL cannot be saved for it")
        return 0
    if isinstance(error, ProtocolError):
        return fail(5, "cannot communicate with the podpool agent: check its socket and its log")
    if isinstance(error, TimeoutError):
        return fail(11, "the podpool agent did not respond in time: check its log")
    code = 50 if command == "STATUS" else 11
    return fail(code, "the podpool agent is not running on this node: check its Pod")


def defer(body: bytes) -> None:
    """Save a DEL, in a file named after the sandbox, for the agent to process when it is back."""
    path = os.environ.get("PODPOOL_DEFERRED_DELETES") or ""
    if not path:
        make_dir("/run/podpool")
        path = "/run/podpool/deletes"
    make_dir(path)
    container, ifname = os.environ.get("CNI_CONTAINERID") or "none", os.environ.get("CNI_IFNAME") or "none"
    name = f"{container[:200]}-{ifname[:30]}-{request_hash(body):016x}".replace("/", "_")
    name = "_" + name[1:] if name.startswith(".") else name
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        write_file(directory, name, body)
    finally:
        os.close(directory)


def request_hash(body: bytes) -> int:
    """Return the FNV-1a hash of the request, as `shim.c` does."""
    value = 0xCBF29CE484222325
    for byte in body:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def make_dir(path: str) -> None:
    """Create a directory unless it exists."""
    try:  # noqa: SIM105  contextlib is not loaded yet
        os.mkdir(path, 0o700)  # noqa: PTH102  pathlib would double the start
    except FileExistsError:
        pass


def write_file(directory: int, name: str, body: bytes) -> None:
    """Write a file into a directory whose owner may not be trusted: see `write_file` in `shim.c`."""
    temporary = f".{os.getpid()}.new"
    try:  # noqa: SIM105  contextlib is not loaded yet
        os.unlink(temporary, dir_fd=directory)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(body)
            file.flush()
            set_owner(directory, descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise


def set_owner(directory: int, file: int) -> None:
    """Give the file to the owner of its directory, which is the agent; without permission the owner stays."""
    owner = os.fstat(directory).st_uid
    try:
        if owner == 0:
            owner = os.stat("..", dir_fd=directory).st_uid
            os.chown(directory, owner, -1)
        os.chown(file, owner, -1)
    except OSError:
        return


def fail(code: int, message: str) -> int:
    """Print a CNI error; returns the exit code."""
    sys.stdout.write(f'{{"cniVersion":"1.1.0","code":{code},"msg":"{message}"}}\n')
    return 1


if __name__ == "__main__":
    sys.exit(main())
