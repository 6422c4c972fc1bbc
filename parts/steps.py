"""Progress of build steps: what is done, a sign of life, and a final error message.

Output of a successful step is hidden; of a failed one, the last lines are printed before the message that says what
to do.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SIGN_OF_LIFE = 15.0
"""Seconds between two progress lines."""

LAST_LINES = 25


class PartMissing(Exception):
    """A component is missing; the message says what to do."""


@contextmanager
def progress(what: str, *, usually: str) -> Iterator[None]:
    """Print what is done, how long it usually takes, and how long it took."""
    print(f"podpool: {what} (usually {usually}) ...", flush=True)
    begun = time.monotonic()
    yield
    print(f"podpool: {what}: done in {time.monotonic() - begun:.0f} s", flush=True)


def run(
    *argv: str | Path,
    otherwise: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a program; if it fails, print its last lines and raise `PartMissing(otherwise)`."""
    with tempfile.TemporaryFile("w+") as output:
        try:
            running = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=cwd)
        except OSError as error:
            raise PartMissing(f"{argv[0]} does not start ({error.strerror}): {otherwise}") from error
        with alive():
            ended_with = wait(running)
        if ended_with:
            output.seek(0)
            print("".join(output.readlines()[-LAST_LINES:]), end="", flush=True)
            raise PartMissing(otherwise)


@contextmanager
def alive() -> Iterator[None]:
    """Print progress lines until the block ends."""
    begun = time.monotonic()
    over = threading.Event()

    def print_progress() -> None:
        while not over.wait(SIGN_OF_LIFE):
            print(f"podpool:   ... {time.monotonic() - begun:.0f} s", flush=True)

    printer = threading.Thread(target=print_progress)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()


def wait(running: subprocess.Popen[bytes]) -> int:
    """Wait for a program; it does not outlive an interrupt."""
    try:
        return running.wait()
    except BaseException:
        running.terminate()
        running.wait()
        raise
