"""Parsing of requests: bodies, the three patch formats, continue tokens and numbers."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from podpool.lab.apiserver import protobuf_request_decoder, status_errors
from podpool.lab.apiserver.patches import PatchError, json_patch, merge_patch
from podpool.lab.apiserver.registry import ApiResource, Object
from podpool.lab.apiserver.schema_validation import unknown
from podpool.lab.apiserver.status_errors import StatusError
from podpool.lab.apiserver.strategic_merge import strategic_merge
from podpool.runtime.transport import Request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_MAX_DIGITS = 19

T = TypeVar("T")


class ContinueToken(msgspec.Struct, frozen=True, kw_only=True):
    """Where a paged list continues: the revision that it shows, and the last key of the previous page."""

    revision: int
    after: str

    def encode(self) -> str:
        """Return the token as text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def parse_continue_token(text: str) -> ContinueToken:
    """Parse the token that a client returns."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=ContinueToken)
    except (ValueError, msgspec.DecodeError):
        raise status_errors.bad_request("continue key is not valid") from None


def parse_number(text: str) -> int:
    """Parse a number of a query."""
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise status_errors.bad_request(f"not a number: {text[:_MAX_DIGITS]!r}")
    return int(text)


def decode_object(request: Request) -> dict[str, Any]:
    """Return the object in a request's body."""
    return decode(request, dict[str, Any])


def decode(request: Request, type_: type[T]) -> T:
    """Return a request's body as a type."""
    try:
        if request.headers.get("content-type", "").startswith(protobuf_request_decoder.MEDIA_TYPE):
            return msgspec.convert(protobuf_request_decoder.decode(request.body), type_)
        return msgspec.json.decode(request.body, type=type_)
    except protobuf_request_decoder.ProtobufError:
        raise status_errors.unsupported_media_type("application/json") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise status_errors.bad_request(f"the request body cannot be decoded: {error}") from None


def decode_patch(resource: ApiResource, request: Request) -> Callable[[Object], Object]:
    """Return the patch in a request as a function of the old object; the media type gives the format."""
    media = request.headers.get("content-type", "").partition(";")[0]
    if media == MERGE_PATCH:
        patch = decode_object(request)
        return lambda old: apply_merge_patch(old, patch)
    if media == JSON_PATCH:
        operations = decode(request, list[dict[str, Any]])
        return lambda old: _apply(lambda: json_patch(old, operations))
    if media == STRATEGIC_PATCH and not resource.custom:
        wanted = decode_object(request)
        return lambda old: _apply(lambda: strategic_merge(old, wanted))
    accepted = (JSON_PATCH, MERGE_PATCH) if resource.custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
    reason = "server-side apply is not supported by this API server (podpool apiserver)"
    is_apply = media.startswith("application/apply-patch")
    raise status_errors.unsupported_media_type(", ".join(accepted), reason if is_apply else "")


def apply_merge_patch(old: Object, patch: Object) -> Object:
    """Apply a merge patch whose result must be an object."""
    return _as_object(merge_patch(old, patch))


def _apply(patch: Callable[[], object]) -> Object:
    try:
        return _as_object(patch())
    except PatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, "Invalid", message) from None


def _as_object(value: object) -> Object:
    if not isinstance(value, Mapping):
        raise status_errors.bad_request("the result of the patch is not an object")
    return value


def unknown_fields(resource: ApiResource, wanted: Object, validation: str) -> list[str]:
    """Return warnings about fields that the schema does not have; raises if `validation` is Strict."""
    if resource.schema is None or validation == "Ignore":
        return []
    found = [f'unknown field "{each}"' for each in unknown(resource.schema, wanted)]
    if found and validation == "Strict":
        kind, errors = resource.kind, f"strict decoding error: {', '.join(found)}"
        raise status_errors.bad_request(
            f"{kind} in version {resource.version!r} cannot be handled as a {kind}: {errors}"
        )
    return found
