"""The road to a ledger, for whoever types a command: whom to trust, and which token to show."""

import ssl
from collections.abc import Callable
from pathlib import Path

from podpool.core.errors import InvalidInput


def trust(ca_file: str) -> ssl.SSLContext | None:
    """Trust this authority, or those that the system trusts."""
    try:
        return ssl.create_default_context(cafile=ca_file) if ca_file else None
    except OSError as error:
        raise InvalidInput(
            "authority", ca_file, f"cannot be used ({error.strerror or error}): name its PEM file"
        ) from None


def token_in(path: str) -> Callable[[], str]:
    """Take a token from a file, which is read each time: it may have been exchanged."""

    def read() -> str:
        try:
            return Path(path).read_text().strip() if path else ""
        except (OSError, UnicodeDecodeError) as error:
            reason = f"cannot be read ({getattr(error, 'strerror', 'not text')}): name the file that your token is in"
            raise InvalidInput("token file", path, reason) from None

    return read
