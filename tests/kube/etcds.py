"""Behind the API server's back: what only etcd can do, or does twenty times faster."""

import base64
import http.client
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

TOGETHER = 100
"""Writes in one transaction; etcd takes 128."""


class Etcd:
    """etcd's own door, as JSON. Many writes share a version here, which no watch is made for: look when it is over."""

    def __init__(self, port: int) -> None:
        self._port = port

    def compact(self) -> None:
        """Forget all that is not now."""
        now = self._call("kv/range", {"key": _text("/")})["header"]["revision"]
        self._call("kv/compaction", {"revision": now, "physical": True})

    def put(self, objects: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write objects that are kept as JSON."""
        writes = [{"request_put": {"key": _text(key), "value": _text(json.dumps(each))}} for key, each in objects]
        for first in range(0, len(writes), TOGETHER):
            self._call("kv/txn", {"success": writes[first : first + TOGETHER]})

    def delete(self, under: str) -> None:
        """Delete all that is under a key that ends in a slash."""
        self._call("kv/deleterange", {"key": _text(under), "range_end": _text(under[:-1] + "0")})

    def _call(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401  whatever JSON says
        with closing(http.client.HTTPConnection("127.0.0.1", self._port)) as door:
            door.request("POST", f"/v3/{path}", json.dumps(body))
            return json.load(door.getresponse())


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
