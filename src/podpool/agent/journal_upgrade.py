"""Reads records of earlier formats in the present one: format 1, and files of development versions without a number.

No former name of a field is a present name of another one in the same struct, so one table reads every format, also a
file that two versions wrote. A record or a field that is in no format is refused. What a format lacks is set to what is
safe:

| formats | lack | then |
|---|---|---|
| 3adcea5 to 2c68e07 | lost grants | after a forced cooldown any grant may be lost, as after damage |
| 3adcea5 to 52c6528 | `incomplete` | the same, if no grant is known to be lost |
| 2c68e07, 4844de4 | `recovering` | a slice whose cooldown was forced is recovered |
| all up to 1 | an assignment of NodeSlices | a slice, known by its Lease, is suspended: Pods keep their addresses |
| 2c68e07 | a confirmation of the Node alone, with an NC | slices are fenced until the next one |
| 3adcea5 to 3ccb41b | `version` of a grant | that of its network container: the underlay has to program it |
| 3adcea5 to 3ccb41b | `prefix`, `gateway` | those of the network container, or a host route |
| 2c68e07, 4844de4 | address and boot of a shared-range entry | none, as before: the IPPool has them |

The first three apply to every file without checksums of lengths, of whichever version; the others to what is absent.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from podpool.agent.network_container import interface_of
from podpool.agent.records import GrantAssignment, PoolGrant, Snapshot
from podpool.api.azure import NetworkContainer
from podpool.core.errors import InvalidInput

TAG, FORMER_TAG = "type", "is"
FORMER_TAGS: Mapping[str, str] = {
    "adopted": "nc-adopted",
    "confirmed": "node-confirmed",
    "accepted": "nc-accepted",
    "parted": "nc-removed",
    "programmed": "nc-programmed",
    "released": "unassigned",
    "named": "release-pending",
    "doubted": "cooldown-forced",
    "recalled": "lost-grants-cleared",
    "slice-taken": "slice-acquired",
    "slice-given": "slice-assigned",
    "slice-returned": "slice-unassigned",
    "slice-settled": "slice-cooled-down",
    "slice-forgotten": "slice-removed",
    "slice-recalled": "slice-recovered",
    "slice-signed": "slice-suspended",
    "slice-lease-signed": "slice-suspended",
    "slice-acknowledged": "slice-suspended",
    "slice-ranged": "slice-range-changed",
}
FORMER_LINES: Mapping[str, tuple[str, str]] = {
    "all": ("shared-snapshot", "allocations"),
    "kept": ("shared-allocated", "allocation"),
    "over": ("shared-released", "attachment"),
}
"""The only field of a line of the shared-range log: tag and field of its record."""
FORMER_FIELDS: Mapping[str, Mapping[str, str]] = {
    "Attachment": {"container_id": "containerID"},
    "PoolGrant": {"doubted": "use_assumed", "container": "nc"},
    "GrantAssignment": {"owner": "attachment", "dropped": "revoked"},
    "NCAdopted": {"container": "nc", "suspect": "incomplete"},
    "NCAccepted": {"container": "nc"},
    "NCRemoved": {"container": "nc"},
    "Assigned": {"owner": "attachment"},
    "CooldownForced": {"forgotten": "lost"},
    "SliceHolder": {"owner": "attachment", "found": "inferred"},
    "SliceAddress": {"lease": "assignment"},
    "SliceAcquired": {
        "lease": "assignment",
        "found": "holders",
        "doubted": "force_cooldown",
        "unsure": "recovering",
    },
    "SliceClosed": {"lease": "assignment"},
    "SliceRemoved": {"lease": "assignment"},
    "SliceRecovered": {"lease": "assignment"},
    "SliceSuspended": {"lease": "assignment"},
    "SliceRangeChanged": {"lease": "assignment"},
    "SliceAssigned": {"tenant": "holder", "slots": "addresses"},
    "SliceUnassigned": {"slots": "addresses"},
    "SliceCooledDown": {"slots": "addresses"},
    "PastUse": {"tenant": "holder"},
    "SliceSnapshot": {
        "lease": "assignment",
        "unsure": "recovering",
        "doubted_at": "cooldown_forced_at",
        "held": "assigned",
    },
    "Snapshot": {
        "suspect": "incomplete",
        "doubted_at": "cooldown_forced_at",
        "adopted": "adopted_nc",
        "closed": "closed_ncs",
        "container": "nc",
        "beside": "additional_ncs",
        "fresh": "unused",
        "held": "assigned",
        "named": "pending_release",
        "gone": "departed",
        "left_out": "unusable",
        "forgotten": "lost",
    },
    "SharedAllocation": {"sandbox": "attachment", "leaving": "releasing"},
}
"""Former names of fields, by struct."""
DROPPED_FIELDS: Mapping[str, frozenset[str]] = {"SliceSnapshot": frozenset({"acknowledged", "signed"})}
"""Former fields without a present one, by struct."""
UNKNOWN: Mapping[str, tuple[tuple[str, str, str, bool], ...]] = {
    "CooldownForced": (("at", "lost", "incomplete", True),),
    "Snapshot": (("cooldown_forced_at", "lost", "incomplete", True),),
    "SliceAcquired": (("force_cooldown", "recovering", "recovering", True),),
    "SliceSnapshot": (("cooldown_forced_at", "recovering", "recovering", True),),
}
"""In files without checksums of lengths, by struct: with the first field and without the second, the third is set."""


class FormerRecords:
    """Upgrades records to a union of tagged structs."""

    def __init__(self, record: Any) -> None:  # noqa: ANN401  a union is not a type
        self._by_tag = {each.__struct_config__.tag: each for each in get_args(record)}

    def upgrade(self, record: Mapping[str, Any], *, unchecked: bool) -> Any:  # noqa: ANN401  of the union
        """Return a decoded record as a struct; `unchecked`: of a file without checksums of lengths.

        Raises `msgspec.ValidationError`.
        """
        fields = dict(record)
        former = fields.pop(FORMER_TAG, None) or fields.pop(TAG, None)
        tag = FORMER_TAGS.get(str(former), str(former))
        if former is None and len(fields) == 1 and FORMER_LINES.keys() >= fields.keys():
            [(line, value)] = fields.items()
            tag, name = FORMER_LINES[line]
            fields = {name: value}
        if tag not in self._by_tag:
            raise msgspec.ValidationError(f"no format has the tag {tag}")
        upgraded = msgspec.convert(_renamed(fields, self._by_tag[tag], unchecked=unchecked), self._by_tag[tag])
        return _completed(upgraded) if isinstance(upgraded, Snapshot) else upgraded


def _renamed(value: Any, kind: Any, *, unchecked: bool) -> Any:  # noqa: ANN401  JSON of any type
    """Return JSON of a type with the present names."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _renamed_struct(value, kind, unchecked=unchecked)
    item, of_key = get_args(kind)[:2] or (None, None)
    if isinstance(value, list):
        return [_renamed(each, item, unchecked=unchecked) for each in value]
    if isinstance(value, dict):
        return {key: _renamed(each, of_key, unchecked=unchecked) for key, each in value.items()}
    return value


def _renamed_struct(value: dict[str, Any], kind: type[msgspec.Struct], *, unchecked: bool) -> dict[str, Any]:
    names, dropped = FORMER_FIELDS.get(kind.__name__, {}), DROPPED_FIELDS.get(kind.__name__, frozenset())
    value = {name: each for name, each in value.items() if name not in dropped}
    types = _field_types(kind)
    fields = {names.get(name, name): each for name, each in value.items()}
    if not fields.keys() <= types.keys() or len(fields) < len(value):
        raise msgspec.ValidationError(f"no format has {kind.__name__} with the fields {', '.join(value)}")
    for present, absent, name, safe in UNKNOWN.get(kind.__name__, ()) if unchecked else ():
        if present in fields and absent not in fields:
            fields[name] = safe
    return {name: _renamed(each, types[name], unchecked=unchecked) for name, each in fields.items()}


@cache
def _field_types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {each.encode_name: each.type for each in msgspec.structs.fields(kind)}


def _completed(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which each grant has a version, and each assignment an interface."""
    ncs = {each.id: each for each in snapshot.additional_ncs} | ({"": snapshot.nc} if snapshot.nc else {})

    def grants(of: Iterable[PoolGrant]) -> tuple[PoolGrant, ...]:
        return tuple(_with_version(each, ncs.get(each.nc)) for each in of)

    return msgspec.structs.replace(
        snapshot,
        unused=grants(snapshot.unused),
        used=grants(snapshot.used),
        pending_release=grants(snapshot.pending_release),
        assigned=tuple(_with_interface(each, ncs.get(each.grant.nc)) for each in snapshot.assigned),
    )


def _with_version(grant: PoolGrant, nc: NetworkContainer | None) -> PoolGrant:
    return msgspec.structs.replace(grant, version=grant.version or (nc.version if nc else 0))


def _with_interface(assignment: GrantAssignment, nc: NetworkContainer | None) -> GrantAssignment:
    prefix, gateway = assignment.prefix, assignment.gateway
    if not prefix:
        try:
            prefix, gateway = interface_of(nc, assignment.grant.address)
        except InvalidInput:
            prefix = assignment.grant.nc_family[1].bits
    grant = _with_version(assignment.grant, nc)
    return msgspec.structs.replace(assignment, grant=grant, prefix=prefix, gateway=gateway)
