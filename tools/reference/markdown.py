"""Markdown of generated pages: tables, generated sections, and the docstrings below fields in the source."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence

END = "<!-- end -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def code(value: object) -> str:
    """Return a value as inline code; nothing for an empty one."""
    return f"`{value}`" if str(value) else ""


def replace_section(page: str, begin: str, section: str) -> str:
    """Replace the text between the line `begin` and the end marker. Raises ValueError if one is missing."""
    before, marker, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not (marker and end):
        raise ValueError(f"the page has no section that begins with {begin!r} and ends with {END!r}")
    return before + marker + section + end + after


def field_docs(struct: type) -> dict[str, str]:
    """Return the docstring below each field of a struct and of its bases."""
    docs: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each.__module__.startswith("podpool."):
            docs |= assignment_docs(ast.parse(textwrap.dedent(inspect.getsource(each))).body[0])
    return docs


def assignment_docs(node: ast.AST) -> dict[str, str]:
    """Return the docstring below each name that a class or module body assigns or annotates."""
    body: list[ast.stmt] = getattr(node, "body", [])
    names = [_assigned_name(each) for each in body]
    return {name: _docstring(after) for name, after in zip(names, [*body[1:], None], strict=True) if name is not None}


def _assigned_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def _docstring(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _cell(text: str) -> str:
    return str(text).replace("|", r"\|").replace("\n", " ").strip()
