"""The certificate that a server shows."""

import ssl

from podpool.core.errors import InvalidInput


def shown_certificate(certificate: str, key: str) -> ssl.SSLContext | None:
    """Load a certificate with its key; without both the server speaks plain HTTP."""
    if not certificate and not key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("--tls-cert", certificate, f"cannot be used with its key: {error}") from None
    return context
