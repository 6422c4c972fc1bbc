"""Strategic merge patches of built-in kinds: some lists merge by a key, every other list is replaced.

Supported directives, as kubectl sends them: `$patch` (delete, replace), `$retainKeys`, `$setElementOrder/LIST`,
`$deleteFromPrimitiveList/LIST`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from podpool.lab.apiserver.patches import PatchError

PRIMITIVE = ""
"""In place of a merge key: a list of strings, which is merged as a set."""
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_CONTAINERS = {"ports": "containerPort", "env": "name", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}
_MERGE_KEYS: Mapping[str, str] = {
    "metadata.finalizers": PRIMITIVE,
    "metadata.ownerReferences": "uid",
    "status.conditions": "type",
    "status.addresses": "type",
    "status.podIPs": "ip",
    "status.hostIPs": "ip",
    "spec.podCIDRs": PRIMITIVE,
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.resourceClaims": "name",
    **{f"spec.{each}": "name" for each in _CONTAINER_LISTS},
    **{f"spec.{each}.{field}": key for each in _CONTAINER_LISTS for field, key in _CONTAINERS.items()},
}
_ORDER, _DELETE, _RETAIN, _PATCH = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def strategic_merge(value: Any, patch: Any, path: str = "") -> Any:  # noqa: ANN401  JSON
    """Return the result of a patch: null removes, objects merge, lists merge where they have a key."""
    if not isinstance(patch, Mapping):
        return patch
    if _PATCH in patch and patch[_PATCH] != "merge":
        return _apply_directive(patch)
    old = dict(value) if isinstance(value, Mapping) else {}
    if _RETAIN in patch:
        old = {each: part for each, part in old.items() if each in patch[_RETAIN]}
    for field, unwanted in _directives(patch, _DELETE).items():
        old[field] = [each for each in old.get(field) or () if each not in unwanted]
    orders = _directives(patch, _ORDER)
    for field in dict.fromkeys([*(each for each in patch if not each.startswith("$")), *orders]):
        field_path = f"{path}.{field}".lstrip(".")
        part = patch.get(field, []) if field in orders else patch[field]
        if part is None:
            old.pop(field, None)
        elif isinstance(part, list) and field_path in _MERGE_KEYS:
            old[field] = _merge_list(old.get(field) or [], part, field_path, orders.get(field))
        else:
            old[field] = strategic_merge(old.get(field), part, field_path)
    return old


def _directives(patch: Mapping[str, Any], directive: str) -> dict[str, Sequence[Any]]:
    """Return the values of a directive by the list that each is about."""
    return {each.removeprefix(directive): part for each, part in patch.items() if each.startswith(directive)}


def _apply_directive(patch: Mapping[str, Any]) -> dict[str, Any]:
    match patch[_PATCH]:
        case "replace":
            return {each: part for each, part in patch.items() if each != _PATCH}
        case "delete":
            return {}
        case other:
            raise PatchError(f"unknown directive: {_PATCH}: {other}")


def _merge_list(old: Sequence[Any], patch: Sequence[Any], path: str, order: Sequence[Any] | None) -> list[Any]:
    """Merge a list by its key; elements of the patch keep the patch's order, new ones come first."""
    if any(isinstance(each, Mapping) and each.get(_PATCH) == "replace" for each in patch):
        return [each for each in patch if _PATCH not in each]
    found = {_element_key(each, path): each for each in old}
    positions = {name: position for position, name in enumerate(found)}
    for each in patch:
        name = _element_key(each, path)
        if isinstance(each, Mapping) and each.get(_PATCH) == "delete":
            found.pop(name, None)
        else:
            found[name] = strategic_merge(found.get(name), each, path)
    names = (_element_key(each, path) for each in (patch if order is None else order))
    named = [name for name in names if name in found]
    return [found[each] for each in _merge_order([each for each in found if each not in named], named, positions)]


def _merge_order(others: Sequence[Any], named: Sequence[Any], positions: Mapping[Any, int]) -> list[Any]:
    """Merge two orders: the others stay before those named that followed them."""
    left, right, result = deque(others), deque(named), list[Any]()
    while left and right:
        new = right[0] not in positions
        result.append(right.popleft() if new or positions[right[0]] < positions.get(left[0], 0) else left.popleft())
    return [*result, *left, *right]


def _element_key(part: Any, path: str) -> Any:  # noqa: ANN401  JSON
    key = _MERGE_KEYS[path]
    if key == PRIMITIVE:
        return part
    if not isinstance(part, Mapping) or key not in part:
        raise PatchError(f"{path}: an element has no {key}, the merge key of this list")
    return part[key]
