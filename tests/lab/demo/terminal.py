"""A pseudo-terminal that runs a program: its output and its input."""

from __future__ import annotations

import os
import re
import select
import subprocess
from typing import TYPE_CHECKING, Self

from parts.debian import command
from parts.polling import TIMEOUT, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

SIZE = {"COLUMNS": "110", "LINES": "40", "TERM": "xterm-256color"}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A terminal of its own, as a window is; Ctrl-C typed there reaches whatever runs in it."""

    def __init__(self, words: Sequence[str]) -> None:
        self.shown = ""
        """All that was written to it, without colours and movements."""
        self._mine, theirs = os.openpty()
        self._process = subprocess.Popen(
            [command("setsid"), "--ctty", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **SIZE},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._mine)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._mine, keys.encode())

    def until_shown(self, *words: str) -> None:
        """Wait until all of it has been shown."""

        def all_shown() -> bool:
            self._read()
            return all(each in self.shown for each in words)

        until(all_shown, f"it shows {words}")

    def ends(self) -> int:
        """Wait for the end; gives the exit code."""

        def ended() -> bool:
            self._read()
            return self._process.poll() is not None

        until(ended, "it ends", timeout=TIMEOUT)
        self._read()
        return self._process.wait()

    def _read(self) -> None:
        while select.select([self._mine], [], [], 0)[0]:
            try:
                output = os.read(self._mine, 65536)
            except OSError:  # the program has closed it
                return
            self.shown += CONTROL.sub("", output.decode(errors="replace"))
