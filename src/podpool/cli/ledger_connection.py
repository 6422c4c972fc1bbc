"""The road to a ledger, for whoever types a command: whom to trust, and which token to show."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.ledger.client import LedgerClient, Patience
from podpool.runtime import entropy
from podpool.runtime.http import HttpTransport

NO_LEDGER = "none"
"""Where the ledger is, of a cluster that has only slices."""


@asynccontextmanager
async def reached(
    ledger: str, *, token_file: str, ca_file: str, patience: Patience | None = None
) -> AsyncIterator[LedgerClient | None]:
    """Open the road to a ledger, if there is one; nothing is asked of it yet."""
    if ledger == NO_LEDGER:
        yield None
        return
    road = HttpTransport(ledger, tls=trust(ca_file))
    try:
        yield LedgerClient(road, token=token_in(token_file), patience=patience, rng=entropy.system())
    finally:
        await road.close()


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
