"""How a command is described. Parsing, help, completion and the reference page all follow from these structs.

Imports nothing but the standard library and msgspec: every process loads it, also the agent's.
"""

import enum
from typing import Any

import msgspec


class Output(enum.StrEnum):
    """Formats of a result."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Type(enum.Enum):
    """The type of an option's value."""

    STRING = "string"
    INTEGER = "int"
    BOOLEAN = "bool"


class Option(msgspec.Struct, frozen=True):
    """An option. Its value comes from the command line, the environment, the configuration file or the default."""

    name: str
    help: str
    default: str = ""
    type: Type = Type.STRING
    choices: tuple[str, ...] = ()
    short: str = ""
    implied: str = ""
    """The value if it is typed without one; another value then follows `=`."""
    env: bool = True
    """Whether the environment sets it. Filters and confirmations are set on the command line only."""

    @property
    def flag(self) -> str:
        """The option as typed."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable, or nothing."""
        return f"PODPOOL_{self.parameter.upper()}" if self.env else ""

    @property
    def parameter(self) -> str:
        """The handler's parameter."""
        return self.name.replace("-", "_")


class Argument(msgspec.Struct, frozen=True):
    """A positional argument."""

    name: str
    help: str
    parameter: str
    """The handler's parameter."""
    required: bool = True
    repeated: bool = False
    choices: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The argument in a usage line."""
        shown = f"{self.name}..." if self.repeated else self.name
        return shown if self.required else f"[{shown}]"


class Section(enum.StrEnum):
    """Headings of `podpool --help`."""

    TRY = "Try without a cluster"
    INSPECT = "Inspect a cluster"
    INSTALL = "Install and migrate"
    RUN = "Run components"
    OTHER = "Other Commands"


class Session(enum.Enum):
    """The first argument of a handler: nothing, or connections that are open while it runs."""

    NONE = "none"
    CLUSTER = "cluster"
    LEDGER = "ledger"


class Example(msgspec.Struct, frozen=True):
    """An example and what it is for."""

    purpose: str
    command: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command."""

    name: str
    """All words after `podpool`."""
    summary: str
    handler: str
    """As module:function. The module is imported when the command runs."""
    examples: tuple[Example, ...]
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    session: Session = Session.NONE
    section: Section = Section.OTHER
    config_file: str = ""
    """The TOML file that may set options; `--config` names another."""
    service: bool = False
    """Whether it runs until it is stopped, and logs."""
    exit_codes: str = ""


class Group(msgspec.Struct, frozen=True):
    """Commands that share their first words."""

    name: str
    summary: str
    section: Section = Section.OTHER


def command(name: str, summary: str, handler: str, *parts: Argument | Option | Example, **more: Any) -> Command:  # noqa: ANN401  other fields of Command
    """Return a command; `handler` is in `podpool.cli.commands`. An example may leave out `podpool` and the name."""
    examples = [each for each in parts if isinstance(each, Example)]
    return Command(
        name=name,
        summary=summary,
        handler=handler if handler.startswith("podpool.") else f"podpool.cli.commands.{handler}",
        examples=tuple(Example(each.purpose, _command_line(name, each.command)) for each in examples),
        arguments=tuple(each for each in parts if isinstance(each, Argument)),
        options=tuple(each for each in parts if isinstance(each, Option)),
        **more,
    )


def _command_line(name: str, words: str) -> str:
    return words if "podpool " in words else f"podpool {name} {words}".rstrip()
