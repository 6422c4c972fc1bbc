"""A complete ledger on its own port, in a thread."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.http.rate_limit import RateLimits
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_server import serving

UNLIMITED = RateLimits(rate=1e9, burst=1e9)


class ServedLedger(msgspec.Struct, frozen=True):
    """The URL of a ledger, and its tokens."""

    url: str
    admin: str
    cluster: str
    """A token that is not bound to a cluster yet."""


@contextmanager
def served_ledger(limits: RateLimits = UNLIMITED) -> Iterator[ServedLedger]:
    """Serve a ledger on a database in memory."""
    started, stopping = threading.Event(), asyncio.Event()
    served: list[ServedLedger] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        store, clock = InlineSqliteStore(), SystemClock()
        ledger = LedgerService(store, clock=clock, rng=random.Random(1))  # noqa: S311  reproducible
        tokens = [
            await ledger.admin.create_token(CreateTokenRequest(name=name, admin=name == "admin"))
            for name in ("admin", "cluster")
        ]
        app = build_app(ledger, store, clock=clock, limits=limits)
        async with serving(app.api, host="127.0.0.1", port=0, read_bodies=False) as port:
            served.append(ServedLedger(f"http://127.0.0.1:{port}", *(token.secret or "" for token in tokens)))
            started.set()
            await stopping.wait()
            ledger.stop()
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        started.wait(30)
        yield served[0]
    finally:
        loops[0].call_soon_threadsafe(stopping.set)
        thread.join()
