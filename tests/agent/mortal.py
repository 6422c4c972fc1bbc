"""`podpool agent run` on a disk that kills its process in the middle of a change.

MORTAL says in which, and how much of that is done before: `append:3:0.5` is half of the third write, `replace:1:0` the
first snapshot, of which nothing is there yet. Segments are short, so that within a life the journal is made short too.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from podpool.__main__ import main
from podpool.agent import journal
from podpool.runtime.disk import LocalDisk

SEGMENT = 3_000
"""Bytes: a dozen ADDs and DELs."""

Change = Callable[..., None]


class Death:
    """Comes in one of the changes of a kind."""

    def __init__(self, told: str) -> None:
        kind, left, part = told.split(":")
        self.method = "_replace" if kind == "replace" else kind  # that which does it, and in a thread
        self._left, self._part = int(left), float(part)

    def mortal(self, change: Change) -> Change:
        """Make a change of the disk the one that ends the process, when it is time."""

        def changed(disk: LocalDisk, name: str, *words: object) -> None:
            self._left -= 1
            if self._left or self._part == 1:
                change(disk, name, *words)
            else:
                self._begin(disk.root, name, *words)
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

        return changed

    def _begin(self, root: Path, name: str, *words: object) -> None:
        """Do a part of what is written; to cut off and to remove have no parts."""
        (told,) = words or (None,)
        if isinstance(told, bytes):
            path = root / (f".{name}.new" if self.method == "_replace" else name)
            with path.open("ab") as file:
                file.write(told[: int(len(told) * self._part)])


if __name__ == "__main__":
    death = Death(os.environ["MORTAL"])
    setattr(LocalDisk, death.method, death.mortal(getattr(LocalDisk, death.method)))
    setattr(journal, "SEGMENT", SEGMENT)  # noqa: B010  mypy takes it for a constant, which it is elsewhere
    main()
