"""The user's cache of components: one directory per name and version, complete or absent.

A component is built in a scratch directory and renamed into place, under a lock that the kernel releases when its
holder ends: concurrent calls build it once, and an interrupted one leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from parts.steps import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def place(name: str, version: str) -> Path:
    """Return the directory of a component, whether it exists or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "podpool" / "parts" / f"{name}-{version}"


def complete(home: Path, files: Sequence[str]) -> bool:
    """Return whether all files of the component exist: a later recipe may need more of the same version."""
    return all((home / file).exists() for file in files)


def keep(home: Path, files: Sequence[str], make: Callable[[Path], None]) -> None:
    """Call `make` on a scratch directory, then rename it into place, unless another call did that first."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home):
        if complete(home, files):
            return
        scratch = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            make(scratch)
            scratch.chmod(0o755)  # mkdtemp creates it with 0700, but a server may run as another user
            shutil.rmtree(home, ignore_errors=True)
            scratch.rename(home)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the lock of one component; print progress while another call holds it."""
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        if not taken(lock):
            print(f"podpool: waiting for another call that builds {home.name} ...", flush=True)
            with alive():
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def taken(lock: IO[str]) -> bool:
    """Take the lock if it is free; return whether that succeeded."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
