"""How results are printed: tables for people, JSON or YAML with every field for programs.

Colors appear on a terminal only, and not with `NO_COLOR` or `--no-color`. Warnings go to standard error, so that
standard output has nothing but the result.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from podpool.cli.spec.model import Output

GOOD, BAD, WARNING, HEAD, FAINT = "green", "bold red", "yellow", "bold", "dim"


class StyledText(msgspec.Struct, frozen=True):
    """A table cell with a color."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


class TextTable(msgspec.Struct, frozen=True):
    """Columns, of which the last `wide` are shown with `-o wide` only."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    wide: int = 0


class Printer:
    """Prints results in the chosen format."""

    def __init__(
        self,
        output: str = Output.TABLE,
        *,
        no_color: bool = False,
        out: Console | None = None,
        err: Console | None = None,
    ) -> None:
        self.output = Output(output)
        plain = no_color or bool(os.environ.get("NO_COLOR"))
        self._out = out or _console(plain=plain)
        self._err = err or _console(plain=plain, stderr=True)

    def result(self, data: object, *parts: TextTable | str | Text) -> None:
        """Print all of `data` as JSON or YAML, or else the parts."""
        if self.output is Output.JSON:
            self._line(msgspec.json.format(msgspec.json.encode(plain(data))).decode())
        elif self.output is Output.YAML:
            self._line(msgspec.yaml.encode(plain(data)).decode().rstrip())
        else:
            for part in parts:
                if isinstance(part, TextTable):
                    self._table(part)
                else:
                    self._line(_safe(part))

    def event(self, data: object, line: Text) -> None:
        """Print one of a sequence of events: a line of JSON, a YAML document, or the line."""
        if self.output is Output.JSON:
            self._line(msgspec.json.encode(plain(data)).decode())
        elif self.output is Output.YAML:
            self._line("---\n" + msgspec.yaml.encode(plain(data)).decode().rstrip())
        else:
            self._line(_safe(line))

    def note(self, text: str) -> None:
        """Print to standard error what was done."""
        self._err.print(Text(printable(text), style=GOOD), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning to standard error."""
        self._err.print(Text(printable(f"podpool: {text}"), style=WARNING), soft_wrap=True)

    def _table(self, table: TextTable) -> None:
        shown = len(table.head) - (0 if self.output is Output.WIDE else table.wide)
        rows = [row[:shown] for row in table.rows]
        head, *lines = padded(table.head[:shown], rows)
        self._line(Text("  ".join(head).rstrip(), style=HEAD))
        for line, row in zip(lines, rows, strict=True):
            styles = [cell.style if isinstance(cell, StyledText) else "" for cell in row]
            text = Text("  ").join(Text(word, style=style) for word, style in zip(line, styles, strict=True))
            text.rstrip()
            self._line(text)

    def _line(self, line: str | Text) -> None:
        self._out.print(line if isinstance(line, Text) else Text(line), soft_wrap=True)


def ask(question: str) -> bool:
    """Ask on standard error, and return whether the answer is yes."""
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)  # noqa: T201  a question
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def padded(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Pad head and rows to the same column widths; the last column is not padded."""
    lines = [list(head), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    widths[-1] = 0
    return [[word.ljust(width) for word, width in zip(line, widths, strict=True)] for line in lines]


def _console(*, plain: bool, stderr: bool = False) -> Console:
    return Console(stderr=stderr, color_system=None if plain else "auto", highlight=False)


def plain(value: object) -> Any:  # noqa: ANN401  JSON
    """Return structs as dicts with every field, also those with their default."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def printable(text: str) -> str:
    """Return a text with its control characters replaced: names come from servers, and terminals obey them."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    )


def _safe(line: str | Text) -> Text:
    """Return lines of text without other control characters."""
    text = line if isinstance(line, Text) else Text(line)
    text.plain = "\n".join(map(printable, text.plain.split("\n")))
    return text


def age(time: str, *, now: float) -> str:
    """Return how long ago a time was, as kubectl does; empty if it is not a time."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return ""
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = max(0, int(now - then.timestamp()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def joined(parts: Iterable[str]) -> str:
    """Return a comma-separated list, or a dash if it is empty."""
    return ", ".join(filter(None, parts)) or "-"
