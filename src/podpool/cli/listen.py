"""Where a service listens: address, port and certificate."""

import ssl

from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count


def parse_listen(text: str, *, option: str = "--listen") -> tuple[str, int]:
    """Return the address and port of `--listen`, or of an option like it."""
    host, colon, port = text.rpartition(":")
    if not (colon and host):
        raise InvalidInput(option, text, "is not an address and port, such as 127.0.0.1:7780")
    number = parse_count(port, what=option)
    if number > 65535:
        raise InvalidInput(option, text, "port out of range: use 0 to 65535")
    return host.strip("[]"), number


def server_tls(certificate: str, key: str) -> ssl.SSLContext | None:
    """Load the certificate of a server and its key; None means plain HTTP."""
    if not certificate and not key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("--tls-cert", certificate, f"cannot be loaded with --tls-key: {error}") from None
    return context


def url(scheme: str, host: str, port: int) -> str:
    """Return the URL of a listener."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
