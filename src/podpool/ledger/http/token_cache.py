"""The tokens, read together and kept in memory, so that most requests cost the database nothing.

A token that is not among them may be new: then all are read again. However many unknown tokens arrive, they share these
reads, whose rate is limited; a request waits for one that began after it arrived. So guessed tokens cost the database
a few reads per second, and a new token is accepted within that time.
"""

import asyncio
from typing import TYPE_CHECKING

from podpool.ledger.domain.admin import AdminService
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.domain.tokens import identify
from podpool.runtime.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPIRY = 2.0
"""Seconds for which another replica accepts a revoked token."""
_READS_PER_SECOND = 4.0
_READS_AT_ONCE = 8.0
"""Reads for unknown tokens; more must wait."""


class TokenCache:
    """The rows of all tokens, as of a short time ago."""

    def __init__(self, admin: AdminService, *, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._rows: Mapping[str, TokenRow] = {}
        self._read_at = float("-inf")
        self._reads_begun = self._invalidations = 0
        self._allowed, self._allowed_at = _READS_AT_ONCE, clock.boot()
        self._reading = asyncio.Lock()

    async def identify(self, secret: str) -> TokenRow | None:
        """Return the row of a valid token."""
        if self._clock.boot() - self._read_at >= _EXPIRY:
            await self._read(limited=False)
        found = identify(self._rows, secret)
        if found is None and secret:
            await self._read(limited=True)
            found = identify(self._rows, secret)
        return found

    def invalidate(self) -> None:
        """Read all tokens again for the next request."""
        self._read_at = float("-inf")
        self._invalidations += 1

    async def _read(self, *, limited: bool) -> None:
        """Read all tokens, unless another request begins to do so while this one waits."""
        arrived = self._reads_begun
        async with self._reading:
            if self._reads_begun > arrived:
                return
            if limited:
                await self._wait_allowed()
            self._reads_begun += 1
            begun, invalidations = self._clock.boot(), self._invalidations
            self._rows = {row.id: row for row in await self._admin.token_rows()}
            if self._invalidations == invalidations:
                self._read_at = begun

    async def _wait_allowed(self) -> None:
        now = self._clock.boot()
        allowed = min(_READS_AT_ONCE, self._allowed + (now - self._allowed_at) * _READS_PER_SECOND)
        if allowed < 1:
            await asyncio.sleep((1 - allowed) / _READS_PER_SECOND)
            allowed = 1
        self._allowed, self._allowed_at = allowed - 1, self._clock.boot()
