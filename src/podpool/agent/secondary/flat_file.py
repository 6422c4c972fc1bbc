"""Reads Whereabouts' flat file, whose path the author of a network may choose with `configuration_path`.

That author need not be an administrator of the node. So a path is compared with the configured directories before it
is accessed, links are followed only below them, and only regular files of at most 64 KiB are read; a device or a FIFO
is not even waited for. A request waits two seconds for a file. The named files of each directory, and the default
files, have a thread each: a file system that hangs delays only the networks that use it, and while it hangs further
reads of it fail at once.

The directories must be mounted into the agent's container: otherwise no file is found, which is not an error for
networks that need none. The first time that a network names a file which does not exist is logged.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from podpool.core.errors import InvalidInput, PodpoolError, quoted
from podpool.runtime.logging import OnceLogger, get_logger
from podpool.whereabouts.cni_json import MAX_CONFIG_BYTES
from podpool.whereabouts.config_merge import FLAT_FILE_DIRECTORIES, FLAT_FILE_NAME

READ_TIMEOUT = 2.0
"""Seconds for which a request waits for a file."""
MAX_LINKS = 40
"""Links of a path that are followed, as in Linux."""
NOT_FOUND = "flat file not found; mount its directory into the agent's container, or remove configuration_path"


class FlatFileUnavailable(PodpoolError):
    """A flat file could not be read in time, which says nothing about the configuration."""


class FlatFileReader:
    """Reads flat files below some directories."""

    def __init__(self, directories: Sequence[str] = FLAT_FILE_DIRECTORIES) -> None:
        self._directories = tuple(map(_normalized, directories))
        self._named = {each: _Worker() for each in self._directories}
        self._default = _Worker()
        self._once_log = OnceLogger(get_logger(__name__))

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file, without a path or if it does not exist that of the first default file.

        None if there is neither; raises `InvalidInput` and `FlatFileUnavailable`.
        """
        content = None
        if path:
            worker = self._named[self._directory(_normalized(path), path)]
            content = await worker.run(self._read, path)
            if content is None:
                self._once_log.warning(NOT_FOUND, key=path, path=path[:200])
        return await self._default.run(self._read_default, FLAT_FILE_NAME) if content is None else content

    def _read_default(self, name: str) -> bytes | None:
        contents = (self._read(f"{each}/{name}") for each in self._directories)
        return next((each for each in contents if each is not None), None)

    def _read(self, path: str) -> bytes | None:
        """Read one file; None if it does not exist."""
        try:
            return _read_regular(self._resolve(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise InvalidInput("configuration_path", path, f"cannot be read: {error.strerror}") from None

    def _resolve(self, path: str) -> Path:
        """Return the path without links below its directory; a link out of the directories is not followed."""
        found = _normalized(path)
        for _ in range(MAX_LINKS):
            link = _first_link(found, self._directory(found, path))
            if link is None:
                return found
            found = _normalized(link.parent / link.readlink() / found.relative_to(link))
        raise InvalidInput("configuration_path", path, "has too many links")

    def _directory(self, found: Path, path: str) -> Path:
        """Return the directory that a path without `..` is in; raises `InvalidInput` with the path as it was named."""
        for directory in self._directories:
            if found.is_relative_to(directory):
                return directory
        allowed = ", ".join(map(str, self._directories))
        raise InvalidInput("configuration_path", path, f"is not below {allowed}: move the file, or set --flat-file-dir")


class _Worker:
    """A thread for files. While one of them takes too long, no other is queued."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flat-file")
        self._recovery: Future[bool] | None = None
        """Queued when a file took too long, so done when the thread is free again."""

    async def run(self, read: Callable[[str], bytes | None], path: str) -> bytes | None:
        """Return the content of a file; raises what reading raises, and `FlatFileUnavailable`."""
        if self._is_hanging():
            raise _unavailable(path)
        reading = asyncio.wrap_future(self._executor.submit(read, path))
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                return await reading
        except TimeoutError:
            if not self._is_hanging():
                self._recovery = self._executor.submit(bool)
            raise _unavailable(path) from None

    def _is_hanging(self) -> bool:
        return self._recovery is not None and not self._recovery.done()


def _unavailable(path: str) -> FlatFileUnavailable:
    reason = f"could not be read within {READ_TIMEOUT:g} s: check the file system of the node"
    return FlatFileUnavailable(f"configuration_path {quoted(path)}: {reason}")


def _normalized(path: str | Path) -> Path:
    """Return an absolute path without `..`, without accessing it."""
    if "\0" in str(path):
        raise InvalidInput("configuration_path", path, "is not a path")
    return Path(os.path.abspath(path))  # noqa: PTH100  `resolve` accesses it


def _first_link(path: Path, directory: Path) -> Path | None:
    """Return the first part of a path below a directory that is a link; None if none is."""
    parts = reversed((path, *path.parents))
    return next((each for each in parts if directory in each.parents and each.is_symlink()), None)


def _read_regular(path: Path) -> bytes:
    """Read a regular file; a device or FIFO is not waited for. Raises `OSError` and `InvalidInput`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput("configuration_path", str(path), "is not a regular file")
        content = os.read(descriptor, MAX_CONFIG_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_CONFIG_BYTES:
        raise InvalidInput("configuration_path", str(path), f"is longer than {MAX_CONFIG_BYTES} bytes")
    return content
