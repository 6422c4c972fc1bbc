"""Disks in memory: a killed process keeps what was written, a reboot only what was synced."""

import asyncio
from errno import EACCES, EIO, ENOSPC


class DiskDied(BaseException):
    """The process that owned the disk was killed: no code of it goes on."""


class MemoryDisk:
    """Files in memory; `budget` is how many more bytes the process writes before it is killed."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}
        self.budget: int | None = None
        self.syncs = 0

    def read(self, name: str) -> bytes | None:
        return self.written.get(name)

    def append(self, name: str, data: bytes) -> None:
        if self.budget is not None:
            kept, self.budget = data[: max(self.budget, 0)], self.budget - len(data)
            self.written[name] = self.written.get(name, b"") + kept
            if self.budget < 0:
                raise DiskDied
        else:
            self.written[name] = self.written.get(name, b"") + data

    async def sync(self, name: str) -> None:
        self._alive()
        self.syncs += 1
        self.synced[name] = self.written.get(name, b"")

    def truncate(self, name: str, size: int) -> None:
        self._alive()
        self.written[name] = self.written.get(name, b"")[:size]

    async def replace(self, name: str, data: bytes) -> None:
        self._alive()
        self.written[name] = self.synced[name] = data

    def remove(self, name: str) -> None:
        self._alive()
        self.written.pop(name, None)
        self.synced.pop(name, None)

    def names(self) -> list[str]:
        return sorted(self.written)

    def try_lock(self) -> str | None:
        return None

    def after_kill(self) -> "MemoryDisk":
        """Return what the next process of this boot finds."""
        found = MemoryDisk()
        found.written, found.synced = dict(self.written), dict(self.synced)
        return found

    def after_reboot(self) -> "MemoryDisk":
        """Return what the next boot finds."""
        found = MemoryDisk()
        found.written, found.synced = dict(self.synced), dict(self.synced)
        return found

    def _alive(self) -> None:
        if self.budget is not None and self.budget < 0:
            raise DiskDied


class FullDisk(MemoryDisk):
    """Takes `space` more bytes; a larger write fails after the part that fits, as on a real disk."""

    def __init__(self) -> None:
        super().__init__()
        self.space: int | None = None

    def append(self, name: str, data: bytes) -> None:
        if self.space is not None and len(data) > self.space:
            super().append(name, data[: self.space])
            raise OSError(ENOSPC, "No space left on device")
        super().append(name, data)

    async def replace(self, name: str, data: bytes) -> None:
        if self.space is not None and len(data) > self.space:
            raise OSError(ENOSPC, "No space left on device")
        await super().replace(name, data)


class DroppingDisk(MemoryDisk):
    """The next `failing` syncs fail and drop what they should have written: later ones succeed without it."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = 0
        self._dropped: dict[str, tuple[int, int]] = {}

    async def sync(self, name: str) -> None:
        start, end = self._dropped.get(name, (len(self.synced.get(name, b"")), 0))
        if self.failing:
            self.failing -= 1
            self._dropped[name] = (start, len(self.written[name]))
            raise OSError(EIO, "Input/output error")
        await super().sync(name)
        if end:
            content = self.synced[name]
            self.synced[name] = content[:start] + bytes(end - start) + content[end:]


class SlowDisk(MemoryDisk):
    """A sync takes some time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def sync(self, name: str) -> None:
        await asyncio.sleep(self._seconds)
        await super().sync(name)


class UnreadableDisk(MemoryDisk):
    """Files whose name ends with one of `unreadable` cannot be read, as on a disk with bad sectors."""

    def __init__(self, unreadable: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.unreadable = unreadable

    def read(self, name: str) -> bytes | None:
        if self.unreadable and name.endswith(self.unreadable):
            raise OSError(EIO, "Input/output error")
        return super().read(name)


class ReadOnlyDisk(MemoryDisk):
    """Nothing can be removed, `secret` files cannot be read, and with `listed` false nothing can be listed."""

    def __init__(self) -> None:
        super().__init__()
        self.secret: set[str] = set()
        self.listed = True

    def read(self, name: str) -> bytes | None:
        if name in self.secret:
            raise PermissionError(EACCES, "Permission denied", name)
        return super().read(name)

    def remove(self, name: str) -> None:
        raise PermissionError(EACCES, "Permission denied", name)

    def names(self) -> list[str]:
        if not self.listed:
            raise PermissionError(EACCES, "Permission denied")
        return super().names()
