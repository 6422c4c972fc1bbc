"""What a person is told when a command fails: a sentence and an exit code. Where in the program, only with --debug."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from podpool.core.errors import InvalidInput, PodpoolError

WRONG, BAD_INPUT, AWAY = 1, 2, 3


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
    if isinstance(error, InvalidInput):
        code, told = BAD_INPUT, str(error)
    elif isinstance(error, PodpoolError):
        code, told = AWAY, str(error)
    elif isinstance(error, OSError):
        code, told = AWAY, f"{error.filename or 'the system'}: {error.strerror or error}"
    else:
        what = f"{type(error).__name__}: {error}"
        code, told = AWAY, f"this should not happen ({what}): run it again with --debug, and tell us"
    print(f"podpool: {told}", file=sys.stderr)  # noqa: T201  for the person who typed it
    raise SystemExit(code)
