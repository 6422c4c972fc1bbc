"""How a command is described: what it does, who does it, what it takes."""

import enum
from collections.abc import Mapping

import msgspec

EXIT_CODES = (
    "Exit codes: 0 all is told; 1 something is wrong, or refused; 2 a word or a file cannot be meant; "
    "3 the API server or the ledger could not be asked."
)


TRY, LOOK, RUN, OWN = "Try it", "Look at a cluster", "Run it", "podpool itself"
"""Under what a command is listed."""


class Output(enum.StrEnum):
    """How to tell."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Option(msgspec.Struct, frozen=True):
    """What may be said to a command; without a default it must be."""

    default: str | None
    help: str
    choices: tuple[str, ...] | None = None


OUTPUT = Option(Output.TABLE, "how to tell", tuple(Output))
"""Of a command that tells: it takes `-o` as well, and `--no-color`."""
NO_COLOR = "no colours; the variable NO_COLOR does the same"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    sentence: str
    does: str
    takes: tuple[str, ...] = ()
    options: Mapping[str, Option] = {}
    file: str = ""
    """A TOML file that may hold options, where there is one; another with --config."""


def firsts(commands: Mapping[str, Command]) -> list[str]:
    """List the first words of commands."""
    return list(dict.fromkeys(name.partition(" ")[0] for name in commands))


def under(commands: Mapping[str, Command], first: str) -> dict[str, Command]:
    """Find the commands of two words that begin with this one, by their second."""
    return {name.partition(" ")[2]: each for name, each in commands.items() if name.startswith(f"{first} ")}
