"""Network namespaces of sandboxes, by the path that the runtime names in CNI_NETNS.

A namespace is gone when its file is absent from a directory that exists. An agent that does not see the directory (in a
container without it, or `/proc/PID/ns/net` of another PID namespace) never takes a namespace for gone, nor for present.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

MAX_PATH = 255
"""Characters of a path that is recorded; containerd's and CRI-O's have about 60."""
PROBE_TIMEOUT = 5.0
"""Seconds after which a probe ends without a result: a path may be on a file system that does not respond."""

ABSENT_NAME = ".podpool-absent"
"""A name that no namespace has. A directory from which it is absent is one that the agent sees."""


def recorded_netns(path: str) -> str:
    """Return a path as records contain it; empty if it is not a plain absolute path."""
    return path if path.startswith("/") and len(path) <= MAX_PATH and path.isprintable() else ""


async def present_netns(
    paths: Collection[str], gone: Callable[[Collection[str]], Awaitable[frozenset[str]]]
) -> frozenset[str]:
    """Return the namespaces that exist: they are not gone, and in a directory that the agent sees."""
    absent_names = {path: f"{path.rpartition('/')[0]}/{ABSENT_NAME}" for path in paths}
    found_gone = await gone({*absent_names, *absent_names.values()})
    return frozenset(path for path, name in absent_names.items() if path not in found_gone and name in found_gone)


class NetnsProbe:
    """Looks for network namespaces in one thread at a time, off the event loop."""

    def __init__(self) -> None:
        self._running: asyncio.Future[frozenset[str]] | None = None

    async def gone(self, paths: Collection[str]) -> frozenset[str]:
        """Return the namespaces that are gone; none if the file system does not respond."""
        if not paths or (self._running and not self._running.done()):
            return frozenset()
        self._running = probe = asyncio.ensure_future(asyncio.to_thread(_gone, frozenset(paths)))
        done, _ = await asyncio.wait({probe}, timeout=PROBE_TIMEOUT)
        return probe.result() if done else frozenset()


def _gone(paths: frozenset[str]) -> frozenset[str]:
    return frozenset(filter(_is_gone, paths))


def _is_gone(path: str) -> bool:
    try:
        Path(path).lstat()
    except FileNotFoundError:
        return Path(path).parent.is_dir()
    except OSError:
        return False
    return False
