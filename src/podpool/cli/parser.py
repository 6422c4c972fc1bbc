"""Read the words after a command: arguments, options, their environment variables and the configuration file.

argparse splits the words. Values from all four sources are validated in one place, so that an invalid value gets the
same error wherever it comes from.
"""

import argparse
import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from podpool.cli.errors import UsageError
from podpool.cli.spec import COMMANDS, GROUPS, children, options_of
from podpool.cli.spec.model import Argument, Command, Group, Option, Type
from podpool.cli.spec.options import CONFIG
from podpool.core.errors import InvalidInput

Value = str | int | bool | None | Sequence[str]
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def find_command(words: Sequence[str]) -> tuple[Command | Group | None, list[str]]:
    """Return the command or group that the first words name, and the words after it; None for no words.

    Words that also begin the name of a longer command are that command: `slices declare-complete`.
    """
    path: list[str] = []
    for place, word in enumerate(words):
        if word.startswith("-"):
            return GROUPS.get(" ".join(path)), list(words[place:])
        name = " ".join([*path, word])
        if name in COMMANDS and f"{name} {' '.join(words[place + 1 : place + 2])}" not in COMMANDS:
            return COMMANDS[name], list(words[place + 1 :])
        if name not in GROUPS and name not in COMMANDS:
            above = " ".join(["podpool", *path])
            raise UsageError(f"unknown command {word!r} for {above!r}{nearest(word, children(' '.join(path)))}", path)
        path.append(word)
    return GROUPS.get(" ".join(path)), []


def parse(command: Command, words: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Value]:
    """Return the values of a command's arguments and options by the names of its handler's parameters."""
    environment = os.environ if environment is None else environment
    typed = _split(command, words)
    file = _config_values(command, typed, environment)
    values: dict[str, Value] = {}
    for argument in command.arguments:
        values[argument.parameter] = _argument_value(argument, typed[argument.parameter])
    for option in options_of(command):
        text = typed.get(option.parameter)
        if text is None:
            text = environment.get(option.variable, file.get(option.name, option.default))
        values[option.parameter] = _value(option, str(text))
    return values


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelt word, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


class _Splitter(argparse.ArgumentParser):
    """argparse without its own help and exit."""

    def __init__(self, command: Command) -> None:
        super().__init__(prog=f"podpool {command.name}", add_help=False, allow_abbrev=False)
        self._path = command.name.split()
        for argument in command.arguments:
            count = "*" if argument.repeated else None if argument.required else "?"
            self.add_argument(argument.parameter, metavar=argument.name, nargs=count)
        for option in options_of(command):
            self.add_argument(*filter(None, (option.short, option.flag)), dest=option.parameter)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "), self._path)


def _split(command: Command, words: Sequence[str]) -> dict[str, str | list[str] | None]:
    options = options_of(command)
    implied = {option: "true" if option.type is Type.BOOLEAN else option.implied for option in options}
    flags = {
        name: f"{each.flag}={value}" for each, value in implied.items() if value for name in (each.flag, each.short)
    }
    explicit = [flags.get(word, word) if word else word for word in words]
    found, unknown = _Splitter(command).parse_known_intermixed_args(explicit)
    if unknown:
        raise UsageError(_unknown(unknown[0], options), command.name.split())
    return vars(found)


def _unknown(word: str, options: Iterable[Option]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    flag = word.partition("=")[0]
    return f"unknown flag {flag}{nearest(flag, [option.flag for option in options])}"


def _argument_value(argument: Argument, typed: str | list[str] | None) -> Value:
    if argument.choices and typed not in argument.choices:
        raise InvalidInput(argument.name, typed, f"use one of {', '.join(argument.choices)}")
    return typed or ([] if argument.repeated else "")


def _value(option: Option, text: str) -> Value:
    if option.type is Type.BOOLEAN:
        if text not in _BOOLEANS:
            raise InvalidInput(option.flag, text, "use true or false")
        return _BOOLEANS[text]
    if option.type is Type.INTEGER:
        if not text.removeprefix("-").isdecimal():
            raise InvalidInput(option.flag, text, "is not an integer")
        return int(text)
    if option.choices and text not in option.choices:
        raise InvalidInput(option.flag, text, f"use one of {', '.join(option.choices)}")
    return text


def _config_values(
    command: Command, typed: Mapping[str, str | list[str] | None], environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Read the configuration file: the named one must exist, the default one need not."""
    if not command.config_file:
        return {}
    named = typed.get(CONFIG.parameter) or environment.get(CONFIG.variable, "")
    path = Path(str(named or command.config_file))
    if not named and not path.exists():
        return {}
    return read_config_file(path, [each.name for each in options_of(command)])


def read_config_file(path: Path, known: Sequence[str]) -> dict[str, str]:
    """Return the options of a TOML file as text; `settings` may be a table. Raises `InvalidInput`."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(CONFIG.flag, str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(CONFIG.flag, str(path), f"is not TOML: {error}") from None
    for name, value in content.items():
        if name not in known:
            raise InvalidInput(CONFIG.flag, str(path), f"unknown option {name!r}; use one of {', '.join(known)}")
        if isinstance(value, list) or (isinstance(value, dict) and name != "settings"):
            raise InvalidInput(CONFIG.flag, str(path), f"{name} must be a single value")
    return {name: _text(value) for name, value in content.items()}


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={_text(each)}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
