"""Puts files where a runtime looks for them: whole or not at all, because it may look at any moment."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def put_in_place(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file and move it to its place; what stood there is gone."""
    with written_beside(path, content, mode=mode) as beside:
        beside.rename(path)


@contextmanager
def written_beside(path: Path, content: bytes, *, mode: int) -> Iterator[Path]:
    """Write a file beside its place and sync it, to be looked at and moved; one that is not moved goes again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        yield beside
    finally:
        beside.unlink(missing_ok=True)
