"""Strategic merge patches for Kubernetes' own kinds: lists of objects merge by a key, as kubectl relies on.

Which lists merge, and by which field, is theirs to say; every other list is replaced as a whole. Directives as kubectl
sends them: `$patch` (delete, replace), `$retainKeys`, `$setElementOrder/LIST`, `$deleteFromPrimitiveList/LIST`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from podpool.lab.apiserver.patches import PatchFailed

PLAIN = ""
"""Stands for a key where the list is one of words: they are joined."""
_CONTAINERS = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_KEYS: Mapping[str, str] = {
    "metadata.finalizers": PLAIN,
    "metadata.ownerReferences": "uid",
    "status.conditions": "type",
    "status.addresses": "type",
    "status.podIPs": "ip",
    "status.hostIPs": "ip",
    "spec.podCIDRs": PLAIN,
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.resourceClaims": "name",
    **{f"spec.{each}": "name" for each in ("containers", "initContainers", "ephemeralContainers")},
    **{
        f"spec.{each}.{field}": key
        for each in ("containers", "initContainers", "ephemeralContainers")
        for field, key in _CONTAINERS.items()
    },
}
_ORDER, _DELETE, _RETAIN, _PATCH = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def strategically_merged(value: Any, patch: Any, path: str = "") -> Any:  # noqa: ANN401  JSON
    """Apply a patch; null removes, objects merge, lists merge where they have a key."""
    if not isinstance(patch, Mapping):
        return patch
    if _PATCH in patch and patch[_PATCH] != "merge":
        return _directed(patch)
    old = dict(value) if isinstance(value, Mapping) else {}
    if _RETAIN in patch:
        old = {each: part for each, part in old.items() if each in patch[_RETAIN]}
    for field, unwanted in _told(patch, _DELETE).items():
        old[field] = [each for each in old.get(field) or () if each not in unwanted]
    orders = _told(patch, _ORDER)
    for field in dict.fromkeys([*(each for each in patch if not each.startswith("$")), *orders]):
        place = f"{path}.{field}".lstrip(".")
        part = patch.get(field, []) if field in orders else patch[field]
        if part is None:
            old.pop(field, None)
        elif isinstance(part, list) and place in _KEYS:
            old[field] = _joined(old.get(field) or [], part, place, orders.get(field))
        else:
            old[field] = strategically_merged(old.get(field), part, place)
    return old


def _told(patch: Mapping[str, Any], directive: str) -> dict[str, Sequence[Any]]:
    """Find the lists that a directive is about, each with what it says."""
    return {each.removeprefix(directive): part for each, part in patch.items() if each.startswith(directive)}


def _directed(patch: Mapping[str, Any]) -> dict[str, Any]:
    match patch[_PATCH]:
        case "replace":
            return {each: part for each, part in patch.items() if each != _PATCH}
        case "delete":
            return {}
        case other:
            raise PatchFailed(f"no such directive: {_PATCH}: {other}")


def _joined(old: Sequence[Any], patch: Sequence[Any], path: str, order: Sequence[Any] | None) -> list[Any]:
    """Merge a list by its key; what the patch names comes in its own order, before what was not there yet."""
    if any(isinstance(each, Mapping) and each.get(_PATCH) == "replace" for each in patch):
        return [each for each in patch if _PATCH not in each]
    found = {_name(each, path): each for each in old}
    places = {name: place for place, name in enumerate(found)}
    for each in patch:
        name = _name(each, path)
        if isinstance(each, Mapping) and each.get(_PATCH) == "delete":
            found.pop(name, None)
        else:
            found[name] = strategically_merged(found.get(name), each, path)
    named = [name for name in (_name(each, path) for each in (patch if order is None else order)) if name in found]
    return [found[each] for each in _merged([each for each in found if each not in named], named, places)]


def _merged(others: Sequence[Any], named: Sequence[Any], places: Mapping[Any, int]) -> list[Any]:
    """Join two orders: others keep their place before those named that stood behind them."""
    left, right, result = deque(others), deque(named), list[Any]()
    while left and right:
        new = right[0] not in places
        result.append(right.popleft() if new or places[right[0]] < places.get(left[0], 0) else left.popleft())
    return [*result, *left, *right]


def _name(part: Any, path: str) -> Any:  # noqa: ANN401  JSON
    key = _KEYS[path]
    if key == PLAIN:
        return part
    if not isinstance(part, Mapping) or key not in part:
        raise PatchFailed(f"{path}: an element has no {key}, by which this list is merged")
    return part[key]
