"""How an answer is told: in columns for people, or as JSON or YAML with every field for programs.

Colours only on a terminal, and not when `NO_COLOR` or `--no-color` says so. Remarks go to standard error, so that what
goes down a pipe is the answer and nothing else.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from podpool.cli.options import Asked
from podpool.cli.spec import Output

GOOD, BAD, WARNING, HEAD, FAINT = "green", "bold red", "yellow", "bold", "dim"


class Styled(msgspec.Struct, frozen=True):
    """A word with a colour."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


class Sheet(msgspec.Struct, frozen=True):
    """Columns, of which the last `wide` are for `-o wide`."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    wide: int = 0


class Teller:
    """Tells answers as they were asked for."""

    def __init__(self, asked: Asked, *, out: Console | None = None, err: Console | None = None) -> None:
        self.output = asked.output
        plain = asked.no_color or bool(os.environ.get("NO_COLOR"))
        self._out = out or _console(plain=plain)
        self._err = err or _console(plain=plain, stderr=True)

    @property
    def for_people(self) -> bool:
        """Tell whether a person reads it."""
        return self.output in {Output.TABLE, Output.WIDE}

    def answer(self, data: object, *parts: Sheet | str | Text) -> None:
        """Tell all of `data` to a program, or the parts to a person."""
        if self.output is Output.JSON:
            self._line(msgspec.json.format(msgspec.json.encode(plain(data))).decode())
        elif self.output is Output.YAML:
            self._line(msgspec.yaml.encode(plain(data)).decode().rstrip())
        else:
            for part in parts:
                if isinstance(part, Sheet):
                    self._sheet(part)
                else:
                    self._line(part)

    def event(self, data: object, line: Text) -> None:
        """Tell one of many things: JSON in a line, YAML as a document."""
        if self.output is Output.JSON:
            self._line(msgspec.json.encode(plain(data)).decode())
        elif self.output is Output.YAML:
            self._line("---\n" + msgspec.yaml.encode(plain(data)).decode().rstrip())
        else:
            self._line(line)

    def remark(self, words: str) -> None:
        """Say something beside the answer."""
        self._err.print(Text(f"podpool: {words}", style=WARNING), soft_wrap=True)

    def _sheet(self, sheet: Sheet) -> None:
        shown = len(sheet.head) - (0 if self.output is Output.WIDE else sheet.wide)
        rows = [row[:shown] for row in sheet.rows]
        head, *lines = padded(sheet.head[:shown], rows)
        self._line(Text("  ".join(head).rstrip(), style=HEAD))
        for line, row in zip(lines, rows, strict=True):
            styles = [each.style if isinstance(each, Styled) else "" for each in row]
            told = Text("  ").join(Text(word, style=style) for word, style in zip(line, styles, strict=True))
            told.rstrip()
            self._line(told)

    def _line(self, line: str | Text) -> None:
        self._out.print(line if isinstance(line, Text) else Text(line), soft_wrap=True)


def padded(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Bring a head and its rows to the same widths; the last column stays as it is."""
    lines = [list(head), *([str(each) for each in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    widths[-1] = 0
    return [[word.ljust(width) for word, width in zip(line, widths, strict=True)] for line in lines]


def _console(*, plain: bool, stderr: bool = False) -> Console:
    return Console(stderr=stderr, color_system=None if plain else "auto", highlight=False)


def plain(value: object) -> Any:  # noqa: ANN401  JSON
    """Write out every field, also those that are as they always are."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def age(moment: str, *, at: float) -> str:
    """Tell how long ago something was, as kubectl does; nothing when it is not known."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return ""
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = max(0, int(at - then.timestamp()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def joined(parts: Iterable[str]) -> str:
    """Name several things, or a dash for none."""
    return ", ".join(filter(None, parts)) or "-"
