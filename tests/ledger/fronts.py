"""A whole ledger on a port of its own, in a thread: as the world meets it."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from podpool.ledger.admin_messages import NewToken
from podpool.ledger.domain.service import Ledger
from podpool.ledger.http.app import front
from podpool.ledger.http.limits import Limits
from podpool.ledger.storage.sqlite.store import InlineStore
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import serving

UNHURRIED = Limits(rate=1e9, burst=1e9, strangers=1e9)


class Open(msgspec.Struct, frozen=True):
    """Where a ledger answers, and to whom."""

    url: str
    admin: str
    cluster: str
    """The token of a cluster that has not spoken yet."""


@contextmanager
def opened(limits: Limits = UNHURRIED) -> Iterator[Open]:
    """Serve a ledger on books in memory."""
    begun, stopping, told = threading.Event(), asyncio.Event(), []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        store, clock = InlineStore(), SystemClock()
        ledger = Ledger(store, clock=clock, rng=random.Random(1))  # noqa: S311  the same each time
        tokens = [
            await ledger.administration.create_token(NewToken(name=name, admin=name == "admin"))
            for name in ("admin", "cluster")
        ]
        async with serving(front(ledger, store, clock=clock, limits=limits), host="127.0.0.1", port=0) as port:
            told.append(Open(f"http://127.0.0.1:{port}", *(token.secret or "" for token in tokens)))
            begun.set()
            await stopping.wait()
            ledger.stop()
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        begun.wait(30)
        yield told[0]
    finally:
        loops[0].call_soon_threadsafe(stopping.set)
        thread.join()
