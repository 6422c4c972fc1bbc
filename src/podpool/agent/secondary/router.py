"""Which source answers for which configuration.

One without ranges is for the node's own pool, unless it calls us `whereabouts`. The ranges of another are all of the
node's slices, or all shared by the nodes. A DEL and a GC go to both sources, whatever the configuration has become
since the ADD.
"""

from collections.abc import Callable
from functools import lru_cache

from podpool.agent.records import Attachment, PodIdentity
from podpool.agent.secondary.address_source import AddressRequest, AddressSource
from podpool.cni.protocol import CniError, ErrorCode, PluginRequest
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.runtime.clock import Clock
from podpool.whereabouts.cni_args import CniArgs, PodInterface, parse_cni_args
from podpool.whereabouts.cni_json import read_network_config, read_struct
from podpool.whereabouts.config import IpamConfig, parse_ipam_config
from podpool.whereabouts.raw_config import RawIpamConfig, flat_file_paths, uses_node_pool

CONFIG_CACHE_SIZE = 64
"""Configurations that need not be read again."""
REQUEST_TIMEOUT = 25.0
"""Seconds for which an answer is worth waiting for: the plugin waits 30."""

ReadFile = Callable[[str], bytes | None]
"""Read a file of the machine; None when there is none, `InvalidInput` when it is none."""


class Router:
    """The node's slices and the shared ranges, as one."""

    def __init__(self, *, sliced: AddressSource, shared: AddressSource, clock: Clock, read_file: ReadFile) -> None:
        self._sliced = sliced
        self._shared = shared
        self._clock = clock
        self._read_file = read_file

    def want(self, request: PluginRequest, pod: PodIdentity) -> AddressRequest | None:
        """Read what a request wants of us; None when it is for the node's own pool; raises `CniError`."""
        files = _flat_files(request.stdin)
        if files is None:
            return None
        owner, asked = _told(request, pod)
        try:
            flat = next((each for each in map(self._read_file, files) if each is not None), None)
            config = _config(request.stdin, flat, asked)
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error
        deadline = self._clock.boot() + REQUEST_TIMEOUT
        return AddressRequest(config=config, owner=owner, pod=pod, deadline=deadline)

    async def give(self, want: AddressRequest) -> tuple[Address, ...]:
        """Give an address of each range, or nothing."""
        return await self._source(want).give(want) if want.ranges else ()

    async def give_back(self, sandbox: Attachment, want: AddressRequest | None) -> None:
        """Take back what a sandbox's interface has, and look for it in shared ranges of the want."""
        await self._sliced.give_back(sandbox)
        await self._shared.give_back(sandbox, _shared(want))

    def release(self, sandbox: Attachment, want: AddressRequest | None) -> None:
        """See that this is done."""
        self._sliced.release(sandbox)
        self._shared.release(sandbox, _shared(want))

    async def check(self, want: AddressRequest) -> tuple[Address, ...]:
        """Tell what the sandbox's interface has; `CHECK_MISMATCH` when that is not one of each range."""
        return await self._source(want).check(want) if want.ranges else ()

    async def collect(self, network: str, valid: frozenset[Attachment]) -> None:
        """Take back what sandboxes have in a network that are not valid any more."""
        await self._sliced.collect(network, valid)
        await self._shared.collect(network, valid)

    def _source(self, want: AddressRequest) -> AddressSource:
        """Find who answers; a configuration of both kinds is refused, by the controller too."""
        try:
            want.config.check_sizes()
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return self._sliced if want.config.sliced else self._shared


def reject_ranges(stdin: bytes) -> None:
    """Refuse a configuration that is not for the node's own pool, where that is all there is; raises `CniError`."""
    if _flat_files(stdin) is not None:
        told = "the configuration asks for addresses of ranges, and this agent serves none: start it with"
        raise CniError(ErrorCode.INVALID_CONFIG, f"{told} --whereabouts-namespace, where the IPPools are")


def _flat_files(stdin: bytes) -> tuple[str, ...] | None:
    """Tell where a configuration's flat file may be; None when it is for the node's own pool, or not for us at all."""
    told = stdin.lower()
    if b"range" not in told and b"whereabouts" not in told:
        return None  # cheaply: the way of nearly all
    try:
        return _flat_files_of(stdin)
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error


@lru_cache(maxsize=CONFIG_CACHE_SIZE)
def _flat_files_of(stdin: bytes) -> tuple[str, ...] | None:
    network = read_network_config(stdin)
    if not network.ours:
        return None
    inline = read_struct(network.ipam or {}, RawIpamConfig, at="ipam")
    return None if uses_node_pool(inline) else flat_file_paths(inline)


@lru_cache(maxsize=CONFIG_CACHE_SIZE)
def _config(stdin: bytes, flat: bytes | None, addresses: CniArgs) -> IpamConfig:
    """Read a configuration; all Pods of a network have the same, but for the addresses that somebody asks for one."""
    return parse_ipam_config(read_network_config(stdin), flat=flat, arguments=addresses)


def _told(request: PluginRequest, pod: PodIdentity) -> tuple[PodInterface, CniArgs]:
    """Read who asks, and for which addresses beside; only an ADD must tell its Pod, for others to see whose it is."""
    container, ifname = request.container_id, request.ifname
    if request.command != "ADD":
        return PodInterface(podref=f"{pod.namespace}/{pod.name}", container=container, ifname=ifname), CniArgs()
    try:
        arguments = parse_cni_args(request.args)
        owner = arguments.owner(container=container, ifname=ifname)
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, str(error)) from error
    return owner, CniArgs(addresses=arguments.addresses, gateways=arguments.gateways)


def _shared(want: AddressRequest | None) -> AddressRequest | None:
    """Tell where a sandbox may have something of shared ranges, by its configuration."""
    return None if want is None or want.config.sliced else want
