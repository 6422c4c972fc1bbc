"""Names that appear in the source only where they are used: found in the syntax tree, whatever the module is called."""

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import podpool

ROOT = Path(podpool.__file__).parent


def modules(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Parse every module that contains all of these words; yields its name and its tree."""
    for path, text in _texts().items():
        if all(word in text for word in words):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), _parsed(path)


@cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(_texts()[path])


def names_under(prefix: str) -> list[str]:
    """Find the names that begin with a prefix in string constants, but not in docstrings."""
    pattern = rf"\b{re.escape(prefix)}[\w-]+"
    found: set[str] = set()
    for _, tree in modules(prefix):
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.update(re.findall(pattern, node.value))
    return sorted(found)


def keyword_values(wanted: str, *, beside: Iterable[str]) -> list[str]:
    """Find the strings that are given as `wanted` in calls, or in dicts, that have the others beside it."""
    names = {wanted, *beside}
    found: set[str] = set()
    for module, tree in modules(*names):
        for node in ast.walk(tree):
            given = _given(node)
            if names <= given.keys():
                found.update(_strings(given[wanted], module))
    return sorted(found)


def first_arguments(*methods: str) -> list[str]:
    """Find the strings that are the first argument of calls of these methods."""
    return sorted(
        {
            node.args[0].value
            for method in methods
            for _, tree in modules(f".{method}(")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        }
    )


def assigned_strings(attribute: str) -> list[str]:
    """Find the strings in what is assigned to an attribute of this name."""
    return sorted(
        {
            part.value
            for _, tree in modules(f".{attribute} = ")
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and any(isinstance(each, ast.Attribute) and each.attr == attribute for each in node.targets)
            for part in ast.walk(node.value)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
    )


def keys_of(attribute: str) -> list[str]:
    """Find the keys of dicts under which an attribute of this name is told."""
    return sorted(
        {
            key.value
            for _, tree in modules(f".{attribute}")
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(value, ast.Attribute) and value.attr == attribute
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    )


def keys_beside(*keys: str) -> list[str]:
    """Find the keys of the dict that has these."""
    found = [
        sorted(_given(node))
        for _, tree in modules(*(f'"{key}": ' for key in keys))
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict) and set(keys) <= _given(node).keys()
    ]
    assert 1 == len(found), f"{len(found)} dicts have {keys}"
    return found[0]


def _given(node: ast.AST) -> dict[str, ast.expr]:
    """Read what a call or a dict gives by name."""
    if isinstance(node, ast.Call):
        return {each.arg: each.value for each in node.keywords if each.arg}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {
            key.value: value for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    return {}


def _strings(value: ast.expr, module: str) -> Iterator[str]:
    """Find the strings that an expression may be: a constant, a constant's name, or either of two."""
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _strings(body, module)
            yield from _strings(other, module)
        case ast.Name(id=name) if name.isupper():
            text = getattr(_imported(module), name)
            assert isinstance(text, str)
            yield text


def _imported(module: str) -> ModuleType:
    return importlib.import_module(module)
