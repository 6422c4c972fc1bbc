"""By which names a server on loopback is called: a foreign name that leads there is some web site's trick."""

import re

from podpool.runtime.transport import Request

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PORT = re.compile(r":[0-9]+\Z")


def allowed_hosts(host: str) -> frozenset[str]:
    """Tell by which names alone a server may be called that listens on an address; none: by any."""
    return LOOPBACK if f"[{host}]" in LOOPBACK or host in LOOPBACK else frozenset[str]()


def requested_host(request: Request) -> str:
    """Tell by which name a server was called."""
    return _PORT.sub("", request.headers.get("host", ""))
