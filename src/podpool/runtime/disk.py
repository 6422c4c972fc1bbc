"""Files of one directory, as far as a journal needs them.

What is appended survives the death of the process once `append` has returned, and the death of the machine once `sync`
has. `replace` is all or nothing, and synced. Names are plain file names.
"""

import asyncio
import os
from pathlib import Path
from typing import Protocol


class Disk(Protocol):
    """One directory."""

    def read(self, name: str) -> bytes | None:
        """Read a file as it is; None when there is none."""

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file, which is made if need be."""

    async def sync(self, name: str) -> None:
        """Bring what was written to the platter."""

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""

    async def replace(self, name: str, data: bytes) -> None:
        """Write a file anew, atomically and synced."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def names(self) -> list[str]:
        """List the files, in order."""


class LocalDisk:
    """A directory of this machine; made if need be, readable by its owner alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open: dict[str, int] = {}

    def read(self, name: str) -> bytes | None:
        """Read a file as it is; None when there is none."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file; a short write is carried on."""
        descriptor = self._descriptor(name)
        while data:
            data = data[os.write(descriptor, data) :]

    async def sync(self, name: str) -> None:
        """Sync the file in a thread: a slow disk must not hold up an ADD."""
        await asyncio.to_thread(os.fdatasync, self._descriptor(name))

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off."""
        os.ftruncate(self._descriptor(name), size)

    async def replace(self, name: str, data: bytes) -> None:
        """Write beside the file, sync, rename over it, and sync the directory."""
        await asyncio.to_thread(self._replace, name, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._forget(name)
        (self.root / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """List the files, in order."""
        return sorted(each.name for each in self.root.iterdir() if each.is_file() and not each.name.startswith("."))

    def close(self) -> None:
        """Close what is open."""
        for name in list(self._open):
            self._forget(name)

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            path = self.root / name
            fresh = not path.exists()
            self._open[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if fresh:
                self._sync_root()
        return self._open[name]

    def _replace(self, name: str, data: bytes) -> None:
        beside = self.root / f".{name}.new"
        try:
            _write_synced(beside, data)
        except OSError:
            beside.unlink(missing_ok=True)  # half a file would fill a disk that is full already
            raise
        beside.rename(self.root / name)
        self._sync_root()
        self._forget(name)

    def _sync_root(self) -> None:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _forget(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
        file.write(data)
        file.flush()
        os.fsync(descriptor)
