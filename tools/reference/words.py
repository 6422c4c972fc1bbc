"""How reference pages are written: tables, and the words that stand below a field in the source."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def code(value: object) -> str:
    """Write something as it is typed; nothing stays nothing."""
    return f"`{value}`" if str(value) else ""


def told_in(struct: type) -> dict[str, str]:
    """Read what stands below each field of a struct, and of those that it is made from."""
    told: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each.__module__.startswith("podpool."):
            told |= told_below(ast.parse(textwrap.dedent(inspect.getsource(each))).body[0])
    return told


def told_below(where: ast.AST) -> dict[str, str]:
    """Read what stands below each name that a class or a module gives a value or a type."""
    told: dict[str, str] = {}
    body: list[ast.stmt] = getattr(where, "body", [])
    for field, words in zip(body, [*body[1:], None], strict=True):
        name = _named(field)
        if name is not None:
            told[name] = _text(words)
    return told


def _named(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def _text(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(words))):
            return " ".join(words.split())
    return ""


def _cell(text: Any) -> str:  # noqa: ANN401  whatever can be written
    return str(text).replace("|", r"\|").replace("\n", " ").strip()
