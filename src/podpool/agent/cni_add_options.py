"""Options of a network configuration that is served from the node's pool: routes, DNS and requested addresses.

| option | effect |
|---|---|
| `ipam.routes` | the routes of the result, exactly, as with host-local |
| none | a default route, on the interface of the Pod's default network only: a secondary network must not replace it |
| `ipam.dns` | the DNS of the result |
| `IP` in CNI_ARGS, `runtimeConfig.ips`, `args.cni.ips` | these addresses, or the ADD fails |
| `GATEWAY` in CNI_ARGS | refused: the gateway is the subnet's |
| `ipam.gateway`, `addresses`, `ranges`, `subnet`, `node_slice_size` | refused: they choose other addresses |
| `type` | ptp: the gateway is an address of the node (`network_container.node_gateway_of`) |
| any other key of `ipam` | no effect, which is logged |
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from podpool.cni.protocol import CniError, ErrorCode, PluginRequest, ResultExtras
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import field_names, read_object, read_struct
from podpool.whereabouts.config import parse_routes
from podpool.whereabouts.config_merge import MAX_KEY_LENGTH, MAX_UNKNOWN_KEYS, DnsConfig

DEFAULT_INTERFACE = "eth0"
"""The interface of a Pod's default network, with containerd, CRI-O and Multus; Multus names others net1 and so on."""
ROUTING_PLUGIN = "ptp"
"""The interface plugin whose Pods are behind the node: the runtime passes its configuration on."""
CACHE_SIZE = 64
"""Parsed configurations that are kept; nearly all requests have the same."""


_REFUSED = {
    "gateway": "the gateway is the subnet's: remove it",
    "addresses": "the node's pool has no static addresses: remove it, and request one with runtimeConfig.ips",
    "ranges": "is host-local's: remove it to use the node's pool, or set ipam.range",
    "subnet": "is host-local's: remove it to use the node's pool, or set ipam.range",
    "node_slice_size": "there is no range to divide: remove it to use the node's pool, or set ipam.range",
}
"""Keys that would give a Pod other addresses than it gets, and what to do."""


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one ADD."""

    extras: ResultExtras = ResultExtras()
    addresses: tuple[Address, ...] = ()
    """Requested addresses."""
    behind_node: bool = False
    """The interface plugin puts the gateway on the node's end of a veth."""
    ignored: tuple[str, ...] = ()
    """Keys of `ipam` that have no effect; some of them if many."""


class _Ipam(msgspec.Struct, frozen=True):
    type: Any = ""
    routes: tuple[dict[str, Any], ...] | None = None
    dns: dict[str, Any] = {}


class _RequestedIPs(msgspec.Struct, frozen=True):
    ips: tuple[str, ...] = ()


class _Args(msgspec.Struct, frozen=True):
    cni: dict[str, Any] = {}


class _Config(msgspec.Struct, frozen=True):
    type: Any = ""
    ipam: dict[str, Any] = {}
    runtime_config: dict[str, Any] = msgspec.field(name="runtimeConfig", default={})
    args: dict[str, Any] = {}


def parse_pool_options(request: PluginRequest) -> PoolOptions:
    """Return the options of an ADD; raises `CniError`."""
    try:
        requested = tuple(_requested_by_args(request.arguments()))
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, str(error)) from error
    try:
        options = _parse_config(request.stdin, default_network=request.ifname == DEFAULT_INTERFACE)
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error
    addresses = tuple(dict.fromkeys((*requested, *options.addresses)))
    return msgspec.structs.replace(options, addresses=addresses) if requested else options


@lru_cache(maxsize=CACHE_SIZE)
def _parse_config(stdin: bytes, *, default_network: bool) -> PoolOptions:
    config = read_struct(read_object(stdin, what="configuration"), _Config)
    ignored = _ignored_keys(config.ipam)
    ipam = read_struct(config.ipam, _Ipam, at="ipam")
    routes = parse_routes(ipam.routes or ())
    dns = read_struct(ipam.dns, DnsConfig, at="ipam.dns")
    by_runtime = read_struct(config.runtime_config, _RequestedIPs, at="runtimeConfig").ips
    by_args = read_struct(read_struct(config.args, _Args, at="args").cni, _RequestedIPs, at="args.cni").ips
    addresses = (
        *(_address(each, what="runtimeConfig.ips") for each in by_runtime),
        *(_address(each, what="args.cni.ips") for each in by_args),
    )
    extras = ResultExtras(
        routes=None if ipam.routes is None and default_network else routes, dns=msgspec.to_builtins(dns)
    )
    return PoolOptions(
        extras=extras,
        addresses=tuple(dict.fromkeys(addresses)),
        behind_node=config.type == ROUTING_PLUGIN,
        ignored=ignored,
    )


def _ignored_keys(ipam: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys without effect; raises `InvalidInput` for one that would choose other addresses."""
    present = [key for key, value in ipam.items() if value or value is False or value == 0]  # an empty one is absent
    for key in present:
        if reason := _REFUSED.get(key.lower()):
            raise InvalidInput(f"ipam.{key.lower()}", ipam[key], reason)
    ignored = (key[:MAX_KEY_LENGTH] for key in present if key.lower() not in field_names(_Ipam))
    return tuple(sorted(dict.fromkeys(ignored))[:MAX_UNKNOWN_KEYS])


def _requested_by_args(arguments: Mapping[str, str]) -> Iterator[Address]:
    if arguments.get("GATEWAY"):
        raise InvalidInput("CNI_ARGS GATEWAY", arguments["GATEWAY"], "the gateway is the subnet's: remove it")
    for text in arguments.get("IP", "").split(","):
        if text.strip():
            yield _address(text, what="CNI_ARGS IP")


def _address(text: str, *, what: str) -> Address:
    """Parse an address, with or without a prefix length, which the subnet decides."""
    return parse_address(text.strip().partition("/")[0], what=what)
