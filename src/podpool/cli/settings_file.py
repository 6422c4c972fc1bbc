"""A command's options from a TOML file: what is typed comes first, then the environment, then the file.

Options stand under their names; numbers may be a table: `[numbers]` and `batch = 8`.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from podpool.core.errors import InvalidInput

OPTION, VARIABLE = "--config", "PODPOOL_CONFIG"


def chosen_file(words: Sequence[str], default: str) -> Path | None:
    """Find the file that was named; the default one only if it is there."""
    typed = [words[at + 1] for at, word in enumerate(words[:-1]) if word == OPTION]
    typed += [word.partition("=")[2] for word in words if word.startswith(f"{OPTION}=")]
    named = typed[-1] if typed else os.environ.get(VARIABLE, "")
    if named:
        return Path(named)
    return Path(default) if Path(default).exists() else None


def read_settings(path: Path, known: Sequence[str]) -> Mapping[str, str]:
    """Read options by their names, as they would be typed; raises `InvalidInput`."""
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(OPTION, str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(OPTION, str(path), f"is not TOML: {error}") from None
    for name, value in told.items():
        if name not in known:
            raise InvalidInput(OPTION, str(path), f"there is no option {name!r}; there are {', '.join(known)}")
        if isinstance(value, list) or (isinstance(value, dict) and name != "numbers"):
            raise InvalidInput(OPTION, str(path), f"{name} must be one value")
    return {name: _typed(value) for name, value in told.items()}


def _typed(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={_typed(each)}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
