"""Clocks for tests."""

import asyncio


class SetClock:
    """Returns what it is set to."""

    def __init__(self) -> None:
        self.boot_seconds = 0.0
        self.wall_seconds = 1_000_000.0

    def boot(self) -> float:
        return self.boot_seconds

    def wall(self) -> float:
        return self.wall_seconds

    def pass_time(self, seconds: float) -> None:
        self.boot_seconds += seconds
        self.wall_seconds += seconds


class LoopClock:
    """Follows the running loop; the boot starts when it is created."""

    def __init__(self) -> None:
        self._booted = asyncio.get_running_loop().time()

    def boot(self) -> float:
        return asyncio.get_running_loop().time() - self._booted

    def wall(self) -> float:
        return 1_000_000.0 + asyncio.get_running_loop().time()
