"""Atomic file replacement: a container runtime reads its directories at any time and must never see a partial file."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Create or replace a file."""
    with temporary_file(path, content, mode=mode) as temporary:
        temporary.rename(path)


@contextmanager
def temporary_file(path: Path, content: bytes, *, mode: int) -> Iterator[Path]:
    """Write and sync a file in the directory of `path`, for the caller to rename; it is removed if not renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
