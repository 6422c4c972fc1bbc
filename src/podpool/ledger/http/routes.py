"""The route table: path, request, response, permission and handler of every call of the ledger.

Request handling, authorization, metrics, the OpenAPI document and the reference are all derived from this table.
"""

import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from podpool.ledger import admin_messages as am
from podpool.ledger import messages as m
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import MethodNotAllowed, NotFound

RouteHandler = Callable[[LedgerService, Mapping[str, str], Any], Any]
"""Called with the service, the parameters and the decoded body; returns an awaitable, or the events of a stream."""

_KIB = 1024
_MIB = 1024 * _KIB
_SUBNET = "/v1/networks/{network}/subnets/{subnet}"


class Access(enum.Enum):
    """Who may make a call."""

    PUBLIC = "no token required"
    AUTHENTICATED = "any token"
    OWN_CLUSTER = "a cluster's token, which sees only its own cluster, or an admin token"
    CLUSTER = "a cluster's token"
    ADMIN = "an admin token"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    method: str
    path: str
    """Parts in braces are parameters."""
    summary: str
    query: tuple[str, ...] = ()
    """Required query parameters."""
    optional: tuple[str, ...] = ()
    """Optional query parameters."""
    request: Any = None
    response: Any
    access: Access = Access.ADMIN
    stream: bool = False
    """The response is a stream of server-sent events."""
    max_body: int = 64 * _KIB
    """Bytes."""
    handler: RouteHandler

    @property
    def pattern(self) -> re.Pattern[str]:
        """A regular expression for its paths."""
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path))


def _subnet(parameters: Mapping[str, str]) -> m.SubnetName:
    return m.SubnetName(network=parameters["network"], name=parameters["subnet"])


async def _healthz(_ledger: LedgerService, _parameters: Mapping[str, str], _message: object) -> object:
    return {"status": "ok"}


async def _readyz(ledger: LedgerService, _parameters: Mapping[str, str], _message: object) -> object:
    await ledger.subnets()  # fails if the database does not answer
    return {"status": "ok"}


def _history(by: Literal["address", "node", "name"]) -> RouteHandler:
    def handler(ledger: LedgerService, parameters: Mapping[str, str], _message: object) -> Awaitable[am.AddressHistory]:
        options = {name: parameters.get(name) for name in ("namespace", "cluster", "at", "limit")}
        return ledger.admin.history(by, parameters[by], **options)

    return handler


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/reconcile",
        summary="Bring many network containers to their desired state",
        request=m.ReconcileRequest,
        response=m.ReconcileResponse,
        access=Access.CLUSTER,
        max_body=16 * _MIB,
        handler=lambda ledger, _, message: ledger.reconcile(message),
    ),
    Route(
        method="POST",
        path="/v1/terms",
        summary="Open a term; the first call of each new leader of a cluster",
        request=m.OpenTermRequest,
        response=m.Term,
        access=Access.CLUSTER,
        handler=lambda ledger, _, message: ledger.open_term(message),
    ),
    Route(
        method="POST",
        path="/v1/inventory",
        summary="Send the inventory of a cluster after the ledger was restored",
        request=m.Inventory,
        response=m.InventoryResponse,
        access=Access.CLUSTER,
        max_body=64 * _MIB,
        handler=lambda ledger, _, message: ledger.apply_inventory(message),
    ),
    Route(
        method="POST",
        path="/v1/pods",
        summary="Report the addresses that Pods use or used",
        request=am.PodReport,
        response=am.PodReportResponse,
        access=Access.CLUSTER,
        max_body=4 * _MIB,
        handler=lambda ledger, _, message: ledger.record_pods(message),
    ),
    Route(
        method="GET",
        path="/v1/network-containers",
        summary="List the open network containers of a cluster",
        query=("cluster",),
        response=m.NetworkContainerList,
        access=Access.OWN_CLUSTER,
        handler=lambda ledger, parameters, _: ledger.network_containers(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/v1/changes",
        summary="Stream the state of all subnets and their changes, with the network containers that can be served",
        query=("cluster",),
        response=m.SubnetChange,
        access=Access.OWN_CLUSTER,
        stream=True,
        handler=lambda ledger, parameters, _: ledger.changes(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/networks/{network}/subnets/{subnet}/utilization",
        summary="Show the utilization of a subnet, from a cache",
        optional=("api-version",),  # callers of DNC send it
        response=list[m.Utilization],
        access=Access.AUTHENTICATED,
        handler=lambda ledger, parameters, _: ledger.utilization(_subnet(parameters)),
    ),
    Route(
        method="GET",
        path="/v1/networks",
        summary="List all networks",
        response=am.NetworkList,
        access=Access.AUTHENTICATED,
        handler=lambda ledger, *_: ledger.admin.networks(),
    ),
    Route(
        method="GET",
        path="/v1/subnets",
        summary="List all subnets",
        response=m.SubnetList,
        access=Access.AUTHENTICATED,
        handler=lambda ledger, *_: ledger.subnets(),
    ),
    Route(
        method="POST",
        path="/v1/subnets",
        summary="Create a subnet; if it exists with the same spec, return it",
        request=m.SubnetSpec,
        response=m.SubnetState,
        handler=lambda ledger, _, message: ledger.admin.create_subnet(message),
    ),
    Route(
        method="GET",
        path=_SUBNET,
        summary="Show a subnet",
        response=m.SubnetState,
        access=Access.AUTHENTICATED,
        handler=lambda ledger, parameters, _: ledger.subnet(_subnet(parameters)),
    ),
    Route(
        method="DELETE",
        path=_SUBNET,
        summary="Delete an empty subnet",
        response=am.DeletedSubnet,
        handler=lambda ledger, parameters, _: ledger.admin.delete(_subnet(parameters)),
    ),
    Route(
        method="GET",
        path=f"{_SUBNET}/details",
        summary="Show the spec, the growths and the usage per cluster of a subnet",
        optional=("cluster",),
        response=am.SubnetDetails,
        access=Access.OWN_CLUSTER,
        handler=lambda ledger, parameters, _: ledger.admin.details(
            _subnet(parameters), cluster=parameters.get("cluster")
        ),
    ),
    Route(
        method="GET",
        path=f"{_SUBNET}/addresses",
        summary="List the addresses of a subnet that are not free, with their owner or the end of their cooldown",
        optional=("cluster",),
        response=am.Occupancy,
        access=Access.OWN_CLUSTER,
        handler=lambda ledger, parameters, _: ledger.admin.occupancy(
            _subnet(parameters), cluster=parameters.get("cluster")
        ),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/grow",
        summary="Give a subnet a larger or an additional CIDR",
        request=m.SubnetGrowth,
        response=m.SubnetState,
        handler=lambda ledger, parameters, message: ledger.admin.grow(_subnet(parameters), message),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/drain",
        summary="Stop granting addresses of a subnet",
        response=m.SubnetState,
        handler=lambda ledger, parameters, _: ledger.admin.drain(_subnet(parameters), draining=True),
    ),
    Route(
        method="POST",
        path=f"{_SUBNET}/reopen",
        summary="Grant addresses of a drained subnet again",
        response=m.SubnetState,
        handler=lambda ledger, parameters, _: ledger.admin.drain(_subnet(parameters), draining=False),
    ),
    Route(
        method="GET",
        path="/v1/history/addresses/{address}",
        summary="Show which nodes and Pods held an address, at one time or ever",
        optional=("at", "cluster", "limit"),
        response=am.AddressHistory,
        access=Access.OWN_CLUSTER,
        handler=_history("address"),
    ),
    Route(
        method="GET",
        path="/v1/history/nodes/{node}",
        summary="Show which addresses a node held, at one time or ever",
        optional=("at", "cluster", "limit"),
        response=am.AddressHistory,
        access=Access.OWN_CLUSTER,
        handler=_history("node"),
    ),
    Route(
        method="GET",
        path="/v1/history/pods/{name}",
        summary="Show which addresses a Pod used, also a deleted one, at one time or ever",
        optional=("namespace", "at", "cluster", "limit"),
        response=am.AddressHistory,
        access=Access.OWN_CLUSTER,
        handler=_history("name"),
    ),
    Route(
        method="GET",
        path="/v1/recovery",
        summary="Show the inventories that are missing after a restore, and the ownership conflicts",
        response=m.RecoveryStatus,
        handler=lambda ledger, *_: ledger.admin.recovery(),
    ),
    Route(
        method="POST",
        path="/v1/recovery/excuse",
        summary="Recover without the inventory of a cluster",
        request=m.ExcuseRequest,
        response=m.RecoveryStatus,
        handler=lambda ledger, _, message: ledger.admin.excuse(message),
    ),
    Route(
        method="POST",
        path="/v1/recovery/resolve",
        summary="Assign an address with two owners to one of them",
        request=m.ResolveConflictRequest,
        response=m.RecoveryStatus,
        handler=lambda ledger, _, message: ledger.admin.resolve_conflict(message),
    ),
    Route(
        method="GET",
        path="/v1/clusters",
        summary="List all clusters",
        response=am.ClusterList,
        handler=lambda ledger, *_: ledger.admin.clusters(),
    ),
    Route(
        method="POST",
        path="/v1/clusters/{cluster}/confirm-loss",
        summary="Confirm the loss of a cluster's nodes, which closes its circuit breaker",
        response=am.ClusterList,
        handler=lambda ledger, parameters, _: ledger.admin.confirm_loss(parameters["cluster"]),
    ),
    Route(
        method="POST",
        path="/v1/clusters/{cluster}/retire",
        summary="Release everything that a destroyed cluster held",
        response=am.RetiredCluster,
        handler=lambda ledger, parameters, _: ledger.admin.retire(parameters["cluster"]),
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        summary="List all tokens",
        response=am.TokenList,
        handler=lambda ledger, *_: ledger.admin.tokens(),
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        summary="Create a token; its secret is returned only now",
        request=am.CreateTokenRequest,
        response=am.TokenInfo,
        handler=lambda ledger, _, message: ledger.admin.create_token(message),
    ),
    Route(
        method="DELETE",
        path="/v1/tokens/{token}",
        summary="Revoke a token, by its name or ID",
        response=am.TokenInfo,
        handler=lambda ledger, parameters, _: ledger.admin.revoke_token(parameters["token"]),
    ),
    Route(
        method="GET",
        path="/healthz",
        summary="Check that the process runs",
        response=dict[str, str],
        access=Access.PUBLIC,
        handler=_healthz,
    ),
    Route(
        method="GET",
        path="/readyz",
        summary="Check that the database can be read",
        response=dict[str, str],
        access=Access.PUBLIC,
        handler=_readyz,
    ),
)
_PATTERNS = [(route, route.pattern) for route in ROUTES if "{" in route.path]
_FIXED = {(route.method, route.path): route for route in ROUTES if "{" not in route.path}


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the route of a request, and the parameters in its path."""
    fixed = _FIXED.get((method, path))
    if fixed is not None:
        return fixed, {}
    found = [(route, match) for route, pattern in _PATTERNS if (match := pattern.fullmatch(path))]
    for route, match in found:
        if route.method == method:
            return route, match.groupdict()
    others = sorted({route.method for route, _ in found} | {verb for verb, there in _FIXED if there == path})
    if others:
        raise MethodNotAllowed(f"{path} supports {' and '.join(others)}, not {method}", field="method")
    raise NotFound(f"there is no route {path}", field="path")
