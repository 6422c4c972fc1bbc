"""The whole service as the world meets it: description, metrics, guard, and behind them the ledger."""

import os
import random
from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.ledger.domain.service import Ledger
from podpool.ledger.domain.tokens import new_secret
from podpool.ledger.http.auth import Guard
from podpool.ledger.http.handler import Service
from podpool.ledger.http.limits import Limits
from podpool.ledger.http.metrics import Metered
from podpool.ledger.http.openapi import Described
from podpool.ledger.storage.store import Store
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Handler


def front(ledger: Ledger, store: Store, *, clock: Clock, limits: Limits | None = None) -> Handler:
    """Put the layers together."""
    guarded = Guard(Service(ledger), ledger.administration, clock=clock, limits=limits)
    return Described(Metered(guarded, ledger, store))


def admin_token(path: Path, *, rng: random.Random) -> str:
    """Read the admin token, or write a new one that nobody else may read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        secret = path.read_text().strip()
        if not secret:
            raise InvalidInput(
                "--admin-token-file", str(path), "is empty: remove it, and a new one is written"
            ) from None
        return secret
    secret = new_secret(rng)
    with open(descriptor, "w") as file:  # noqa: PTH123  a descriptor, not a path
        file.write(f"{secret}\n")
    return secret
