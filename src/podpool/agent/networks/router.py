"""Which source answers for which range, and one answer for all of them.

A configuration without ranges is for the node's own pool, unless it calls us `whereabouts`. Each range of another is
of the node's slice, or shared by all nodes. One ADD over both is all or nothing; a DEL and a GC go to both, whatever
the configuration has become since the ADD.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from podpool.agent.networks.source import Source, Want
from podpool.agent.records import Owner as Sandbox
from podpool.agent.records import PodName
from podpool.cni.messages import CniError, Code, Request
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.runtime.clock import Clock
from podpool.slices.arguments import Arguments, Owner, parse_arguments
from podpool.slices.config import IpamConfig, WantedRange, config_of
from podpool.slices.document import read_network, read_struct
from podpool.slices.written import Written, flat_files, is_own_pool

REMEMBERED = 64
"""Configurations that need not be read again."""
PATIENCE = 25.0
"""Seconds for which an answer is worth waiting for: the plugin waits 30."""

ReadFile = Callable[[str], bytes | None]
"""Read a file of the machine; None when there is none, `InvalidInput` when it is none."""


class Router:
    """The node's slices and the shared ranges, as one."""

    def __init__(self, *, sliced: Source, shared: Source, clock: Clock, read_file: ReadFile) -> None:
        self._sliced = sliced
        self._shared = shared
        self._clock = clock
        self._read_file = read_file

    def want(self, request: Request, pod: PodName) -> Want | None:
        """Read what a request wants of us; None when it is for the node's own pool; raises `CniError`."""
        files = _flat_files(request.stdin)
        if files is None:
            return None
        owner, asked = _told(request, pod)
        try:
            flat = next((each for each in map(self._read_file, files) if each is not None), None)
            config = _config(request.stdin, flat, asked)
        except InvalidInput as error:
            raise CniError(Code.INVALID_CONFIG, str(error)) from error
        deadline = self._clock.boot() + PATIENCE
        return Want(config=config, ranges=config.ranges, owner=owner, pod=pod, deadline=deadline)

    async def give(self, want: Want) -> tuple[Address, ...]:
        """Give an address of each range, or nothing."""
        sliced, shared = _parted(want)
        had = self._sliced.has(want.sandbox)
        of_slices = await self._sliced.give(sliced) if sliced.ranges else ()
        try:
            of_all = await self._shared.give(shared) if shared.ranges else ()
        except BaseException:
            if not had:
                self._sliced.release(want.sandbox)
            raise
        return _in_order(want.ranges, of_slices, of_all)

    async def give_back(self, sandbox: Sandbox, want: Want | None) -> None:
        """Take back what a sandbox's interface has, and look for it in shared ranges of the want."""
        await self._sliced.give_back(sandbox)
        await self._shared.give_back(sandbox, want and _parted(want)[1])

    def release(self, sandbox: Sandbox, want: Want | None) -> None:
        """See that this is done."""
        self._sliced.release(sandbox)
        self._shared.release(sandbox, want and _parted(want)[1])

    async def check(self, want: Want) -> tuple[Address, ...]:
        """Tell what the sandbox's interface has; `NOT_AS_ADDED` when that is not one of each range."""
        sliced, shared = _parted(want)
        of_slices = await self._sliced.check(sliced) if sliced.ranges else ()
        of_all = await self._shared.check(shared) if shared.ranges else ()
        return _in_order(want.ranges, of_slices, of_all)

    async def collect(self, network: str, valid: frozenset[Sandbox]) -> None:
        """Take back what sandboxes have in a network that are not valid any more."""
        await self._sliced.collect(network, valid)
        await self._shared.collect(network, valid)


def refuse_ranges(stdin: bytes) -> None:
    """Refuse a configuration that is not for the node's own pool, where that is all there is; raises `CniError`."""
    if _flat_files(stdin) is not None:
        told = "the configuration asks for addresses of ranges, and this agent serves none: start it with"
        raise CniError(Code.INVALID_CONFIG, f"{told} --whereabouts-namespace, where the IPPools are")


def _flat_files(stdin: bytes) -> tuple[str, ...] | None:
    """Tell where a configuration's flat file may be; None when it is for the node's own pool, or not for us at all."""
    told = stdin.lower()
    if b"range" not in told and b"whereabouts" not in told:
        return None  # cheaply: the way of nearly all
    try:
        return _flat_files_of(stdin)
    except InvalidInput as error:
        raise CniError(Code.INVALID_CONFIG, str(error)) from error


@lru_cache(maxsize=REMEMBERED)
def _flat_files_of(stdin: bytes) -> tuple[str, ...] | None:
    network = read_network(stdin)
    if not network.ours:
        return None
    inline = read_struct(network.ipam or {}, Written, at="ipam")
    return None if is_own_pool(inline) else flat_files(inline)


@lru_cache(maxsize=REMEMBERED)
def _config(stdin: bytes, flat: bytes | None, addresses: Arguments) -> IpamConfig:
    """Read a configuration; all Pods of a network have the same, but for the addresses that somebody asks for one."""
    return config_of(read_network(stdin), flat=flat, arguments=addresses)


def _told(request: Request, pod: PodName) -> tuple[Owner, Arguments]:
    """Read who asks, and for which addresses beside; only an ADD must tell its Pod, for others to see whose it is."""
    container, ifname = request.container_id, request.ifname
    if request.command != "ADD":
        return Owner(podref=f"{pod.namespace}/{pod.name}", container=container, ifname=ifname), Arguments()
    try:
        arguments = parse_arguments(request.args)
        owner = arguments.owner(container=container, ifname=ifname)
    except InvalidInput as error:
        raise CniError(Code.INVALID_ENVIRONMENT, str(error)) from error
    return owner, Arguments(addresses=arguments.addresses, gateways=arguments.gateways)


def _parted(want: Want) -> tuple[Want, Want]:
    sliced = tuple(each for each in want.ranges if each.slice_size)
    shared = tuple(each for each in want.ranges if not each.slice_size)
    return msgspec.structs.replace(want, ranges=sliced), msgspec.structs.replace(want, ranges=shared)


def _in_order(
    ranges: Iterable[WantedRange], of_slices: tuple[Address, ...], of_all: tuple[Address, ...]
) -> tuple[Address, ...]:
    sliced, shared = iter(of_slices), iter(of_all)
    return tuple(next(sliced) if each.slice_size else next(shared) for each in ranges)
