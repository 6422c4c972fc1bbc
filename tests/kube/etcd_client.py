"""Direct access to etcd: for compaction, and for bulk writes twenty times as fast as the API server's."""

import base64
import http.client
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

WRITES_PER_TRANSACTION = 100
"""Writes per transaction; etcd's limit is 128."""


class EtcdClient:
    """Client of etcd's JSON gateway. The writes of a transaction share a revision: no watch may be open."""

    def __init__(self, port: int) -> None:
        self._port = port

    def compact(self) -> None:
        """Compact the history."""
        now = self._call("kv/range", {"key": _text("/")})["header"]["revision"]
        self._call("kv/compaction", {"revision": now, "physical": True})

    def put(self, objects: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Write objects, stored as JSON."""
        writes = [{"request_put": {"key": _text(key), "value": _text(json.dumps(each))}} for key, each in objects]
        for first in range(0, len(writes), WRITES_PER_TRANSACTION):
            self._call("kv/txn", {"success": writes[first : first + WRITES_PER_TRANSACTION]})

    def delete(self, under: str) -> None:
        """Delete all keys below a prefix that ends in a slash."""
        self._call("kv/deleterange", {"key": _text(under), "range_end": _text(under[:-1] + "0")})

    def _call(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401  whatever JSON says
        with closing(http.client.HTTPConnection("127.0.0.1", self._port)) as connection:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            return json.load(connection.getresponse())


def _text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()
