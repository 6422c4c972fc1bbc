"""`podpool agent run` on a disk that kills its process in the middle of an operation.

KILLED_IN is the operation and the part of it that is done: `append:3:0.5` is half of the third write, `replace:1:0` the
first snapshot before anything is written. Segments are small, so that each process compacts its journal.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from podpool.__main__ import main
from podpool.agent import journal
from podpool.runtime.disk import LocalDisk

SEGMENT_BYTES = 3_000
"""Bytes: a dozen ADDs and DELs."""

Operation = Callable[..., None]


class KillPoint:
    """The operation in which the process is killed."""

    def __init__(self, text: str) -> None:
        kind, left, part = text.split(":")
        self.method = "_replace" if kind == "replace" else kind  # which does the work, in a thread
        self._left, self._part = int(left), float(part)

    def wrap(self, operation: Operation) -> Operation:
        """Return an operation that kills the process when it is its turn."""

        def wrapped(disk: LocalDisk, name: str, *arguments: object) -> None:
            self._left -= 1
            if self._left or self._part == 1:
                operation(disk, name, *arguments)
            else:
                self._do_part(disk.root, name, *arguments)
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

        return wrapped

    def _do_part(self, root: Path, name: str, *arguments: object) -> None:
        """Write a part of the data; truncation and removal have no parts."""
        (data,) = arguments or (None,)
        if isinstance(data, bytes):
            path = root / (f".{name}.new" if self.method == "_replace" else name)
            with path.open("ab") as file:
                file.write(data[: int(len(data) * self._part)])


if __name__ == "__main__":
    kill_point = KillPoint(os.environ["KILLED_IN"])
    setattr(LocalDisk, kill_point.method, kill_point.wrap(getattr(LocalDisk, kill_point.method)))
    setattr(journal, "SEGMENT_BYTES", SEGMENT_BYTES)  # noqa: B010  mypy takes it for a constant
    main()
