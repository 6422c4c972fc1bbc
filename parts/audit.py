"""The API server's audit log as a list of calls: user, request, response.

The server writes an entry before it ends the response (blocking mode), so that a call whose response has been read is
in the log. A watch is logged when it starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # A watch is logged when it starts: it may end long after, behind another mark.
        {"level": "Metadata", "verbs": ["watch"], "omitStages": ["ResponseComplete"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the API server."""

    user: str
    verb: str
    resource: str
    """With its subresource, as in `pods/status`; empty for a path such as `/readyz`."""
    namespace: str
    name: str
    status: int
    began: float
    """When the server had read the request."""
    ended: float
    """When the server had responded; for a watch, when it started to."""


class AuditLog:
    """The growing log. `mark` returns a position, `calls` reads from it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Return the current position."""
        return self.path.stat().st_size

    def calls(self, *, since: int = 0, user: str | None = None) -> list[Call]:
        """Return calls after the mark, of one user or of all, once each, in the order of their responses."""
        with self.path.open("rb") as log:
            log.seek(since)
            lines = log.read().split(b"\n")[:-1]  # what follows the last newline is still being written
        entries = {entry["auditID"]: entry for entry in map(json.loads, lines)}
        found = [call(entry) for entry in entries.values()]
        return [each for each in found if user in (None, each.user)]


def call(entry: dict[str, Any]) -> Call:
    """Return an entry as a call."""
    target = entry.get("objectRef", {})
    return Call(
        user=entry["user"]["username"],
        verb=entry["verb"],
        resource="/".join(filter(None, (target.get("resource"), target.get("subresource")))),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=entry.get("responseStatus", {}).get("code", 0),
        began=moment(entry["requestReceivedTimestamp"]),
        ended=moment(entry["stageTimestamp"]),
    )


def moment(text: str) -> float:
    """Return a timestamp in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
