"""Files of one directory, as a journal needs them.

Appended data survives a crash of the process once `append` has returned, and of the machine once `sync` has. `replace`
is atomic and synced. Names are plain file names. One process at a time may lock the directory.

After a failed `sync`, what was appended since the last successful one may be lost, whatever later ones report: the
kernel reports a failed write once, and may drop the data.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from podpool import __version__

LOCK_FILE = ".lock"
"""The file whose lock stands for the directory; its content is the holder, for people."""

TIMESTAMP_RESOLUTION = 3_000_000_000
"""Nanoseconds, more than any file system's."""


class Disk(Protocol):
    """One directory."""

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; create it if needed."""

    async def sync(self, name: str) -> None:
        """Flush a file to the device."""

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""

    async def replace(self, name: str, data: bytes) -> None:
        """Replace a file, atomically and synced."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def try_lock(self) -> str | None:
        """Lock the directory for as long as this process runs; return the holder if another process has locked it."""


class LocalDisk:
    """A directory of this machine; created if needed, readable only by its owner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open: dict[str, int] = {}
        self._lock: int | None = None
        self._names: list[str] = []
        self._listed_at: int | None = None
        """The time stamp of the directory when it was listed; None when it may change without another."""

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        path = self.root / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            error.filename = str(path)  # only a failed open has it
            raise

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; continue after a short write."""
        descriptor = self._descriptor(name)
        while data:
            data = data[os.write(descriptor, data) :]

    async def sync(self, name: str) -> None:
        """Flush the file in a thread: a slow disk must not delay an ADD."""
        descriptor = self._descriptor(name)
        await _in_thread(lambda: os.fdatasync(descriptor))

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(self._descriptor(name), size)

    async def replace(self, name: str, data: bytes) -> None:
        """Write a temporary file, sync, rename it, and sync the directory."""
        await _in_thread(lambda: self._replace(name, data))

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self._close(name)
        (self.root / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        changed, now = self.root.stat().st_mtime_ns, time.time_ns()
        if changed != self._listed_at:
            with os.scandir(self.root) as entries:
                self._names = sorted(e.name for e in entries if e.is_file() and not e.name.startswith("."))
            # a later change within the resolution of time stamps would not show
            self._listed_at = changed if now - changed > TIMESTAMP_RESOLUTION else None
        return list(self._names)

    def try_lock(self) -> str | None:
        """Lock the directory until `close` or the end of the process; return the holder if another has locked it."""
        if self._lock is not None:
            return None
        path = self.root / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace")
            os.close(descriptor)
            return holder or "a process that did not write its ID"
        except OSError:
            os.close(descriptor)
            raise
        if not path.exists() or os.fstat(descriptor).st_ino != path.stat().st_ino:
            os.close(descriptor)  # it was deleted meanwhile
            return self.try_lock()
        self._lock = descriptor
        with suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}, podpool {__version__}".encode(), 0)
        return None

    def close(self) -> None:
        """Close all open files, and release the lock last."""
        for name in list(self._open):
            self._close(name)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            path = self.root / name
            new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if new:
                    self._sync_root()
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)  # else the next attempt would take its directory entry for synced
                raise
            self._open[name] = descriptor
        return self._open[name]

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.root / f".{name}.new"
        try:
            _write_synced(temporary, data)
        except OSError:
            temporary.unlink(missing_ok=True)  # a partial file would occupy a full disk
            raise
        temporary.rename(self.root / name)
        self._sync_root()
        self._close(name)

    def _sync_root(self) -> None:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _close(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


async def _in_thread(operation: Callable[[], None]) -> None:
    """Run an operation in a thread, to its end also if cancelled: the next one must not overlap it."""
    task = asyncio.ensure_future(asyncio.to_thread(operation))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
        file.write(data)
        file.flush()
        os.fsync(descriptor)
