"""What a token may use: networks and subnets.

An entry of a scope is a network, `vnet`, or a subnet, `vnet.pods`; no scope means all of them. Outside of its scope a
caller sees no subnet and gets no address. What its network containers hold there, from a time in which it was
permitted, they may keep and release.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from podpool.ledger.errors import Forbidden, Invalid
from podpool.ledger.messages import (
    NetworkContainerResult,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
    SubnetName,
)

MAX_ENTRIES = 64
MAX_ENTRY_LENGTH = 128
_ENTRY_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class TokenScope(msgspec.Struct, frozen=True):
    """The scope of one token."""

    token: str = ""
    """The name of the token."""
    entries: tuple[str, ...] | None = None
    """Networks and subnets; None for all."""

    def allows(self, subnet: SubnetName) -> bool:
        """Return whether a subnet may be used."""
        return self.entries is None or subnet.network in self.entries or str(subnet) in self.entries

    def check(self, subnet: SubnetName) -> None:
        """Raise Forbidden for a subnet outside of the scope, whether or not it exists."""
        if not self.allows(subnet):
            raise Forbidden(self.refusal(subnet), field="subnet")

    def refusal(self, subnet: SubnetName) -> str:
        """Return why a subnet may not be used, and what to do."""
        entries = ", ".join(self.entries or ()) or "nothing"
        remedy = f"use one of these, or let an administrator run `podpool ledger token rotate {self.token} --allow ...`"
        return f"token {self.token} may use {entries}, and not subnet {subnet}: {remedy}"


EVERYTHING = TokenScope()
"""The scope of administrators, and of the ledger's own tasks."""

_CURRENT: ContextVar[TokenScope] = ContextVar("ledger_token_scope", default=EVERYTHING)


@contextmanager
def limited_to(scope: TokenScope) -> Iterator[None]:
    """Limit the calls of the service within the block to a scope."""
    token = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_scope() -> TokenScope:
    """Return the scope of the running request."""
    return _CURRENT.get()


def check_entries(entries: Iterable[str] | None) -> tuple[str, ...] | None:
    """Check the entries of a new scope; returns them in order, each once."""
    if entries is None:
        return None
    found = tuple(sorted(set(entries)))
    if not 0 < len(found) <= MAX_ENTRIES:
        raise Invalid(f"a scope has {len(found)} entries: must be from 1 to {MAX_ENTRIES}", field="scope")
    for entry in found:
        network, dot, subnet = entry.partition(".")
        valid = set(entry) <= _ENTRY_CHARACTERS and network and (subnet or not dot)
        if not valid or len(entry) > MAX_ENTRY_LENGTH:
            shown = entry[:MAX_ENTRY_LENGTH]
            raise Invalid(f"scope {shown!r}: write a network, vnet, or a subnet, vnet.pods", field="scope")
    return found


def within_scope(request: ReconcileRequest, scope: TokenScope) -> ReconcileRequest:
    """Return the part of a request that its caller may make.

    An NC that exists outside of the scope may release addresses, and wants no more. `with_refusals` adds the results of
    what is left out.
    """
    if scope.entries is None:
        return request
    items = [
        each if scope.allows(each.subnet) else replace(each, wanted=0)
        for each in request.items
        if not _is_left_out(each, scope)
    ]
    return replace(request, items=tuple(items))


def with_refusals(response: ReconcileResponse, items: Sequence[ReconcileItem], scope: TokenScope) -> ReconcileResponse:
    """Return the response to a whole request, of which only the part within the scope was processed."""
    if scope.entries is None:
        return response
    processed = iter(response.results)
    results = tuple(
        _refused(item, scope) if _is_left_out(item, scope) else _outside(next(processed), item, scope) for item in items
    )
    subnets = tuple(each for each in response.subnets if scope.allows(each.subnet))
    return replace(response, results=results, subnets=subnets)


def _is_left_out(item: ReconcileItem, scope: TokenScope) -> bool:
    return item.nc_id is None and not scope.allows(item.subnet)


def _refused(item: ReconcileItem, scope: TokenScope) -> NetworkContainerResult:
    return NetworkContainerResult(error=Forbidden(scope.refusal(item.subnet), field="subnet").response)


def _outside(result: NetworkContainerResult, item: ReconcileItem, scope: TokenScope) -> NetworkContainerResult:
    """Return the result of an NC, with what it lacks because its subnet is outside of the scope."""
    state = result.state
    if state is None or state.closed or scope.allows(item.subnet):
        return result
    shortage = max(0, item.wanted - len(state.grants))
    if not shortage:
        return result
    return replace(result, state=replace(state, shortage=shortage, shortage_reason=scope.refusal(item.subnet)))
