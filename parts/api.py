"""Minimal HTTP client of the API server for fixtures; podpool has its own client.

Each request has its own connection, so that a restart of the server is no special case. A 429 or 503 that asks for a
retry is retried. A watch ends when the server ends it; the caller resumes from the last version.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = "application/json"
MERGE = "application/merge-patch+json"
TOO_EARLY = 429


class ApiError(Exception):
    """The API server refused a request; `status` is the HTTP status, `reason` Kubernetes' reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Api:
    """The API server with the credentials of one user."""

    port: int
    ca: Path
    token: str
    timeout: float = 30.0

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self.call("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return self.call("POST", path, body)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Replace an object."""
        return self.call("PUT", path, body)

    def patch(self, path: str, body: object, *, media: str = MERGE) -> dict[str, Any]:
        """Patch an object, by merge or by the given media type."""
        return self.call("PATCH", path, body, media=media)

    def delete(self, path: str) -> dict[str, Any]:
        """Delete an object."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: object = None, *, media: str = JSON) -> dict[str, Any]:
        """Send one request; a response that is no object is returned empty."""
        answers: list[bytes] = []
        until(lambda: self.accepted(answers, method, path, body, media=media), f"the API server has time for {path}")
        return json.loads(answers[0]) if answers[0].startswith(b"{") else {}

    def accepted(self, answers: list[bytes], method: str, path: str, body: object, *, media: str) -> bool:
        """Send a request until the server does not ask for a retry."""
        connection = self.connect()
        try:
            answers.append(self.send(connection, method, path, body, media=media).read())
        except ApiError as error:
            if error.status != TOO_EARLY:
                raise
        finally:
            connection.close()
        return bool(answers)

    def watch(self, path: str, *, since: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield types and objects of the events after the version `since`, until the server ends the stream.

        Raises ApiError `Expired` if the server no longer has that version, which is normal after a restart: its watch
        cache then starts at etcd's current version.
        """
        connection = self.connect()
        try:
            answer = self.send(connection, "GET", f"{path}?watch=true&resourceVersion={since}")
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise refusal(event["object"])
                yield event["type"], event["object"]
        except (ConnectionError, http.client.IncompleteRead):
            return
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPSConnection:
        """Return a connection that trusts only the API server's own CA."""
        trust = ssl.create_default_context(cafile=str(self.ca))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=self.timeout, context=trust)

    def send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = JSON,
    ) -> http.client.HTTPResponse:
        """Send a request and return the response with its headers; raise for an error status."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": JSON, "Content-Type": media}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        if answer.status >= 400:
            said = answer.read().decode(errors="replace")
            status = json.loads(said) if said.startswith("{") else {"message": said}
            raise refusal({"code": answer.status, "reason": answer.reason} | status)
        return answer


def refusal(status: dict[str, Any]) -> ApiError:
    """Return a `Status` object as an error."""
    return ApiError(status["code"], status["reason"], status.get("message", ""))
