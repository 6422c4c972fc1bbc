"""The ledger as other rooms see it: one method per call, typed answers, typed errors.

Every call may be sent again: `Unreachable` says that nobody knows whether it was done, and the same call with the same
term and number then does it once or shows what is. The client itself repeats nothing and waits for nobody: deadlines
and retries belong to the caller, who knows what else it has to do.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

import msgspec

from podpool.ledger.errors import LedgerError, error_of
from podpool.ledger.messages import (
    Change,
    Containers,
    Excuse,
    Listing,
    ListingAnswer,
    NewSubnet,
    OpenTerm,
    Problem,
    Reconcile,
    ReconcileAnswer,
    Recovery,
    Settle,
    SubnetName,
    Subnets,
    SubnetState,
    Term,
    Utilization,
)
from podpool.runtime.transport import Request, Response, Transport

T = TypeVar("T")

_LONGEST_EVENT = 1 << 20
"""A line of the stream; a subnet with ten thousand waiting containers is below half of it."""


class LedgerClient:
    """The road to one ledger; tokens and TLS are the transport's business."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def open_term(self, opening: OpenTerm) -> Term:
        """Take the next term; raises nothing but `Unreachable` for a well-formed call."""
        return await self._post("/v1/terms", opening, Term)

    async def reconcile(self, call: Reconcile) -> ReconcileAnswer:
        """Bring containers to what they should be; raises `TermEnded` or `ListingWanted` when the term is not good."""
        return await self._post("/v1/reconcile", call, ReconcileAnswer)

    async def send_listing(self, listing: Listing) -> ListingAnswer:
        """Tell what the cluster has, after a `Term` or an error that says that a listing is wanted."""
        return await self._post("/v1/listings", listing, ListingAnswer)

    async def containers(self, cluster: str) -> Containers:
        """Show every container of a cluster that is not closed."""
        return await self._get("/v1/containers", Containers, query={"cluster": cluster})

    async def create_subnet(self, subnet: NewSubnet) -> SubnetState:
        """Make a subnet; the same again is no error, another of the same name or place is a `Conflict`."""
        return await self._post("/v1/subnets", subnet, SubnetState)

    async def subnets(self) -> Subnets:
        """Show all subnets."""
        return await self._get("/v1/subnets", Subnets)

    async def subnet(self, name: SubnetName) -> SubnetState:
        """Show one subnet."""
        return await self._get(f"/v1/networks/{name.network}/subnets/{name.name}", SubnetState)

    async def utilization(self, name: SubnetName) -> list[Utilization]:
        """Ask how full a subnet is, in the words of the call that DNC has for it."""
        return await self._get(f"/networks/{name.network}/subnets/{name.name}/utilization", list[Utilization])

    async def recovery(self) -> Recovery:
        """Show whom the ledger waits for after a restore, and which addresses have two owners."""
        return await self._get("/v1/recovery", Recovery)

    async def excuse(self, cluster: str) -> Recovery:
        """Say, as a person, that a cluster need not be waited for."""
        return await self._post("/v1/recovery/excuse", Excuse(cluster=cluster), Recovery)

    async def settle(self, decision: Settle) -> Recovery:
        """Say, as a person, which of two owners has an address."""
        return await self._post("/v1/recovery/settle", decision, Recovery)

    async def changes(self, cluster: str) -> AsyncGenerator[Change, None]:
        """Follow all subnets: each as it is, then as it changes. Ends, or raises `Unreachable`, when the stream does.

        A stream that ended says nothing about what was missed: open it again, and it begins with everything.
        """
        response = await self._send(Request(method="GET", path="/v1/changes", query={"cluster": cluster}))
        try:
            async with aclosing(_events(response.stream)) as events:
                async for event in events:
                    yield msgspec.json.decode(event, type=Change)
        finally:
            await response.close()

    async def _get(self, path: str, answer: type[T], *, query: dict[str, str] | None = None) -> T:
        response = await self._send(Request(method="GET", path=path, query=query or {}))
        return msgspec.json.decode(await response.read(), type=answer)

    async def _post(self, path: str, message: msgspec.Struct, answer: type[T]) -> T:
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode(message)
        response = await self._send(Request(method="POST", path=path, headers=headers, body=body))
        return msgspec.json.decode(await response.read(), type=answer)

    async def _send(self, request: Request) -> Response:
        response = await self._transport.send(request)
        if response.status >= 300:
            raise _refusal(request, response.status, await response.read())
        return response


def _refusal(request: Request, status: int, body: bytes) -> LedgerError:
    try:
        return error_of(msgspec.json.decode(body, type=Problem))
    except msgspec.DecodeError:  # a proxy's page, not ours
        return LedgerError(f"{request.method} {request.path} was answered with status {status}")


async def _events(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Read server-sent events: the text behind `data:`; every other line is a name or keeps the connection awake."""
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_EVENT:
            raise LedgerError(f"the stream of changes has a line of more than {_LONGEST_EVENT} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
