"""Options of a network configuration that is served from the node's pool: routes, DNS and requested addresses.

| option | effect |
|---|---|
| `ipam.routes` | the routes of the result, exactly, as with host-local |
| none | a default route, on the interface of the Pod's default network only: a secondary network must not replace it |
| `ipam.dns` | the DNS of the result |
| `IP` in CNI_ARGS, `runtimeConfig.ips`, `args.cni.ips` | these addresses, or the ADD fails |
| `GATEWAY` in CNI_ARGS | refused: the gateway is the subnet's |
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from podpool.cni.protocol import CniError, ErrorCode, PluginRequest, ResultExtras
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import read_object, read_struct
from podpool.whereabouts.config import parse_routes
from podpool.whereabouts.raw_config import DnsConfig

DEFAULT_INTERFACE = "eth0"
"""The interface of a Pod's default network, with containerd, CRI-O and Multus; Multus names others net1 and so on."""
CACHE_SIZE = 64
"""Parsed configurations that are kept; nearly all requests have the same."""


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one ADD."""

    extras: ResultExtras = ResultExtras()
    addresses: tuple[Address, ...] = ()
    """Requested addresses."""


class _Ipam(msgspec.Struct, frozen=True):
    routes: tuple[dict[str, Any], ...] | None = None
    dns: dict[str, Any] = {}


class _RequestedIPs(msgspec.Struct, frozen=True):
    ips: tuple[str, ...] = ()


class _Args(msgspec.Struct, frozen=True):
    cni: dict[str, Any] = {}


class _Config(msgspec.Struct, frozen=True):
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
    return PoolOptions(extras=extras, addresses=tuple(dict.fromkeys(addresses)))


def _requested_by_args(arguments: Mapping[str, str]) -> Iterator[Address]:
    if arguments.get("GATEWAY"):
        raise InvalidInput("CNI_ARGS GATEWAY", arguments["GATEWAY"], "the gateway is the subnet's: remove it")
    for text in arguments.get("IP", "").split(","):
        if text.strip():
            yield _address(text, what="CNI_ARGS IP")


def _address(text: str, *, what: str) -> Address:
    """Parse an address, with or without a prefix length, which the subnet decides."""
    return parse_address(text.strip().partition("/")[0], what=what)
