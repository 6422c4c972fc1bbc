"""How the API says no: an HTTP status, a reason of one word, a sentence."""

from typing import Any

from podpool.core.errors import PodpoolError


class Refused(PodpoolError):
    """A request that is not granted."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def status(self) -> dict[str, Any]:
        """The refusal as the object that is sent."""
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


def bad_request(message: str) -> Refused:
    """What is asked for makes no sense."""
    return Refused(400, "BadRequest", message)


def not_found(resource: str, name: str) -> Refused:
    """There is no such object."""
    return Refused(404, "NotFound", f'{resource} "{name}" not found')


def forbidden(message: str) -> Refused:
    """Who asks may not."""
    return Refused(403, "Forbidden", message)


def no_such_path() -> Refused:
    """There is no such kind."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> Refused:
    """The kind does not know this verb."""
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable(accept: str) -> Refused:
    """The answer cannot be written in any form that was asked for."""
    return Refused(406, "NotAcceptable", f"only JSON is spoken here, and {accept!r} does not accept it")


def already_exists(resource: str, name: str) -> Refused:
    """The name is taken."""
    return Refused(409, "AlreadyExists", f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, why: str) -> Refused:
    """A precondition does not hold."""
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}')


def expired(message: str) -> Refused:
    """A version that is no longer remembered."""
    return Refused(410, "Expired", message)


def failed(error: Exception) -> Refused:
    """What should not happen."""
    return Refused(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")


def not_spoken(what: str) -> Refused:
    """A part of the Kubernetes API that is left out here."""
    return Refused(501, "NotImplemented", f"{what} is not spoken by this API server (podpool pocket)")


def unsupported(accepted: str, why: str = "") -> Refused:
    """A body in a form that is not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return Refused(415, "UnsupportedMediaType", f"{why}: {message}" if why else message)


def invalid(kind: str, name: str, *faults: str) -> Refused:
    """An object that breaks rules of its kind; each fault begins with its place."""
    word, _, group = kind.partition(".")
    causes = [
        {"reason": "FieldValueInvalid", "field": place, "message": why}
        for place, _, why in (each.partition(": ") for each in faults)
    ]
    message = f'{kind} "{name}" is invalid: {", ".join(faults)}'
    return Refused(422, "Invalid", message, {"name": name, "group": group, "kind": word, "causes": causes})


def not_yet(wanted: int, current: int) -> Refused:
    """A version that is not reached."""
    return Refused(504, "Timeout", f"Too large resource version: {wanted}, current: {current}")
