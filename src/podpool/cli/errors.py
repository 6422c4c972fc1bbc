"""What a person is told when a command fails: a sentence and an exit code. Where in the program, only with --debug.

Every command runs under `guarded`, long-running ones too: whatever a part raises, it raises as it is, and it is worded
here. Imports nothing that an agent would not have anyway.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from podpool.core.errors import InvalidInput, PodpoolError

WRONG, BAD_INPUT, AWAY = 1, 2, 3
DEBUG = "when it fails, show where in the program"
_OWN = str(Path(__file__).parents[1])


class Away(PodpoolError):
    """Who must be asked does not answer: says what works without."""

    def __init__(self, reason: str, still: str) -> None:
        super().__init__(f"{reason}. {still}")


def guarded(run: Callable[[], None], *, words: Sequence[str]) -> None:
    """Run a command; whatever it raises becomes a sentence."""
    debug = "--debug" in words or bool(os.environ.get("PODPOOL_DEBUG"))
    try:
        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:  # the last place that can tell a person
        if debug:
            raise
        _end(error)


def _end(error: Exception) -> NoReturn:
    while isinstance(error, ExceptionGroup):  # of tasks that ran side by side
        error = error.exceptions[0]
    code, told = _worded(error)
    print(f"podpool: {told}", file=sys.stderr)  # noqa: T201  for the person who typed it
    raise SystemExit(code)


def _worded(error: Exception) -> tuple[int, str]:
    if isinstance(error, InvalidInput):
        return BAD_INPUT, " ".join(str(error).split())  # whoever refused it may have taken several lines
    if isinstance(error, PodpoolError):
        refused = 400 <= getattr(error, "status", 0) < 500  # who was asked has answered
        return WRONG if refused else AWAY, str(error)
    if isinstance(error, OSError):
        return AWAY, f"{error.filename or 'the system'}: {error.strerror or error}"
    what = f"{type(error).__name__}: {error}"
    return AWAY, f"this should not happen ({what}{_place(error)}): run it again with --debug, and tell us"


def _place(error: Exception) -> str:
    """Name the last line of ours, so that a log of a process which cannot be run again tells enough."""
    ours = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(_OWN)]
    ours = [each for each in ours if each.filename != __file__]
    return f", {Path(ours[-1].filename).relative_to(_OWN)} line {ours[-1].lineno}" if ours else ""
