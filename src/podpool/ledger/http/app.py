"""The ledger's HTTP application: its API, and health and metrics for a listener of their own."""

import os
import random
from pathlib import Path

import msgspec

from podpool.core.errors import InvalidInput
from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.domain.tokens import new_secret
from podpool.ledger.http.auth import AuthMiddleware
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.http.metrics import LedgerMetrics
from podpool.ledger.http.openapi import OpenAPIMiddleware
from podpool.ledger.http.rate_limit import RateLimits
from podpool.ledger.http.status_cache import LedgerStatus
from podpool.runtime.clock import Clock
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Handler


class LedgerApp(msgspec.Struct, frozen=True):
    """The handlers of a ledger, and the status that `health` shows."""

    api: Handler
    """Reads bodies itself: serve it without `read_bodies`."""
    health: Handler
    status: LedgerStatus


def build_app(
    ledger: LedgerService, store: LedgerStore, *, clock: Clock, limits: RateLimits | None = None
) -> LedgerApp:
    """Return the API with its middleware (OpenAPI, metrics, authentication, in this order), and the health pages."""
    status = LedgerStatus(ledger, store, clock=clock)
    metrics = LedgerMetrics(store, status)
    authenticated = AuthMiddleware(LedgerHandler(ledger), ledger.admin, clock=clock, limits=limits)
    api = OpenAPIMiddleware(metrics.counted(authenticated))
    return LedgerApp(api=api, health=metrics.page(health_handler(status.checks)), status=status)


def admin_token(path: Path, *, rng: random.Random) -> str:
    """Return the admin token in a file; a missing file is created with a new token, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        secret = path.read_text().strip()
        if not secret:
            remedy = "is empty: remove it, and a new token is created"
            raise InvalidInput("--admin-token-file", str(path), remedy) from None
        return secret
    secret = new_secret(rng)
    with open(descriptor, "w") as file:  # noqa: PTH123  a descriptor, not a path
        file.write(f"{secret}\n")
    return secret
