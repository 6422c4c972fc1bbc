"""Objects as rows, the way `kubectl get` shows them: columns of the kinds that are built in, and of definitions."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from podpool.lab.apiserver.printers import INVALID, UNKNOWN, event_cells, node_cells, pod_cells
from podpool.lab.apiserver.registry import DEFINITIONS, EVENTS, NAMESPACES, PODS, Id, Served
from podpool.lab.apiserver.selectors import Object

_STEP = re.compile(r"\.?(?:([\w-]+)|\['([^']+)'\]|\[(\*|\d+)\])")


class Column(msgspec.Struct, frozen=True):
    """One column of a built-in kind."""

    name: str
    type: str = "string"
    wide: bool = False


NAME, AGE = Column("Name"), Column("Age")
Cells = Callable[[Object, Callable[[str | None], str]], Sequence[Any]]
_BUILTIN: Mapping[Id, tuple[tuple[Column, ...], Cells]] = {
    ("", "nodes"): (
        (
            *(NAME, Column("Status"), Column("Roles"), AGE, Column("Version")),
            *(Column("Internal-IP", wide=True), Column("External-IP", wide=True), Column("OS-Image", wide=True)),
            *(Column("Kernel-Version", wide=True), Column("Container-Runtime", wide=True)),
        ),
        node_cells,
    ),
    PODS.id: (
        (
            *(NAME, Column("Ready"), Column("Status"), Column("Restarts"), AGE, Column("IP", wide=True)),
            *(Column("Node", wide=True), Column("Nominated Node", wide=True), Column("Readiness Gates", wide=True)),
        ),
        pod_cells,
    ),
    EVENTS.id: (
        (
            *(Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"), Column("Subobject", wide=True)),
            *(Column("Source", wide=True), Column("Message"), Column("First Seen", wide=True)),
            *(Column("Count", wide=True), Column("Name", wide=True)),
        ),
        event_cells,
    ),
    NAMESPACES.id: (
        (NAME, Column("Status"), AGE),
        lambda obj, age: (_name(obj), obj.get("status", {}).get("phase", ""), age(_born(obj))),
    ),
    ("", "configmaps"): (
        (NAME, Column("Data", "integer"), AGE),
        lambda obj, age: (_name(obj), len(obj.get("data") or ()), age(_born(obj))),
    ),
    ("coordination.k8s.io", "leases"): (
        (NAME, Column("Holder"), AGE),
        lambda obj, age: (_name(obj), obj.get("spec", {}).get("holderIdentity") or "", age(_born(obj))),
    ),
    DEFINITIONS.id: (
        (NAME, Column("Created At", "date")),
        lambda obj, _: (_name(obj), _born(obj)),
    ),
}
_AGE_ONLY = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


class Table:
    """The columns of a kind, and how a row of it is written."""

    def __init__(self, served: Served, *, now: Callable[[], float]) -> None:
        self._served = served
        self._now = now

    @property
    def columns(self) -> list[dict[str, Any]]:
        """Describe the columns."""
        if self._served.custom:
            wanted = self._served.columns or _AGE_ONLY
            return [_described("Name", "string", wide=False), *(_of_definition(each) for each in wanted)]
        columns, _ = _BUILTIN[self._served.id]
        return [_described(each.name, each.type, wide=each.wide) for each in columns]

    def cells(self, obj: Object) -> list[Any]:
        """Write an object's row."""
        if self._served.custom:
            wanted = self._served.columns or _AGE_ONLY
            return [_name(obj), *(self._cell(each, obj) for each in wanted)]
        _, cells = _BUILTIN[self._served.id]
        try:
            return list(cells(obj, self.age))
        except (AttributeError, LookupError, TypeError):
            # nobody looks at the fields of these kinds when they are written: one odd object must not hide the others
            return [_name(obj) if each["name"] == "Name" else INVALID for each in self.columns]

    def age(self, since: str | None) -> str:
        """Tell how long ago something was."""
        if not since:
            return UNKNOWN
        try:
            return human(self._now() - datetime.fromisoformat(since).timestamp())
        except (ValueError, OverflowError):
            return INVALID

    def _cell(self, column: Mapping[str, Any], obj: Object) -> Any:  # noqa: ANN401  JSON
        found = next(iter(found_at(obj, column["jsonPath"])), None)
        if found is None:
            return None
        if column["type"] == "date":
            return self.age(str(found))
        if column["type"] == "string":
            return found if isinstance(found, str) else msgspec.json.encode(found).decode()
        return int(found) if column["type"] == "integer" and isinstance(found, float) else found


def found_at(value: Any, path: str) -> Iterator[Any]:  # noqa: ANN401  JSON
    """Find what a simple JSON path names: fields, indexes, and `[*]` for each of a list."""
    step = _STEP.match(path)
    if not step:
        yield value
        return
    field, quoted, index = step.groups()
    rest = path[step.end() :]
    if index and isinstance(value, list):
        chosen = value if index == "*" else value[int(index) : int(index) + 1]
        for each in chosen:
            yield from found_at(each, rest)
    elif not index and isinstance(value, Mapping) and (field or quoted) in value:
        yield from found_at(value[field or quoted], rest)


def human(seconds: float) -> str:
    """Write a time in one unit, or in two where the larger is still small."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else INVALID
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 180:
        return _two(minutes, "m", whole % 60 if minutes < 10 else 0, "s")
    if hours < 48:
        return _two(hours, "h", minutes % 60 if hours < 8 else 0, "m")
    if days < 730:
        return _two(days, "d", hours % 24 if days < 8 else 0, "h")
    return _two(days // 365, "y", days % 365 if days < 2920 else 0, "d")


def _two(large: int, unit: str, small: int, of: str) -> str:
    return f"{large}{unit}{small}{of}" if small else f"{large}{unit}"


def _described(name: str, kind: str, *, wide: bool, text: str = "") -> dict[str, Any]:
    shape = "name" if name == "Name" and not wide else ""
    return {"name": name, "type": kind, "format": shape, "description": text or name, "priority": int(wide)}


def _of_definition(column: Mapping[str, Any]) -> dict[str, Any]:
    described = _described(column["name"], column["type"], wide=False, text=column.get("description", ""))
    return {**described, "format": column.get("format", ""), "priority": column.get("priority", 0)}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _born(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))
