"""Files of one directory, as a journal needs them.

Appended data survives a crash of the process once `append` has returned, and of the machine once `sync` has. `replace`
is atomic and synced. Names are plain file names.
"""

import asyncio
import os
from pathlib import Path
from typing import Protocol


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


class LocalDisk:
    """A directory of this machine; created if needed, readable only by its owner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open: dict[str, int] = {}

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; continue after a short write."""
        descriptor = self._descriptor(name)
        while data:
            data = data[os.write(descriptor, data) :]

    async def sync(self, name: str) -> None:
        """Flush the file in a thread: a slow disk must not delay an ADD."""
        await asyncio.to_thread(os.fdatasync, self._descriptor(name))

    def truncate(self, name: str, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(self._descriptor(name), size)

    async def replace(self, name: str, data: bytes) -> None:
        """Write a temporary file, sync, rename it, and sync the directory."""
        await asyncio.to_thread(self._replace, name, data)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self._close(name)
        (self.root / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        return sorted(each.name for each in self.root.iterdir() if each.is_file() and not each.name.startswith("."))

    def close(self) -> None:
        """Close all open files."""
        for name in list(self._open):
            self._close(name)

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            path = self.root / name
            new = not path.exists()
            self._open[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if new:
                self._sync_root()
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


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
        file.write(data)
        file.flush()
        os.fsync(descriptor)
