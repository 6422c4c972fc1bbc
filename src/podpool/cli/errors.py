"""What a failed command prints: one line and an exit code; a traceback only with --debug.

Every command runs under `report_errors`, services too. Components raise typed errors, and their text is final; this is
the only place that prints them.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from podpool.core.errors import InvalidInput, PodpoolError

FAILED, INVALID, UNREACHABLE = 1, 2, 3
"""Exit codes."""
_PACKAGE = str(Path(__file__).parents[1])


class UsageError(PodpoolError):
    """The words do not form a command: an unknown command or flag, or a missing argument."""

    def __init__(self, reason: str, path: Sequence[str]) -> None:
        see = " See" if reason.endswith("?") else "; see"
        super().__init__(f"{reason}{see} '{' '.join(['podpool', *path, '--help'])}'")


class DoesNotExist(PodpoolError):
    """An object that the command names does not exist; `hint` states which do."""

    def __init__(self, what: str, name: str, hint: str) -> None:
        super().__init__(f"{what} {name!r}: does not exist; {hint}")


class ComponentUnreachable(PodpoolError):
    """A component that the command needs is unreachable; `alternative` states what works without it."""

    def __init__(self, reason: str, alternative: str) -> None:
        super().__init__(f"{reason}. {alternative}")


def report_errors(run: Callable[[], int | None], *, words: Sequence[str]) -> NoReturn:
    """Run a command and exit with its code; print an error as one line."""
    debug = not {"--debug", "--debug=true"}.isdisjoint(words) or os.environ.get("PODPOOL_DEBUG") in {"true", "1"}
    try:
        code = run() or 0
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        if debug:
            raise
        code = _report(error)
    raise SystemExit(code)


def _report(error: Exception) -> int:
    while isinstance(error, ExceptionGroup):  # of concurrent tasks
        error = error.exceptions[0]
    code, text = _described(error)
    print(f"podpool: {text}", file=sys.stderr)  # noqa: T201  the command's error
    return code


def _described(error: Exception) -> tuple[int, str]:
    if isinstance(error, InvalidInput | UsageError):
        return INVALID, " ".join(str(error).split())  # a reason from a library may have several lines
    if isinstance(error, DoesNotExist):
        return FAILED, str(error)
    if isinstance(error, PodpoolError):
        refused = 400 <= getattr(error, "status", 0) < 500  # the server has answered
        return FAILED if refused else UNREACHABLE, str(error)
    if isinstance(error, OSError):
        return UNREACHABLE, f"{error.filename or 'system error'}: {error.strerror or error}"
    what = f"{type(error).__name__}: {error}"
    return UNREACHABLE, f"internal error ({what}{_location(error)}): run the command with --debug and report it"


def _location(error: Exception) -> str:
    """Return the last line of podpool's own code: the log of a process must be enough to find the fault."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(_PACKAGE)]
    frames = [each for each in frames if each.filename != __file__]
    return f", {Path(frames[-1].filename).relative_to(_PACKAGE)} line {frames[-1].lineno}" if frames else ""
