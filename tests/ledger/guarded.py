"""A ledger behind its guard, and callers with tokens of their own."""

import msgspec

from podpool.ledger.admin_messages import NewToken, Token
from podpool.ledger.client import LedgerClient
from podpool.ledger.http.auth import Guard
from podpool.ledger.http.handler import Service
from podpool.ledger.http.limits import Limits
from podpool.runtime.transport import Request
from tests.ledger.offices import Office, Wire, done


class Gatehouse(Office):
    """An office whose clients need tokens; `client` is still the way around the guard."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        self.guard = Guard(Service(self.ledger), self.ledger.administration, clock=self.clock, limits=limits)

    def token(self, name: str = "one", *, cluster: str | None = None, admin: bool = False) -> Token:
        return done(self.client.create_token(NewToken(name=name, cluster=cluster, admin=admin)))

    def caller(self, token: Token) -> LedgerClient:
        return LedgerClient(Wire(self.guard), token=token.secret or "")

    def status(self, method: str, path: str, *, authorization: str = "", body: object = None, **query: str) -> int:
        """Send something by hand."""
        headers = {"authorization": authorization} if authorization else {}
        content = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=content)
        response = done(self.guard(request))
        done(response.close())
        return response.status
