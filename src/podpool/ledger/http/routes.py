"""Every call of the ledger in one table: where it is, what it takes and gives, who may make it, and who answers.

The table is all that the service, the guard, the metrics and the description of the interface know of the calls.
"""

import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m
from podpool.ledger.domain.service import Ledger
from podpool.ledger.errors import NotFound, WrongMethod

Answer = Callable[[Ledger, Mapping[str, str], Any], Any]
"""Gives something to be awaited, or the events of a stream."""

_KIB = 1024
_MIB = 1024 * _KIB
_SUBNET = "/v1/networks/{network}/subnets/{subnet}"


class Access(enum.Enum):
    """Who may make a call."""

    OPEN = "anybody"
    READER = "whoever has a token"
    SELF = "a cluster sees itself, and a person everybody"
    CLUSTER = "a cluster, for itself"
    ADMIN = "a person with an admin token"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    method: str
    path: str
    """Parts in braces are parameters."""
    sentence: str
    """What it does, for people."""
    query: tuple[str, ...] = ()
    """Parameters that must be in the query,"""
    optional: tuple[str, ...] = ()
    """and those that may be."""
    takes: Any = None
    gives: Any
    access: Access = Access.ADMIN
    stream: bool = False
    """Answered with server-sent events."""
    most: int = 64 * _KIB
    """Bytes of a body."""
    answer: Answer

    @property
    def pattern(self) -> re.Pattern[str]:
        """What its paths look like."""
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path))


def _subnet(parameters: Mapping[str, str]) -> m.SubnetName:
    return m.SubnetName(network=parameters["network"], name=parameters["subnet"])


async def _fine(_ledger: Ledger, _parameters: Mapping[str, str], _message: object) -> object:
    return {"status": "ok"}


async def _ready(ledger: Ledger, _parameters: Mapping[str, str], _message: object) -> object:
    await ledger.subnets()  # the store answers
    return {"status": "ok"}


def _past(by: Literal["address", "node", "name"]) -> Answer:
    def answer(ledger: Ledger, parameters: Mapping[str, str], _message: object) -> Awaitable[f.History]:
        named = {name: parameters.get(name) for name in ("namespace", "cluster", "at", "limit")}
        return ledger.administration.history(by, parameters[by], **named)

    return answer


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/reconcile",
        sentence="Bring many containers to what they should be",
        takes=m.Reconcile,
        gives=m.ReconcileAnswer,
        access=Access.CLUSTER,
        most=16 * _MIB,
        answer=lambda ledger, _, message: ledger.reconcile(message),
    ),
    Route(
        method="POST",
        path="/v1/terms",
        sentence="Open a term: what each new leader of a cluster does first",
        takes=m.OpenTerm,
        gives=m.Term,
        access=Access.CLUSTER,
        answer=lambda ledger, _, message: ledger.open_term(message),
    ),
    Route(
        method="POST",
        path="/v1/listings",
        sentence="List all containers of a cluster, after the ledger was restored",
        takes=m.Listing,
        gives=m.ListingAnswer,
        access=Access.CLUSTER,
        most=64 * _MIB,
        answer=lambda ledger, _, message: ledger.take_listing(message),
    ),
    Route(
        method="POST",
        path="/v1/pods",
        sentence="Report which Pods have, or had, which addresses",
        takes=f.PodReport,
        gives=f.Taken,
        access=Access.CLUSTER,
        most=4 * _MIB,
        answer=lambda ledger, _, message: ledger.take_pods(message),
    ),
    Route(
        method="GET",
        path="/v1/containers",
        sentence="Show the open containers of a cluster",
        query=("cluster",),
        gives=m.Containers,
        access=Access.SELF,
        answer=lambda ledger, parameters, _: ledger.containers(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/v1/changes",
        sentence="Follow all subnets: each as it is, then as it changes, with whose turn it is",
        query=("cluster",),
        gives=m.Change,
        access=Access.SELF,
        stream=True,
        answer=lambda ledger, parameters, _: ledger.changes(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/networks/{network}/subnets/{subnet}/utilization",
        sentence="Tell how full a subnet is, from a cache",
        optional=("api-version",),  # callers of DNC send it
        gives=list[m.Utilization],
        access=Access.READER,
        answer=lambda ledger, parameters, _: ledger.utilization(_subnet(parameters)),
    ),
    Route(
        method="GET",
        path="/v1/networks",
        sentence="Show all networks",
        gives=f.Networks,
        access=Access.READER,
        answer=lambda ledger, *_: ledger.administration.networks(),
    ),
    Route(
        method="GET",
        path="/v1/subnets",
        sentence="Show all subnets",
        gives=m.Subnets,
        access=Access.READER,
        answer=lambda ledger, *_: ledger.subnets(),
    ),
    Route(
        method="POST",
        path="/v1/subnets",
        sentence="Make a subnet; the same again is the one that is there",
        takes=m.NewSubnet,
        gives=m.SubnetState,
        answer=lambda ledger, _, message: ledger.administration.create_subnet(message),
    ),
    Route(
        method="GET",
        path=_SUBNET,
        sentence="Show a subnet",
        gives=m.SubnetState,
        access=Access.READER,
        answer=lambda ledger, parameters, _: ledger.subnet(_subnet(parameters)),
    ),
    Route(
        method="DELETE",
        path=_SUBNET,
        sentence="Forget a subnet that is empty",
        gives=f.Deleted,
        answer=lambda ledger, parameters, _: ledger.administration.delete(_subnet(parameters)),
    ),
    Route(
        method="GET",
        path=f"{_SUBNET}/details",
        sentence="Show a subnet as it was made, what it was given since, and who holds it",
        optional=("cluster",),
        gives=f.SubnetDetails,
        access=Access.SELF,
        answer=lambda ledger, parameters, _: ledger.administration.details(
            _subnet(parameters), cluster=parameters.get("cluster")
        ),
    ),
    Route(
        method="GET",
        path=f"{_SUBNET}/addresses",
        sentence="Show every address of a subnet that is not free: who has it, or until when it rests",
        optional=("cluster",),
        gives=f.Occupancy,
        access=Access.SELF,
        answer=lambda ledger, parameters, _: ledger.administration.occupancy(
            _subnet(parameters), cluster=parameters.get("cluster")
        ),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/grow",
        sentence="Give a subnet a larger CIDR, or a further one",
        takes=m.Growth,
        gives=m.SubnetState,
        answer=lambda ledger, parameters, message: ledger.administration.grow(_subnet(parameters), message),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/drain",
        sentence="Grant nothing in a subnet any more",
        gives=m.SubnetState,
        answer=lambda ledger, parameters, _: ledger.administration.drain(_subnet(parameters), draining=True),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/reopen",
        sentence="Grant in a subnet again",
        gives=m.SubnetState,
        answer=lambda ledger, parameters, _: ledger.administration.drain(_subnet(parameters), draining=False),
    ),
    Route(
        method="GET",
        path="/v1/history/addresses/{address}",
        sentence="Tell who held an address, down to the Pod: at a moment, or ever",
        optional=("at", "cluster", "limit"),
        gives=f.History,
        access=Access.SELF,
        answer=_past("address"),
    ),
    Route(
        method="GET",
        path="/v1/history/nodes/{node}",
        sentence="Tell what a node held: at a moment, or ever",
        optional=("at", "cluster", "limit"),
        gives=f.History,
        access=Access.SELF,
        answer=_past("node"),
    ),
    Route(
        method="GET",
        path="/v1/history/pods/{name}",
        sentence="Tell which addresses a Pod had, also one that is gone: at a moment, or ever",
        optional=("namespace", "at", "cluster", "limit"),
        gives=f.History,
        access=Access.SELF,
        answer=_past("name"),
    ),
    Route(
        method="GET",
        path="/v1/recovery",
        sentence="Show whom the ledger waits for after a restore, and which addresses have two owners",
        gives=m.Recovery,
        answer=lambda ledger, *_: ledger.administration.recovery(),
    ),
    Route(
        method="POST",
        path="/v1/recovery/excuse",
        sentence="Wait for a cluster's list no longer",
        takes=m.Excuse,
        gives=m.Recovery,
        answer=lambda ledger, _, message: ledger.administration.excuse(message),
    ),
    Route(
        method="POST",
        path="/v1/recovery/settle",
        sentence="Give an address with two owners to one of them",
        takes=m.Settle,
        gives=m.Recovery,
        answer=lambda ledger, _, message: ledger.administration.settle(message),
    ),
    Route(
        method="GET",
        path="/v1/clusters",
        sentence="Show all clusters",
        gives=f.Clusters,
        answer=lambda ledger, *_: ledger.administration.clusters(),
    ),
    Route(
        method="POST",
        path="/v1/clusters/{cluster}/confirm-loss",
        sentence="Agree that the nodes which a cluster lost are lost",
        gives=f.Clusters,
        answer=lambda ledger, parameters, _: ledger.administration.confirm_loss(parameters["cluster"]),
    ),
    Route(
        method="POST",
        path="/v1/clusters/{cluster}/retire",
        sentence="Take back what a destroyed cluster held",
        gives=f.Retired,
        answer=lambda ledger, parameters, _: ledger.administration.retire(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        sentence="Show all tokens",
        gives=f.Tokens,
        answer=lambda ledger, *_: ledger.administration.tokens(),
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        sentence="Make a token; its secret is told once",
        takes=f.NewToken,
        gives=f.Token,
        answer=lambda ledger, _, message: ledger.administration.create_token(message),
    ),
    Route(
        method="DELETE",
        path="/v1/tokens/{token}",
        sentence="Revoke a token, by its name or id",
        gives=f.Token,
        answer=lambda ledger, parameters, _: ledger.administration.revoke_token(parameters["token"]),
    ),
    Route(
        method="GET",
        path="/healthz",
        sentence="Tell that the process lives",
        gives=dict[str, str],
        access=Access.OPEN,
        answer=_fine,
    ),
    Route(
        method="GET",
        path="/readyz",
        sentence="Tell that the books can be read",
        gives=dict[str, str],
        access=Access.OPEN,
        answer=_ready,
    ),
)
_PATTERNS = [(route, route.pattern) for route in ROUTES if "{" in route.path]
_PLAIN = {(route.method, route.path): route for route in ROUTES if "{" not in route.path}


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Find a call, and what its path says."""
    plain = _PLAIN.get((method, path))
    if plain is not None:
        return plain, {}
    found = [(route, match) for route, pattern in _PATTERNS if (match := pattern.fullmatch(path))]
    for route, match in found:
        if route.method == method:
            return route, match.groupdict()
    others = sorted({route.method for route, _ in found} | {verb for verb, there in _PLAIN if there == path})
    if others:
        raise WrongMethod(f"{path} is for {' and '.join(others)}, not {method}", field="method")
    raise NotFound(f"there is nothing at {path}", field="path")
