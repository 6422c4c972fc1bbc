"""Objects as table rows, as `kubectl get` shows them: columns of the built-in kinds and of CRDs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from podpool.lab.apiserver.printers import INVALID, UNKNOWN, event_cells, node_cells, pod_cells
from podpool.lab.apiserver.registry import (
    CONFIG_MAPS,
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    ApiResource,
    GroupResource,
    Object,
)

_STEP = re.compile(r"\.?(?:([\w-]+)|\['([^']+)'\]|\[(\*|\d+)\])")


class PrinterColumn(msgspec.Struct, frozen=True):
    """One column of a built-in kind."""

    name: str
    type: str = "string"
    wide: bool = False


def _columns(text: str) -> tuple[PrinterColumn, ...]:
    """Return columns from their names; those in brackets are shown by `-o wide` only."""
    return tuple(PrinterColumn(each.strip("[]"), wide=each.startswith("[")) for each in text.split(", "))


Cells = Callable[[Object, Callable[[str | None], str]], Sequence[Any]]
_NODE = (
    "Name, Status, Roles, Age, Version, [Internal-IP], [External-IP], [OS-Image], [Kernel-Version], [Container-Runtime]"
)
_POD = "Name, Ready, Status, Restarts, Age, [IP], [Node], [Nominated Node], [Readiness Gates]"
_EVENT = "Last Seen, Type, Reason, Object, [Subobject], [Source], Message, [First Seen], [Count], [Name]"
_BUILTIN: Mapping[GroupResource, tuple[tuple[PrinterColumn, ...], Cells]] = {
    NODES.id: (_columns(_NODE), node_cells),
    PODS.id: (_columns(_POD), pod_cells),
    EVENTS.id: (_columns(_EVENT), event_cells),
    NAMESPACES.id: (
        _columns("Name, Status, Age"),
        lambda obj, age: (_name(obj), obj.get("status", {}).get("phase", ""), age(_created(obj))),
    ),
    CONFIG_MAPS.id: (
        (*_columns("Name"), PrinterColumn("Data", "integer"), *_columns("Age")),
        lambda obj, age: (_name(obj), len(obj.get("data") or ()), age(_created(obj))),
    ),
    LEASES.id: (
        _columns("Name, Holder, Age"),
        lambda obj, age: (_name(obj), obj.get("spec", {}).get("holderIdentity") or "", age(_created(obj))),
    ),
    CRDS.id: ((*_columns("Name"), PrinterColumn("Created At", "date")), lambda obj, _: (_name(obj), _created(obj))),
}
_AGE_ONLY = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


class PrinterTable:
    """The columns of a resource, and the cells of its objects."""

    def __init__(self, resource: ApiResource, *, now: Callable[[], float]) -> None:
        self._resource = resource
        self._now = now

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The column definitions."""
        if self._resource.custom:
            wanted = self._resource.printer_columns or _AGE_ONLY
            return [_column("Name", "string", wide=False), *(_crd_column(each) for each in wanted)]
        columns, _ = _BUILTIN[self._resource.id]
        return [_column(each.name, each.type, wide=each.wide) for each in columns]

    def cells(self, obj: Object) -> list[Any]:
        """Return an object's cells."""
        if self._resource.custom:
            wanted = self._resource.printer_columns or _AGE_ONLY
            return [_name(obj), *(self._cell(each, obj) for each in wanted)]
        _, cells = _BUILTIN[self._resource.id]
        try:
            return list(cells(obj, self.age))
        except (AttributeError, LookupError, TypeError):
            # built-in kinds have no schema here: one malformed object must not hide the others
            return [_name(obj) if each["name"] == "Name" else INVALID for each in self.columns]

    def age(self, since: str | None) -> str:
        """Return how long ago a timestamp was."""
        if not since:
            return UNKNOWN
        try:
            return format_duration(self._now() - datetime.fromisoformat(since).timestamp())
        except (ValueError, OverflowError):
            return INVALID

    def _cell(self, column: Mapping[str, Any], obj: Object) -> Any:  # noqa: ANN401  JSON
        found = next(iter(find_json_path(obj, column["jsonPath"])), None)
        if found is None:
            return None
        if column["type"] == "date":
            return self.age(str(found))
        if column["type"] == "string":
            return found if isinstance(found, str) else msgspec.json.encode(found).decode()
        return int(found) if column["type"] == "integer" and isinstance(found, float) else found


def find_json_path(value: Any, path: str) -> Iterator[Any]:  # noqa: ANN401  JSON
    """Yield the values at a simple JSON path: fields, indexes, and `[*]` for all elements."""
    step = _STEP.match(path)
    if not step:
        yield value
        return
    field, quoted, index = step.groups()
    tail = path[step.end() :]
    if index and isinstance(value, list):
        elements = value if index == "*" else value[int(index) : int(index) + 1]
        for each in elements:
            yield from find_json_path(each, tail)
    elif not index and isinstance(value, Mapping) and (field or quoted) in value:
        yield from find_json_path(value[field or quoted], tail)


def format_duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: in one unit, or in two while the larger one is small."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else INVALID
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 180:
        return _units(minutes, "m", whole % 60 if minutes < 10 else 0, "s")
    if hours < 48:
        return _units(hours, "h", minutes % 60 if hours < 8 else 0, "m")
    if days < 730:
        return _units(days, "d", hours % 24 if days < 8 else 0, "h")
    return _units(days // 365, "y", days % 365 if days < 2920 else 0, "d")


def _units(large: int, unit: str, small: int, of: str) -> str:
    return f"{large}{unit}{small}{of}" if small else f"{large}{unit}"


def _column(name: str, kind: str, *, wide: bool, text: str = "") -> dict[str, Any]:
    format_ = "name" if name == "Name" and not wide else ""
    return {"name": name, "type": kind, "format": format_, "description": text or name, "priority": int(wide)}


def _crd_column(column: Mapping[str, Any]) -> dict[str, Any]:
    described = _column(column["name"], column["type"], wide=False, text=column.get("description", ""))
    return {**described, "format": column.get("format", ""), "priority": column.get("priority", 0)}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _created(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))
