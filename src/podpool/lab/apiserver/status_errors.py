"""Error responses: `Status` objects with HTTP code, reason and message, worded as in kube-apiserver."""

from typing import Any

from podpool.core.errors import PodpoolError


class StatusError(PodpoolError):
    """A request that fails with a `Status`."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def status(self) -> dict[str, Any]:
        """The `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def bad_request(message: str) -> StatusError:
    """Return a 400: the request is malformed."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: str, name: str) -> StatusError:
    """Return a 404 for an object."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found')


def forbidden(message: str) -> StatusError:
    """Return a 403."""
    return StatusError(403, "Forbidden", message)


def path_not_found() -> StatusError:
    """Return a 404 for a resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed() -> StatusError:
    """Return a 405: the resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable(accept: str) -> StatusError:
    """Return a 406: the client accepts no JSON."""
    return StatusError(406, "NotAcceptable", f"only JSON is supported, and Accept: {accept!r} does not allow it")


def already_exists(resource: str, name: str) -> StatusError:
    """Return a 409: the name is in use."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, reason: str) -> StatusError:
    """Return a 409: a precondition failed."""
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {reason}')


def expired(message: str) -> StatusError:
    """Return a 410: the version is not kept any more."""
    return StatusError(410, "Expired", message)


def internal_error(error: Exception) -> StatusError:
    """Return a 500."""
    return StatusError(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")


def not_implemented(feature: str) -> StatusError:
    """Return a 501: a part of the Kubernetes API that this server does not have."""
    return StatusError(501, "NotImplemented", f"{feature} is not supported by this API server (podpool apiserver)")


def unsupported_media_type(accepted: str, reason: str = "") -> StatusError:
    """Return a 415: the body has an unsupported format."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", f"{reason}: {message}" if reason else message)


def invalid(kind: str, name: str, *errors: str) -> StatusError:
    """Return a 422; each error begins with the path of its field."""
    bare_kind, _, group = kind.partition(".")
    split = (each.partition(": ") for each in errors)
    causes = [{"reason": "FieldValueInvalid", "field": path, "message": message} for path, _, message in split]
    message = f'{kind} "{name}" is invalid: {", ".join(errors)}'
    return StatusError(422, "Invalid", message, {"name": name, "group": group, "kind": bare_kind, "causes": causes})


def version_too_large(wanted: int, current: int) -> StatusError:
    """Return a 504: the requested version is in the future."""
    return StatusError(504, "Timeout", f"Too large resource version: {wanted}, current: {current}")
