"""Merge patches (RFC 7396) and JSON patches (RFC 6902), on values that are never changed in place."""

from collections.abc import Mapping, Sequence
from typing import Any

from podpool.core.errors import PodpoolError

MAX_OPERATIONS = 10_000
"""As in kube-apiserver."""


class PatchError(PodpoolError):
    """A patch that does not fit the object; nothing of it was applied."""


def merge_patch(value: Any, patch: Any) -> Any:  # noqa: ANN401  JSON
    """Return the result of a merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), part)
    return result


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401  JSON
    """Return the result of a JSON patch; all operations apply or none."""
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"{len(operations)} operations are more than {MAX_OPERATIONS}")
    for operation in operations:
        value = _apply(value, operation)
    return value


def _apply(value: Any, operation: Mapping[str, Any]) -> Any:  # noqa: ANN401  JSON
    try:
        kind, path = operation["op"], _parse_pointer(operation["path"])
        if kind == "test":
            if _find(value, path) != operation["value"]:
                raise PatchError(f"testing value {operation['path']} failed")
            return value
        if kind == "remove":
            return _remove(value, path)
        if kind == "move":
            source = _parse_pointer(operation["from"])
            return _put(_remove(value, source), path, _at(value, source), insert=True)
        if kind == "copy":
            return _put(value, path, _at(value, _parse_pointer(operation["from"])), insert=True)
        if kind in {"add", "replace"}:  # replacing an absent field adds it, as in kube-apiserver
            return _put(value, path, operation["value"], insert=kind == "add")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PatchError(f"{operation.get('op')} {operation.get('path')} does not fit the object: {error}") from error
    raise PatchError(f"no such operation: {kind}")


def _parse_pointer(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"not a JSON pointer: {pointer}")
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]


def _at(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    for token in path:
        value = value[_index(token)] if isinstance(value, list) else value[token]
    return value


def _find(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    """Return the value to test: an absent field is null, as in kube-apiserver."""
    parent = _at(value, path[:-1])
    return parent.get(path[-1]) if path and isinstance(parent, Mapping) else _at(value, path)


def _put(value: Any, path: list[str], new: Any, *, insert: bool) -> Any:  # noqa: ANN401  JSON
    if not path:
        return new
    token, tail = path[0], path[1:]
    if not isinstance(value, list):
        return {**value, token: _put(value[token], tail, new, insert=insert) if tail else new}
    if tail:
        index = _index(token)
        return [*value[:index], _put(value[index], tail, new, insert=insert), *value[index + 1 :]]
    index = len(value) if token == "-" else _index(token)  # noqa: S105  the end of a list
    if index > len(value) - (not insert):
        raise IndexError(token)
    return [*value[:index], new, *value[index if insert else index + 1 :]]


def _remove(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    token, tail = path[0], path[1:]
    if isinstance(value, list):
        index = _index(token)
        part = value[index]
        return [*value[:index], *([_remove(part, tail)] if tail else []), *value[index + 1 :]]
    part = value[token]
    if tail:
        return {**value, token: _remove(part, tail)}
    return {key: each for key, each in value.items() if key != token}


def _index(token: str) -> int:
    if not token.isdecimal():
        raise ValueError(f"not an index: {token}")
    return int(token)
