"""Removes podpool's files from a node, after its agent has stopped: a running one would restore the CNI configuration.

The directories themselves stay, empty: in a container they are mount points. What another plugin or component wrote
stays too; a plugin that podpool had replaced is restored. A plugin that still runs leaves its DEL for the agent: the
directories are emptied when it has ended, which the kernel shows by refusing to open its file for writing.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from podpool.cni import conflist, install
from podpool.runtime.logging import get_logger

PLUGINS_TIMEOUT = 60.0
"""Seconds for which running plugins are awaited; one waits 5 s for an agent, and 30 s for its response."""
_INTERVAL = 0.05

log = get_logger(__name__)


def remove_node_files(
    *, bin_dir: Path, names: Sequence[str], conf_dir: Path | None, emptied: Iterable[Path]
) -> list[Path]:
    """Remove the CNI configuration, the plugins and the content of directories; return what was removed or restored.

    The configuration goes first: without it a runtime calls no plugin.
    """
    with ExitStack() as stack:
        running = [stack.enter_context(_watched(bin_dir / name)) for name in names]
        found = [conflist.remove(conf_dir)] if conf_dir else []
        found += [install.uninstall(bin_dir, name=name) for name in names]
        _wait_for_end(running)
    return [*filter(None, found), *(path for directory in emptied for path in _emptied(directory))]


@contextmanager
def _watched(path: Path) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a process still runs this file, also after its removal."""
    if not path.is_file() or not install.is_podpool(path):
        yield lambda: False
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield lambda: _is_executed(descriptor)
    finally:
        os.close(descriptor)


def _is_executed(descriptor: int) -> bool:
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY))
    except OSError as error:
        return error.errno == errno.ETXTBSY
    return False


def _wait_for_end(running: Sequence[Callable[[], bool]]) -> None:
    deadline = time.monotonic() + PLUGINS_TIMEOUT
    while any(runs() for runs in running):
        if time.monotonic() > deadline:
            log.warning("plugins still run, a DEL that they leave for the agent stays on the node")
            return
        time.sleep(_INTERVAL)


def _emptied(directory: Path) -> list[Path]:
    """Remove the content of a directory."""
    content = sorted(directory.iterdir()) if directory.is_dir() else []
    for path in content:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return content
