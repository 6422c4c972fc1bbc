"""A disk that can die at any byte: the process's death keeps what was written, the machine's only what was synced."""

from errno import EACCES, ENOSPC


class DiskDied(Exception):
    """The process that held the disk is no more."""


class MemoryDisk:
    """Files in memory; `budget` is how many more bytes the process lives to write."""

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

    def after_kill(self) -> "MemoryDisk":
        """What the next process of this boot finds."""
        found = MemoryDisk()
        found.written, found.synced = dict(self.written), dict(self.synced)
        return found

    def after_reboot(self) -> "MemoryDisk":
        """What the next boot finds."""
        found = MemoryDisk()
        found.written, found.synced = dict(self.synced), dict(self.synced)
        return found

    def _alive(self) -> None:
        if self.budget is not None and self.budget < 0:
            raise DiskDied


class FullDisk(MemoryDisk):
    """Has room for so many more bytes; what is too much is refused, and what fitted of it stays, as on a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None

    def append(self, name: str, data: bytes) -> None:
        if self.room is not None and len(data) > self.room:
            super().append(name, data[: self.room])
            raise OSError(ENOSPC, "No space left on device")
        super().append(name, data)

    async def replace(self, name: str, data: bytes) -> None:
        if self.room is not None and len(data) > self.room:
            raise OSError(ENOSPC, "No space left on device")
        await super().replace(name, data)


class ForeignDisk(MemoryDisk):
    """Another's: `secret` files cannot be read, and nothing can be removed; or not even listed."""

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
