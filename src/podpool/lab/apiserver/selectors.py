"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from podpool.lab.apiserver.registry import ApiResource, Object
from podpool.lab.apiserver.status_errors import bad_request

Selector = Callable[[Object], bool]

_KEY = r"[A-Za-z0-9./_-]+"
_VALUE = r"[A-Za-z0-9._-]*"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")  # not inside parentheses
_FIELD = re.compile(r"([A-Za-z.]+)(==|=|!=)([^,=]*)")


def match_all(_: Object) -> bool:
    """Match every object."""
    return True


def parse_selectors(resource: ApiResource, labels: str, fields: str) -> Selector:
    """Parse both selectors of a request."""
    requirements = [_label(each.strip()) for each in _COMMA.split(labels) if each.strip()]
    requirements += [_field(resource, each.strip()) for each in fields.split(",") if each.strip()]
    if len(requirements) < 2:
        return requirements[0] if requirements else match_all
    return lambda obj: all(matches(obj) for matches in requirements)


def _label(text: str) -> Selector:
    if found := _SET.fullmatch(text):
        key, operator, listed = found.groups()
        values = frozenset(each.strip() for each in listed.split(","))
        return _in(key, values) if operator == "in" else _not_in(key, values)
    if found := _EQUAL.fullmatch(text):
        key, operator, value = found.groups()
        return _not_in(key, frozenset({value})) if operator == "!=" else _in(key, frozenset({value}))
    if found := _EXISTS.fullmatch(text):
        absent, key = found.groups()
        return lambda obj: (key in _labels(obj)) is not bool(absent)
    raise bad_request(f"unable to parse requirement: {text}")


def _in(key: str, values: frozenset[str]) -> Selector:
    return lambda obj: _labels(obj).get(key) in values


def _not_in(key: str, values: frozenset[str]) -> Selector:
    return lambda obj: _labels(obj).get(key) not in values


def _labels(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _field(resource: ApiResource, text: str) -> Selector:
    found = _FIELD.fullmatch(text)
    if not found:
        raise bad_request(f"invalid field selector: {text}")
    path, operator, wanted = found.groups()
    if path not in resource.selectable_fields:
        raise bad_request(f"field label not supported: {path}")
    if (path, operator != "!=") == ("metadata.name", True):  # each write is matched with the watches of all nodes
        return lambda obj: bool(obj["metadata"].get("name") == wanted)
    steps = path.split(".")
    return lambda obj: (_text(obj, steps) == wanted) is (operator != "!=")


def _text(obj: Object, steps: list[str]) -> str:
    value: Any = obj
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
