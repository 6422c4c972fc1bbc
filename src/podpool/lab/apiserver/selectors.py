"""Label and field selectors, as lists and watches take them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from podpool.lab.apiserver.registry import Served
from podpool.lab.apiserver.status_errors import bad_request

Object = Mapping[str, Any]
Selects = Callable[[Object], bool]

_KEY = r"[A-Za-z0-9./_-]+"
_VALUE = r"[A-Za-z0-9._-]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")  # none inside brackets
_FIELD = re.compile(r"([A-Za-z.]+)(==|=|!=)([^,=]*)")


def everything(_: Object) -> bool:
    """Select all."""
    return True


def selector(served: Served, labels: str, fields: str) -> Selects:
    """Read both selectors of a request."""
    rules = [_label(each.strip()) for each in _COMMA.split(labels) if each.strip()]
    rules += [_field(served, each.strip()) for each in fields.split(",") if each.strip()]
    if not rules:
        return everything
    return lambda obj: all(rule(obj) for rule in rules)


def _label(text: str) -> Selects:
    if found := _SET.fullmatch(text):
        key, sign, listed = found.groups()
        values = frozenset(each.strip() for each in listed.split(","))
        return _in(key, values) if sign == "in" else _not_in(key, values)
    if found := _EQUAL.fullmatch(text):
        key, sign, value = found.groups()
        return _not_in(key, frozenset({value})) if sign == "!=" else _in(key, frozenset({value}))
    if found := _EXISTS.fullmatch(text):
        absent, key = found.groups()
        return lambda obj: (key in _labels(obj)) is not bool(absent)
    raise bad_request(f"unable to parse requirement: {text}")


def _in(key: str, values: frozenset[str]) -> Selects:
    return lambda obj: _labels(obj).get(key) in values


def _not_in(key: str, values: frozenset[str]) -> Selects:
    return lambda obj: _labels(obj).get(key) not in values


def _labels(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _field(served: Served, text: str) -> Selects:
    found = _FIELD.fullmatch(text)
    if not found:
        raise bad_request(f"invalid field selector: {text}")
    path, sign, wanted = found.groups()
    if path not in served.fields:
        raise bad_request(f"field label not supported: {path}")
    steps = path.split(".")
    return lambda obj: (_text(obj, steps) == wanted) is (sign != "!=")


def _text(obj: Object, steps: list[str]) -> str:
    value: Any = obj
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
