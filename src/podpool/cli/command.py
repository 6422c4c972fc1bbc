"""How a command is described: what it does, who does it, what it takes."""

from collections.abc import Mapping

import msgspec


class Option(msgspec.Struct, frozen=True):
    """What may be said to a command; without a default it must be."""

    default: str | None
    help: str
    choices: tuple[str, ...] | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    sentence: str
    does: str
    takes: tuple[str, ...] = ()
    options: Mapping[str, Option] = {}
    file: str = ""
    """A TOML file that may hold options, where there is one; another with --config."""
