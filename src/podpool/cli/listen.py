"""Where a service listens: address, port and certificate."""

import asyncio
import ipaddress
import ssl
from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count
from podpool.runtime.logging import get_logger

log = get_logger(__name__)

RELOAD_INTERVAL = 10.0
"""Seconds between two looks at the files of a certificate."""


def parse_listen(text: str, *, option: str = "--listen") -> tuple[str, int]:
    """Return the address and port of `--listen`, or of an option like it."""
    host, colon, port = text.rpartition(":")
    if not (colon and host):
        raise InvalidInput(option, text, "is not an address and port, such as 127.0.0.1:7780")
    number = parse_count(port, what=option)
    if number > 65535:
        raise InvalidInput(option, text, "port out of range: use 0 to 65535")
    return host.strip("[]"), number


def server_tls(certificate: str, key: str, *, client_ca: str = "") -> ssl.SSLContext | None:
    """Load the certificate of a server and its key; None means plain HTTP. With a client CA, clients need one too."""
    if not certificate and not key:
        if client_ca:
            reason = "needs --tls-cert and --tls-key: without TLS there are no client certificates"
            raise InvalidInput("--tls-client-ca", client_ca, reason)
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("--tls-cert", certificate, f"cannot be loaded with --tls-key: {error}") from None
    if client_ca:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput("--tls-client-ca", client_ca, f"cannot be loaded as PEM: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def reload_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load the certificate again when its files change; new connections get it, unless the pair is invalid."""
    loaded = _state_of(certificate, key)
    while True:
        await asyncio.sleep(RELOAD_INTERVAL)
        found = _state_of(certificate, key)
        if found == loaded:
            continue
        try:
            server_tls(certificate, key)  # first apart: a pair that does not fit would spoil the context
            context.load_cert_chain(certificate, key or None)
        except (InvalidInput, OSError) as error:
            log.warning("new certificate not loaded, the former one stays in use", error=error)
        else:
            log.info("certificate reloaded", file=certificate)
        loaded = found


def warn_of_plain_http(host: str, tls: ssl.SSLContext | None) -> None:
    """Log a warning if tokens pass a network unencrypted."""
    if tls is None and not _is_loopback(host):
        remedy = "set --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS"
        log.warning("plain HTTP on a non-loopback address, tokens can be read on the network", host=host, remedy=remedy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _state_of(*files: str) -> list[tuple[int, int, int] | None]:
    """Return what changes with the content of files."""
    states: list[tuple[int, int, int] | None] = []
    for file in filter(None, files):
        try:
            found = Path(file).stat()
        except OSError:
            states.append(None)
        else:
            states.append((found.st_mtime_ns, found.st_ino, found.st_size))
    return states


def url(scheme: str, host: str, port: int) -> str:
    """Return the URL of a listener."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
