"""Host header check of loopback servers, against DNS rebinding: any other name is an attack by a web page."""

import re

from podpool.runtime.transport import Request

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PORT = re.compile(r":[0-9]+\Z")


def allowed_hosts(host: str) -> frozenset[str]:
    """Return the host names by which a server on an address may be called; empty if any is allowed."""
    return LOOPBACK if f"[{host}]" in LOOPBACK or host in LOOPBACK else frozenset[str]()


def requested_host(request: Request) -> str:
    """Return the host name of a request, without port."""
    return _PORT.sub("", request.headers.get("host", ""))
