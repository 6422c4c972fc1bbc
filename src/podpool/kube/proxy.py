"""The HTTP proxy of a server, from the environment.

`HTTPS_PROXY` or `HTTP_PROXY` by the server's scheme, unless `NO_PROXY` lists the server: domains with their subdomains,
addresses, CIDRs, each with an optional port, or `*`. Upper or lower case. Loopback never uses a proxy.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server, or None."""
    parts = urlsplit(server)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    host = (parts.hostname or "").rstrip(".")
    if not proxy or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    exceptions = [each.strip().lower() for each in _variable(environ, "no_proxy").split(",")]
    if any(_matches(host, port, each) for each in exceptions if each):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name, "")


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else host == "localhost"


def _matches(host: str, port: int, pattern: str) -> bool:
    if pattern == "*":
        return True
    address = _address(host)
    try:
        network = ipaddress.ip_network(pattern.strip("[]"), strict=False)
    except ValueError:
        name, colon, wanted = pattern.rpartition(":")
        if colon and wanted.isdecimal():
            return int(wanted) == port and _matches(host, port, name)
        name = pattern.removeprefix("*").lstrip(".")
        return not address and (host.endswith(f".{name}") or (host == name and pattern == name))
    return address is not None and address in network


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
