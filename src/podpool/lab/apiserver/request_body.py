"""What a request wants an object to become: bodies, and patches of three kinds."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from podpool.lab.apiserver import protobuf, status_errors
from podpool.lab.apiserver.patches import PatchFailed, merged, patched
from podpool.lab.apiserver.registry import Served
from podpool.lab.apiserver.schema_validation import unknown
from podpool.lab.apiserver.status_errors import Refused
from podpool.lab.apiserver.strategic_merge import strategically_merged
from podpool.lab.apiserver.watch_cache import Object
from podpool.runtime.transport import Request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

T = TypeVar("T")


def body_of(request: Request) -> dict[str, Any]:
    """Read the object in a request."""
    return decoded(request, dict[str, Any])


def decoded(request: Request, kind: type[T]) -> T:
    """Read a body as what it should be."""
    try:
        if request.headers.get("content-type", "").startswith(protobuf.MEDIA):
            return msgspec.convert(protobuf.read(request.body), kind)
        return msgspec.json.decode(request.body, type=kind)
    except protobuf.Unreadable:
        raise status_errors.unsupported("application/json") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise status_errors.bad_request(f"the body cannot be read: {error}") from None


def change_of(served: Served, request: Request) -> Callable[[Object], Object]:
    """Read a patch, whose kind the media type tells."""
    media = request.headers.get("content-type", "").partition(";")[0]
    if media == MERGE_PATCH:
        patch = body_of(request)
        return lambda old: merged_into(old, patch)
    if media == JSON_PATCH:
        operations = decoded(request, list[dict[str, Any]])
        return lambda old: _fitting(lambda: patched(old, operations))
    if media == STRATEGIC_PATCH and not served.custom:
        wanted = body_of(request)
        return lambda old: _fitting(lambda: strategically_merged(old, wanted))
    accepted = ", ".join((JSON_PATCH, MERGE_PATCH) if served.custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    apart = "server-side apply is not spoken by this API server (podpool pocket)"
    raise status_errors.unsupported(accepted, apart if media.startswith("application/apply-patch") else "")


def merged_into(old: Object, patch: Object) -> Object:
    """Apply a merge patch that must leave an object."""
    return _whole(merged(old, patch))


def _fitting(apply: Callable[[], object]) -> Object:
    try:
        return _whole(apply())
    except PatchFailed as failed:
        raise Refused(
            422, "Invalid", f"the server rejected our request due to an error in our request: {failed}"
        ) from None


def _whole(value: object) -> Object:
    if not isinstance(value, Mapping):
        raise status_errors.bad_request("the patch leaves no object")
    return value


def strange_fields(served: Served, wanted: Object, validation: str) -> list[str]:
    """Find fields that a definition does not know: warned of, refused where that was asked for, or left alone."""
    if served.schema is None or validation == "Ignore":
        return []
    found = [f'unknown field "{each}"' for each in unknown(served.schema, wanted)]
    if found and validation == "Strict":
        raise status_errors.bad_request(
            f"{served.kind} in version {served.version!r} cannot be handled as a "
            f"{served.kind}: strict decoding error: {', '.join(found)}"
        )
    return found
