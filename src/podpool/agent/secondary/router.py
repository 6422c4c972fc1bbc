"""Address requests of the plugin, and the source that serves each.

A configuration without ranges is for the node's pool, unless its type is `whereabouts`. The ranges of any other are all
sliced or all shared, and each kind is a source. DEL and GC go to both sources, because the configuration may have
changed since the ADD.
"""

from contextlib import suppress
from functools import lru_cache
from typing import Protocol

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.netns import recorded_netns
from podpool.agent.records import PodIdentity
from podpool.agent.secondary.flat_file import FlatFileUnavailable
from podpool.cni.protocol import Attachment, CniError, ErrorCode, PluginRequest
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.runtime.logging import OnceLogger
from podpool.whereabouts.cni_args import CniArgs, PodInterface, parse_cni_args
from podpool.whereabouts.cni_json import read_network_config, read_struct
from podpool.whereabouts.config import IpamConfig, RangeConfig, parse_ipam_config
from podpool.whereabouts.config_merge import RawIpamConfig, uses_node_pool

CONFIG_CACHE_SIZE = 64
"""Parsed configurations, and flat files, that are kept."""
FLAT_FILE_MAX_AGE = 2.0
"""Seconds after which the flat file is read again: an administrator's change applies soon, and an ADD seldom waits."""
REQUEST_TIMEOUT = 25.0
"""Seconds within which a request must be answered: the plugin waits 30."""


class AddressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of one sandbox, and the ranges that it needs addresses of."""

    config: IpamConfig
    owner: PodInterface
    deadline: float = 0.0
    """When the answer is due, on the boot clock."""
    pod_uid: str = ""
    netns: str = ""

    @property
    def ranges(self) -> tuple[RangeConfig, ...]:
        """The ranges, each of which needs an address."""
        return self.config.ranges

    @property
    def attachment(self) -> Attachment:
        """The owner without its Pod, as the journal contains it."""
        return Attachment(container_id=self.owner.container_id, ifname=self.owner.ifname)


class _FlatFile(msgspec.Struct, frozen=True):
    content: bytes | None
    """None if there is none."""
    read_at: float


class AddressSource(Protocol):
    """Allocates addresses of ranges. Failures are raised as `CniError`.

    A request gets an address of all its ranges or of none. The same owner gets the same addresses again. To release
    what is not allocated succeeds.
    """

    async def allocate(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return one address per range, in their order."""

    async def release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        """Release what an interface is known to have, and what it has in any range of the request."""

    def schedule_release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        """Record that the same is to be released, without waiting. It is released even if the agent restarts."""

    async def check(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return what the owner has, in the order of the ranges; raises `CHECK_MISMATCH` if a range has nothing."""

    async def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        """Release what attachments that are not valid have in a CNI network."""


class Router:
    """The slices and the shared ranges as one source."""

    def __init__(self, deps: AgentDeps, *, sliced: AddressSource, shared: AddressSource) -> None:
        self._deps = deps
        self._sliced = sliced
        self._shared = shared
        self._flat_files: dict[str, _FlatFile | InvalidInput | FlatFileUnavailable] = {}
        """By `configuration_path`, the last read at the end."""
        self._once_log = OnceLogger(deps.log)

    async def read_flat_file(self, request: PluginRequest) -> None:
        """Read the flat file of a configuration, unless it was read within the last seconds; `parse` then uses it."""
        with suppress(CniError):  # which `parse` raises
            path = _flat_file_path(request.stdin)
            if path is None:
                return
            now, known = self._deps.clock.boot(), self._flat_files.get(path)
            if isinstance(known, _FlatFile) and now - known.read_at < FLAT_FILE_MAX_AGE:
                return
            try:
                self._keep_flat_file(path, _FlatFile(await self._deps.read_flat_file(path), now))
            except InvalidInput as error:
                self._keep_flat_file(path, error)
            except FlatFileUnavailable as error:
                last = self._flat_files.get(path)
                self._keep_flat_file(path, last if isinstance(last, _FlatFile) else error)

    def _keep_flat_file(self, path: str, read: _FlatFile | InvalidInput | FlatFileUnavailable) -> None:
        self._flat_files.pop(path, None)
        self._flat_files[path] = read
        if len(self._flat_files) > CONFIG_CACHE_SIZE:
            del self._flat_files[next(iter(self._flat_files))]

    def parse(self, request: PluginRequest) -> AddressRequest | None:
        """Parse a request of the plugin, with its flat file as last read. None if it is for the node's pool.

        Raises `CniError`.
        """
        path = _flat_file_path(request.stdin)
        if path is None:
            return None
        pod = pod_identity(request)
        owner, args = _owner(request, pod)
        flat = self._flat_files.get(path)
        if isinstance(flat, FlatFileUnavailable):
            raise CniError(ErrorCode.TRY_AGAIN_LATER, str(flat)) from flat
        try:
            if isinstance(flat, InvalidInput):
                raise flat
            config = _config(request.stdin, flat.content if flat else None, args)
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error
        self._report_unknown_keys(config)
        deadline, netns = self._deps.clock.boot() + REQUEST_TIMEOUT, recorded_netns(request.netns)
        return AddressRequest(config=config, owner=owner, deadline=deadline, pod_uid=pod.uid, netns=netns)

    async def allocate(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return one address per range; none for a request with only static addresses."""
        if not request.ranges and not request.config.addresses:
            remedy = "set ipam.range or ipam.ipRanges, or mount the flat file that has it"
            raise CniError(ErrorCode.INVALID_CONFIG, f"the configuration has no range: {remedy}")
        return await self._source(request).allocate(request) if request.ranges else ()

    async def release(self, attachment: Attachment, request: AddressRequest | None) -> None:
        """Release what an interface has in slices, and in shared ranges also what the request names."""
        await self._sliced.release(attachment)
        await self._shared.release(attachment, _if_shared(request))

    def schedule_release(self, attachment: Attachment, request: AddressRequest | None) -> None:
        """Record that the same is to be released."""
        self._sliced.schedule_release(attachment)
        self._shared.schedule_release(attachment, _if_shared(request))

    async def check(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return what the interface has; raises `CHECK_MISMATCH` if a range has nothing."""
        return await self._source(request).check(request) if request.ranges else ()

    async def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        """Release what attachments that are not valid have in a CNI network."""
        await self._sliced.collect_garbage(network, valid)
        await self._shared.collect_garbage(network, valid)

    def _report_unknown_keys(self, config: IpamConfig) -> None:
        """Log the keys of a network that are skipped, once."""
        if config.unknown_keys:
            event, keys = "network configuration has unknown keys, which have no effect", ", ".join(config.unknown_keys)
            self._once_log.warning(event, key=config.name, network=config.name, keys=keys)

    def _source(self, request: AddressRequest) -> AddressSource:
        """Return the source of a request. A configuration of both kinds is rejected, also by the controller."""
        try:
            request.config.check_slice_sizes()
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return self._sliced if request.config.sliced else self._shared


def pod_identity(request: PluginRequest) -> PodIdentity:
    """Return the Pod that CNI_ARGS names."""
    arguments = request.arguments()
    return PodIdentity(
        namespace=arguments.get("K8S_POD_NAMESPACE", ""),
        name=arguments.get("K8S_POD_NAME", ""),
        uid=arguments.get("K8S_POD_UID", ""),
    )


def reject_ranges(stdin: bytes) -> None:
    """Raise `CniError` for a configuration with ranges: this agent serves only the node's pool."""
    if _flat_file_path(stdin) is not None:
        reason = "the configuration has ranges, but this agent serves only the node's pool"
        raise CniError(ErrorCode.INVALID_CONFIG, f"{reason}: start it with --whereabouts-namespace")


def _flat_file_path(stdin: bytes) -> str | None:
    """Return the `configuration_path`; None if the configuration is for the node's pool or another plugin."""
    text = stdin.lower()
    if b"range" not in text and b"whereabouts" not in text:
        return None  # fast path: nearly all requests are for the node's pool
    try:
        return _parse_flat_file_path(stdin)
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error


@lru_cache(maxsize=CONFIG_CACHE_SIZE)
def _parse_flat_file_path(stdin: bytes) -> str | None:
    network = read_network_config(stdin)
    if not network.is_served:
        return None
    inline = read_struct(network.ipam or {}, RawIpamConfig, at="ipam")
    return None if uses_node_pool(inline) else inline.configuration_path


@lru_cache(maxsize=CONFIG_CACHE_SIZE)
def _config(stdin: bytes, flat: bytes | None, args: CniArgs) -> IpamConfig:
    """Parse a configuration. All Pods of a network share it, apart from static addresses in CNI_ARGS."""
    return parse_ipam_config(read_network_config(stdin), flat=flat, args=args)


def _owner(request: PluginRequest, pod: PodIdentity) -> tuple[PodInterface, CniArgs]:
    """Return the owner and the static addresses of CNI_ARGS. Only an ADD must name its Pod."""
    container_id, ifname = request.container_id, request.ifname
    if request.command != "ADD":
        podref = f"{pod.namespace}/{pod.name}"
        return PodInterface(podref=podref, container_id=container_id, ifname=ifname), CniArgs()
    try:
        args = parse_cni_args(request.args)
        owner = args.pod_interface(container_id=container_id, ifname=ifname)
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_ENVIRONMENT, str(error)) from error
    return owner, CniArgs(addresses=args.addresses, gateways=args.gateways)


def _if_shared(request: AddressRequest | None) -> AddressRequest | None:
    return None if request is None or request.config.sliced else request
