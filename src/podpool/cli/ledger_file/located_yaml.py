"""YAML with the line of each value, so that an error names it. Pure.

Only plain data: no anchors, which could make a small file huge, no tags, and no key twice.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from podpool.core.errors import InvalidInput

MAX_BYTES = 4 << 20
_TYPES = {"map": dict, "seq": list, "str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


class Located(msgspec.Struct, frozen=True):
    """A value, its line, and its place such as `subnets[0].cidr`."""

    value: Any
    line: int
    place: str
    file: str

    def error(self, reason: str) -> InvalidInput:
        """Return an error at this place."""
        value = self.value if not isinstance(self.value, dict | list) else "..."
        return InvalidInput(f"{self.file} line {self.line}, {self.place or 'file'}", value, reason)

    def fields(self, *known: str, required: tuple[str, ...] = ()) -> Mapping[str, "Located"]:
        """Return the fields of a mapping; raises an error for unknown and missing ones."""
        if not isinstance(self.value, dict):
            raise self.error(f"write a mapping with {', '.join(known)}")
        for name, field in self.value.items():
            if name not in known:
                raise field.error(f"unknown field {name!r}; use one of {', '.join(known)}")
        for name in required:
            if name not in self.value:
                raise self.error(f"lacks the field {name!r}")
        return {name: field for name, field in self.value.items() if field.value is not None}

    def items(self) -> Iterator["Located"]:
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.error("write a list")
        yield from self.value

    def text(self) -> str:
        """Return a text; a number is one too."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int | float):
            raise self.error("write a text")
        return str(self.value)

    def boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.error("write true or false")
        return self.value


def read_located(content: bytes, *, file: str) -> Located:
    """Parse a document. Raises `InvalidInput` with the line."""
    if len(content) > MAX_BYTES:
        raise InvalidInput(file, len(content), f"has more than {MAX_BYTES} bytes")
    try:
        text = content.decode()
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                line = event.start_mark.line + 1
                raise InvalidInput(f"{file} line {line}", event.anchor, "anchors and aliases are not allowed")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return _located(node, "", file) if node else Located({}, 1, "", file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{file} line {mark.line + 1}" if mark else file
        raise InvalidInput(where, error.problem or "", "is not YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(file, type(error).__name__, "is not YAML") from None


def _located(node: yaml.Node, place: str, file: str) -> Located:
    line = node.start_mark.line + 1
    kind = node.tag.rpartition(":")[2]
    if kind not in _TYPES and kind != "timestamp":
        raise InvalidInput(f"{file} line {line}", node.tag, "tags are not allowed")
    if isinstance(node, yaml.MappingNode):
        found = dict[str, Located]()
        for key, value in node.value:
            name = str(key.value)
            below = _located(value, f"{place}.{name}" if place else name, file)
            if name in found:
                raise Located(name, key.start_mark.line + 1, below.place, file).error("is given twice")
            found[name] = below
        return Located(found, line, place, file)
    if isinstance(node, yaml.SequenceNode):
        items = [_located(each, f"{place}[{number}]", file) for number, each in enumerate(node.value)]
        return Located(items, line, place, file)
    return Located(_scalar(node, kind), line, place, file)


def _scalar(node: yaml.Node, kind: str) -> object:
    """Return booleans and nulls as such, and all else as it is written: 1_000 is a text, not a number."""
    if kind == "null":
        return None
    return str(node.value).lower() in {"true", "yes", "on"} if kind == "bool" else str(node.value)
