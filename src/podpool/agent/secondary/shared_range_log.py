"""What this node's sandboxes have of shared ranges, as far as this agent gave it; and what is still to be given back.

The truth is in the IPPools. This is for what they cannot tell: which of the runtime's networks an entry belongs to, and
that a DEL was answered while the API server was away. A line for each change, written before the answer; a torn last
line was answered to nobody, and one that cannot be read is left out, and said. A file that has become long is followed
by another, whose first line is all that is known; the old one goes when that is on the platter.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from podpool.agent.journal import GROUP_COMMIT_INTERVAL
from podpool.cni.protocol import Attachment
from podpool.runtime.disk import Disk

FILE = "shared-ranges."
LONG = 2000
"""Lines after which another file is begun, and at least four times what is known."""


class SharedAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What one sandbox's interface has."""

    sandbox: Attachment
    podref: str
    network: str
    """The name of the runtime's network, whose GC it is subject to."""
    network_name: str
    ranges: tuple[str, ...]
    reserved: bool
    """Reservations may go with it."""
    leaving: bool = False
    """It is to be given back."""
    addresses: tuple[str, ...] = ()
    """One of each range, once they are given;"""
    boot_id: str = ""
    """and in which boot: no sandbox survives one."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    all: tuple[SharedAllocation, ...] | None = None
    kept: SharedAllocation | None = None
    over: Attachment | None = None


_LINE = msgspec.json.Decoder(_Line)


class SharedRangeLog:
    """All of them; changes survive the process once a call has returned, and the machine once `sync` has."""

    def __init__(self, disk: Disk, *, tell: Callable[[str], None]) -> None:
        self._disk = disk
        self._tell = tell
        self._known: dict[Attachment, SharedAllocation] | None = None
        self._file = 1
        self._lines = 0
        self._dirty = asyncio.Event()
        self._syncing = asyncio.Lock()

    @property
    def all(self) -> Mapping[Attachment, SharedAllocation]:
        """Every one."""
        return self._opened()

    def keep(self, lending: SharedAllocation) -> None:
        """Write one down, instead of what was known of that sandbox."""
        known = self._opened()
        if known.get(lending.sandbox) != lending:
            self._write(_Line(kept=lending))
            known[lending.sandbox] = lending

    def end(self, sandbox: Attachment) -> None:
        """Strike one out, if it is there."""
        known = self._opened()
        if sandbox in known:
            self._write(_Line(over=sandbox))
            del known[sandbox]

    async def sync(self) -> None:
        """Bring everything to the platter, in another file where this one has become long."""
        async with self._syncing:
            old = self._file
            if self._lines > max(LONG, 4 * len(self._opened())):
                self._begin_another()
            self._dirty.clear()
            await self._disk.sync(_name(self._file))
            if self._file != old:
                self._disk.remove(_name(old))

    async def run(self) -> None:
        """Sync in the background, for ever."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(GROUP_COMMIT_INTERVAL)
            await self.sync()

    def _begin_another(self) -> None:
        old, lines = self._file, self._lines
        self._file, self._lines = old + 1, 0
        try:
            self._write(_Line(all=tuple(self._opened().values())))
        except OSError:
            self._file, self._lines = old, lines  # it stays long until there is room

    def _write(self, line: _Line) -> None:
        name = _name(self._file)
        try:
            self._disk.append(name, msgspec.json.encode(line) + b"\n")
        except OSError:
            self._whole(name)  # half a line would spoil the next
            raise
        self._lines += 1
        self._dirty.set()

    def _opened(self) -> dict[Attachment, SharedAllocation]:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> dict[Attachment, SharedAllocation]:
        """Read the last file that has a beginning; the first of all begins with nothing."""
        endings = [name.removeprefix(FILE) for name in self._disk.names() if name.startswith(FILE)]
        numbers = sorted((int(each) for each in endings if each.isdecimal()), reverse=True)
        for number in numbers:
            lines = self._lines_of(_name(number))
            if number == numbers[-1] or (lines and lines[0].all is not None):
                self._file, self._lines = number, len(lines)
                return _applied(lines)
            self._disk.remove(_name(number))
        return {}

    def _lines_of(self, name: str) -> list[_Line]:
        """Read a file, but for lines that cannot be read."""
        lines: list[_Line] = []
        for number, line in enumerate(self._whole(name).split(b"\n")[:-1], start=1):
            try:
                lines.append(_LINE.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                told = "what it told of a sandbox's addresses of shared ranges is forgotten"
                self._tell(f"line {number} of {name} cannot be read ({error}): {told}")
        return lines

    def _whole(self, name: str) -> bytes:
        """Read a file up to what is torn, and cut that off."""
        content = self._disk.read(name) or b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._disk.truncate(name, len(whole))
        return whole


def _name(file: int) -> str:
    return f"{FILE}{file:06}"


def _applied(lines: Iterable[_Line]) -> dict[Attachment, SharedAllocation]:
    known: dict[Attachment, SharedAllocation] = {}
    for line in lines:
        if line.all is not None:
            known = {each.sandbox: each for each in line.all}
        if line.kept:
            known[line.kept.sandbox] = line.kept
        if line.over:
            known.pop(line.over, None)
    return known
