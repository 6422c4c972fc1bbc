"""Reads Whereabouts' flat file, whose path the author of a network may choose with `configuration_path`.

That author need not be an administrator of the node. So only regular files below the configured directories are read,
whatever links and `..` a path contains, and at most 64 KiB of them; a device or a FIFO is not even waited for. One
thread reads, and a request waits for it for two seconds: a file system that hangs delays only the networks that use it.

The directories must be mounted into the agent's container: otherwise no file is found, which is not an error for
networks that need none. The first time that a network names a file which does not exist is logged.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.runtime.logging import get_logger
from podpool.whereabouts.cni_json import MAX_CONFIG_BYTES
from podpool.whereabouts.raw_config import FLAT_FILE_DIRECTORIES, FLAT_FILE_NAME

READ_TIMEOUT = 2.0
"""Seconds for which a request waits for a file."""
MAX_LOGGED = 100
"""Missing files that are logged."""

log = get_logger(__name__)


class FlatFileReader:
    """Reads flat files below some directories."""

    def __init__(self, directories: Sequence[str] = FLAT_FILE_DIRECTORIES) -> None:
        self._directories = tuple(directories)
        self._missing: set[str] = set()
        self._executor: ThreadPoolExecutor | None = None

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file, without a path or if it does not exist that of the first default file.

        None if there is neither; raises `InvalidInput`.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="flat-file")
        reading = asyncio.get_running_loop().run_in_executor(self._executor, self._read_first, path)
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                return await reading
        except TimeoutError:
            reason = f"could not be read within {READ_TIMEOUT:g} s: check the file system of the node"
            raise InvalidInput("configuration_path", path or FLAT_FILE_NAME, reason) from None

    def _read_first(self, path: str) -> bytes | None:
        content = self._read_named(path) if path else None
        for directory in self._directories if content is None else ():
            content = self._read(f"{directory}/{FLAT_FILE_NAME}")
            if content is not None:
                break
        return content

    def _read_named(self, path: str) -> bytes | None:
        content = self._read(path)
        if content is None and path not in self._missing and len(self._missing) < MAX_LOGGED:
            self._missing.add(path)
            event = "flat file not found; mount its directory into the agent's container, or remove configuration_path"
            log.warning(event, path=path[:200])
        return content

    def _read(self, path: str) -> bytes | None:
        """Read one file; None if it does not exist."""
        try:
            return _read_regular(self._resolve(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise InvalidInput("configuration_path", path, f"cannot be read: {error.strerror}") from None

    def _resolve(self, path: str) -> str:
        """Return the path without links; raises `InvalidInput` if it is not below one of the directories."""
        try:
            found = os.path.realpath(path)
        except ValueError:
            raise InvalidInput("configuration_path", path, "is not a path") from None
        if any(Path(found).is_relative_to(os.path.realpath(each)) for each in self._directories):
            return found
        allowed = ", ".join(self._directories)
        raise InvalidInput("configuration_path", path, f"is not below {allowed}: move the file, or set --flat-file-dir")


def _read_regular(path: str) -> bytes:
    """Read a regular file; a device or FIFO is not waited for. Raises `OSError` and `InvalidInput`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput("configuration_path", path, "is not a regular file")
        content = os.read(descriptor, MAX_CONFIG_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_CONFIG_BYTES:
        raise InvalidInput("configuration_path", path, f"is longer than {MAX_CONFIG_BYTES} bytes")
    return content
