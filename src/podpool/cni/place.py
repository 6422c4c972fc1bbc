"""Puts files where a runtime looks for them: whole or not at all, because it may look at any moment."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def put_in_place(path: Path, content: bytes, *, mode: int, check: Callable[[Path], None] | None = None) -> None:
    """Write a file beside its place, sync it, look whether it is good, and move it there; what stood there is gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        if check:
            check(Path(beside))
        Path(beside).rename(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
