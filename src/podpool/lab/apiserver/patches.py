"""Merge patches (RFC 7396) and JSON patches (RFC 6902), on values that are never changed in place."""

from collections.abc import Mapping, Sequence
from typing import Any

from podpool.core.errors import PodpoolError

MOST_OPERATIONS = 10_000
"""As the API server has it."""


class PatchFailed(PodpoolError):
    """A patch that does not fit the object; none of it was applied."""


def merged(value: Any, patch: Any) -> Any:  # noqa: ANN401  JSON
    """Apply a merge patch: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), part)
    return result


def patched(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401  JSON
    """Apply the operations of a JSON patch one after the other; all or none."""
    if len(operations) > MOST_OPERATIONS:
        raise PatchFailed(f"{len(operations)} operations are more than {MOST_OPERATIONS}")
    for operation in operations:
        value = _applied(value, operation)
    return value


def _applied(value: Any, operation: Mapping[str, Any]) -> Any:  # noqa: ANN401  JSON
    try:
        kind, path = operation["op"], _tokens(operation["path"])
        if kind == "test":
            if _found(value, path) != operation["value"]:
                raise PatchFailed(f"testing value {operation['path']} failed")
            return value
        if kind == "remove":
            return _removed(value, path)
        if kind == "move":
            source = _tokens(operation["from"])
            return _put(_removed(value, source), path, _at(value, source), insert=True)
        if kind == "copy":
            return _put(value, path, _at(value, _tokens(operation["from"])), insert=True)
        if kind in {"add", "replace"}:  # to replace a field that is not there adds it, as on the real server
            return _put(value, path, operation["value"], insert=kind == "add")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise PatchFailed(f"{operation.get('op')} {operation.get('path')} does not fit the object: {error}") from error
    raise PatchFailed(f"no such operation: {kind}")


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"no path: {pointer}")
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]


def _at(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    for token in path:
        value = value[_index(token)] if isinstance(value, list) else value[token]
    return value


def _found(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    """Find what is tested: a field that is not there is null, as on the real server."""
    parent = _at(value, path[:-1])
    return parent.get(path[-1]) if path and isinstance(parent, Mapping) else _at(value, path)


def _put(value: Any, path: list[str], new: Any, *, insert: bool) -> Any:  # noqa: ANN401  JSON
    if not path:
        return new
    token, rest = path[0], path[1:]
    if not isinstance(value, list):
        return {**value, token: _put(value[token], rest, new, insert=insert) if rest else new}
    if rest:
        index = _index(token)
        return [*value[:index], _put(value[index], rest, new, insert=insert), *value[index + 1 :]]
    index = len(value) if token == "-" else _index(token)  # noqa: S105  the end of a list
    if index > len(value) - (not insert):
        raise IndexError(token)
    return [*value[:index], new, *value[index if insert else index + 1 :]]


def _removed(value: Any, path: list[str]) -> Any:  # noqa: ANN401  JSON
    token, rest = path[0], path[1:]
    if isinstance(value, list):
        index = _index(token)
        part = value[index]
        return [*value[:index], *([_removed(part, rest)] if rest else []), *value[index + 1 :]]
    part = value[token]
    if rest:
        return {**value, token: _removed(part, rest)}
    return {key: each for key, each in value.items() if key != token}


def _index(token: str) -> int:
    if not token.isdecimal():
        raise ValueError(f"no index: {token}")
    return int(token)
