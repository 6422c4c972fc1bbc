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

    AUTHENTICATED = "any token"
    OWN_CLUSTER = "a cluster's token, which sees only its own cluster, or an admin token"
    CLUSTER = "a cluster's token"
    ADMIN = "an admin token"


class Route(msgspec.Struct, frozen=True):
    """One call."""

    pattern: str
    """Method and path; parts in braces are parameters."""
    summary: str
    response: Any
    handler: RouteHandler
    request: Any = None
    query: tuple[str, ...] = ()
    """Required query parameters."""
    optional: tuple[str, ...] = ()
    """Optional query parameters."""
    access: Access = Access.ADMIN
    stream: bool = False
    """The response is a stream of server-sent events."""
    max_body: int = 64 * _KIB
    """Bytes."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.pattern.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with its parameters in braces."""
        return self.pattern.partition(" ")[2]


def _subnet(parameters: Mapping[str, str]) -> m.SubnetName:
    return m.SubnetName(network=parameters["network"], name=parameters["subnet"])


def _history(by: Literal["address", "node", "name"]) -> RouteHandler:
    def handler(ledger: LedgerService, parameters: Mapping[str, str], _message: object) -> Awaitable[am.AddressHistory]:
        options = {name: parameters.get(name) for name in ("namespace", "cluster", "at", "limit")}
        return ledger.admin.history(by, parameters[by], **options)

    return handler


ROUTES: tuple[Route, ...] = (
    Route(
        "POST /v1/reconcile",
        "Bring many network containers to their desired state",
        m.ReconcileResponse,
        lambda ledger, _, message: ledger.reconcile(message),
        request=m.ReconcileRequest,
        access=Access.CLUSTER,
        max_body=16 * _MIB,
    ),
    Route(
        "POST /v1/terms",
        "Open a term; the first call of each new leader of a cluster",
        m.Term,
        lambda ledger, _, message: ledger.open_term(message),
        request=m.OpenTermRequest,
        access=Access.CLUSTER,
    ),
    Route(
        "POST /v1/inventory",
        "Send the inventory of a cluster after the ledger was restored",
        m.InventoryResponse,
        lambda ledger, _, message: ledger.apply_inventory(message),
        request=m.Inventory,
        access=Access.CLUSTER,
        max_body=64 * _MIB,
    ),
    Route(
        "POST /v1/pods",
        "Report the addresses that Pods use or used",
        am.PodReportResponse,
        lambda ledger, _, message: ledger.record_pods(message),
        request=am.PodReport,
        access=Access.CLUSTER,
        max_body=4 * _MIB,
    ),
    Route(
        "GET /v1/network-containers",
        "List the open network containers of a cluster, in one network or all",
        m.NetworkContainerList,
        lambda ledger, parameters, _: ledger.network_containers(
            parameters["cluster"], network=parameters.get("network")
        ),
        query=("cluster",),
        optional=("network",),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        "GET /v1/changes",
        "Stream the state of all subnets, or of one network's, and their changes, with who can be served",
        m.SubnetChange,
        lambda ledger, parameters, _: ledger.changes(parameters["cluster"], network=parameters.get("network", "")),
        query=("cluster",),
        optional=("network",),
        access=Access.OWN_CLUSTER,
        stream=True,
    ),
    Route(
        "GET /networks/{network}/subnets/{subnet}/utilization",
        "Show the utilization of a subnet, from a cache",
        list[m.Utilization],
        lambda ledger, parameters, _: ledger.utilization(_subnet(parameters)),
        optional=("api-version",),  # callers of DNC send it
        access=Access.AUTHENTICATED,
    ),
    Route(
        "GET /v1/networks",
        "List all networks",
        am.NetworkList,
        lambda ledger, *_: ledger.admin.networks(),
        access=Access.AUTHENTICATED,
    ),
    Route(
        "GET /v1/subnets",
        "List all subnets",
        m.SubnetList,
        lambda ledger, *_: ledger.subnets(),
        access=Access.AUTHENTICATED,
    ),
    Route(
        "POST /v1/subnets",
        "Create a subnet; if it exists with the same spec, return it",
        m.SubnetState,
        lambda ledger, _, message: ledger.admin.create_subnet(message),
        request=m.SubnetSpec,
    ),
    Route(
        f"GET {_SUBNET}",
        "Show a subnet",
        m.SubnetState,
        lambda ledger, parameters, _: ledger.subnet(_subnet(parameters)),
        access=Access.AUTHENTICATED,
    ),
    Route(
        f"DELETE {_SUBNET}",
        "Delete an empty subnet",
        am.DeletedSubnet,
        lambda ledger, parameters, _: ledger.admin.delete(_subnet(parameters)),
    ),
    Route(
        f"GET {_SUBNET}/details",
        "Show the spec, the growths and the usage per cluster of a subnet",
        am.SubnetDetails,
        lambda ledger, parameters, _: ledger.admin.details(_subnet(parameters), cluster=parameters.get("cluster")),
        optional=("cluster",),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        f"GET {_SUBNET}/addresses",
        "List the addresses of a subnet that are not free, with their owner or the end of their cooldown",
        am.Occupancy,
        lambda ledger, parameters, _: ledger.admin.occupancy(_subnet(parameters), cluster=parameters.get("cluster")),
        optional=("cluster",),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        f"POST {_SUBNET}/grow",
        "Give a subnet a larger or an additional CIDR",
        m.SubnetState,
        lambda ledger, parameters, message: ledger.admin.grow(_subnet(parameters), message),
        request=m.SubnetGrowth,
    ),
    Route(
        f"POST {_SUBNET}/drain",
        "Stop granting addresses of a subnet",
        m.SubnetState,
        lambda ledger, parameters, _: ledger.admin.drain(_subnet(parameters), draining=True),
    ),
    Route(
        f"POST {_SUBNET}/reopen",
        "Grant addresses of a drained subnet again",
        m.SubnetState,
        lambda ledger, parameters, _: ledger.admin.drain(_subnet(parameters), draining=False),
    ),
    Route(
        "GET /v1/history/addresses/{address}",
        "Show which nodes and Pods held an address, at one time or ever",
        am.AddressHistory,
        _history("address"),
        optional=("at", "cluster", "limit"),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        "GET /v1/history/nodes/{node}",
        "Show which addresses a node held, at one time or ever",
        am.AddressHistory,
        _history("node"),
        optional=("at", "cluster", "limit"),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        "GET /v1/history/pods/{name}",
        "Show which addresses a Pod used, also a deleted one, at one time or ever",
        am.AddressHistory,
        _history("name"),
        optional=("namespace", "at", "cluster", "limit"),
        access=Access.OWN_CLUSTER,
    ),
    Route(
        "GET /v1/recovery",
        "Show the inventories that are missing after a restore, and the ownership conflicts",
        m.RecoveryStatus,
        lambda ledger, *_: ledger.admin.recovery(),
    ),
    Route(
        "POST /v1/recovery/excuse",
        "Recover without the inventory of a cluster",
        m.RecoveryStatus,
        lambda ledger, _, message: ledger.admin.excuse(message),
        request=m.ExcuseRequest,
    ),
    Route(
        "POST /v1/recovery/resolve",
        "Assign an address with two owners to one of them",
        m.RecoveryStatus,
        lambda ledger, _, message: ledger.admin.resolve_conflict(message),
        request=m.ResolveConflictRequest,
    ),
    Route("GET /v1/clusters", "List all clusters", am.ClusterList, lambda ledger, *_: ledger.admin.clusters()),
    Route(
        "POST /v1/clusters/{cluster}/confirm-loss",
        "Confirm the loss of a cluster's nodes, which closes its circuit breaker",
        am.ClusterList,
        lambda ledger, parameters, _: ledger.admin.confirm_loss(parameters["cluster"]),
    ),
    Route(
        "POST /v1/clusters/{cluster}/retire",
        "Release everything that a destroyed cluster held",
        am.RetiredCluster,
        lambda ledger, parameters, _: ledger.admin.retire(parameters["cluster"]),
    ),
    Route(
        "GET /v1/audit-log",
        "List the latest administrative calls",
        am.AuditLog,
        lambda ledger, parameters, _: ledger.admin.audit_log(limit=parameters.get("limit")),
        optional=("limit",),
    ),
    Route("GET /v1/tokens", "List all tokens", am.TokenList, lambda ledger, *_: ledger.admin.tokens()),
    Route(
        "POST /v1/tokens",
        "Create a token; its secret is returned only now",
        am.TokenInfo,
        lambda ledger, _, message: ledger.admin.create_token(message),
        request=am.CreateTokenRequest,
    ),
    Route(
        "POST /v1/tokens/{token}/rotate",
        "Create a new token for the cluster of a token, which stays valid for a while; its secret is returned only now",
        am.TokenInfo,
        lambda ledger, parameters, message: ledger.admin.rotate_token(parameters["token"], message),
        request=am.RotateTokenRequest,
    ),
    Route(
        "DELETE /v1/tokens/{token}",
        "Revoke a token by its ID, or all tokens of a name",
        am.TokenInfo,
        lambda ledger, parameters, _: ledger.admin.revoke_token(parameters["token"]),
    ),
)
_PATTERNS = [
    (route, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route.path))) for route in ROUTES if "{" in route.path
]
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
