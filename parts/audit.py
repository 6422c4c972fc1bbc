"""The API server's audit log, read as a list of calls: who asked what, and what was answered.

The server writes an entry before it ends the answer (blocking mode), so that a call whose answer has been read is in
the log. A call without an answer yet is not; a watch is there as soon as it has begun.
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
        # A watch is a call when it begins: its end may come long after, behind another mark.
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
    """When the server had read it, and"""
    ended: float
    """when it had answered, or had begun to where it is a watch."""


class AuditLog:
    """The log as it grows. `mark` remembers a place in it, `calls` reads from there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Now, as a place in the log."""
        return self.path.stat().st_size

    def calls(self, *, since: int = 0, user: str | None = None) -> list[Call]:
        """All calls after the mark, by one user or by all; each call once, in the order of their answers."""
        with self.path.open("rb") as log:
            log.seek(since)
            lines = log.read().split(b"\n")[:-1]  # what follows the last newline is still being written
        entries = {entry["auditID"]: entry for entry in map(json.loads, lines)}
        found = [call(entry) for entry in entries.values()]
        return [each for each in found if user in (None, each.user)]


def call(entry: dict[str, Any]) -> Call:
    """One entry as a call."""
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
    """Read a moment, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
