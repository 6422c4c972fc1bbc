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
from podpool.slices.written import Written, flat_files

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
        told = request.stdin.lower()
        if b"range" not in told and b"whereabouts" not in told:
            return None  # cheaply: the way of nearly all
        try:
            files = _flat_files(request.stdin)
            if files is None:
                return None
            flat = next(filter(None, map(self._read_file, files)), None)
            arguments = parse_arguments(request.args)
            config = _config(request.stdin, flat, Arguments(addresses=arguments.addresses, gateways=arguments.gateways))
            owner = _owner(request, arguments)
        except InvalidInput as error:
            raise CniError(Code.INVALID_CONFIG, str(error)) from error
        deadline = self._clock.boot() + PATIENCE
        return Want(config=config, ranges=config.ranges, owner=owner, pod=pod, deadline=deadline)

    async def give(self, want: Want) -> tuple[Address, ...]:
        """Give an address of each range, or nothing."""
        sliced, shared = _parted(want)
        had = await self._has(sliced)
        of_slices = await self._sliced.give(sliced) if sliced.ranges else ()
        try:
            of_all = await self._shared.give(shared) if shared.ranges else ()
        except BaseException:
            if not had:
                await self._sliced.give_back(sliced)
            raise
        return _in_order(want.ranges, of_slices, of_all)

    async def give_back(self, want: Want) -> None:
        """Take back what the sandbox's interface has of the want's ranges."""
        sliced, shared = _parted(want)
        if sliced.ranges:
            await self._sliced.give_back(sliced)
        if shared.ranges:
            await self._shared.give_back(shared)

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

    async def _has(self, sliced: Want) -> bool:
        try:
            await self._sliced.check(sliced)
        except CniError:
            return False
        return True


@lru_cache(maxsize=REMEMBERED)
def _flat_files(stdin: bytes) -> tuple[str, ...] | None:
    """Tell where a configuration's flat file may be; None when it is for the node's own pool, or not for us at all."""
    network = read_network(stdin)
    if not network.ours:
        return None
    inline = read_struct(network.ipam or {}, Written, at="ipam")
    is_own_pool = inline.type == "podpool" and not inline.read_ranges()
    return None if is_own_pool else flat_files(inline)


@lru_cache(maxsize=REMEMBERED)
def _config(stdin: bytes, flat: bytes | None, addresses: Arguments) -> IpamConfig:
    """Read a configuration; all Pods of a network have the same, but for the addresses that somebody asks for one."""
    return config_of(read_network(stdin), flat=flat, arguments=addresses)


def _owner(request: Request, arguments: Arguments) -> Owner:
    """Name who asks; only an ADD needs a Pod, for others to see whose the address is."""
    if request.command != "ADD":
        podref = f"{arguments.pod_namespace}/{arguments.pod_name}"
        return Owner(podref=podref, container=request.container_id, ifname=request.ifname)
    return arguments.owner(container=request.container_id, ifname=request.ifname)


def _parted(want: Want) -> tuple[Want, Want]:
    sliced = tuple(each for each in want.ranges if each.slice_size)
    shared = tuple(each for each in want.ranges if not each.slice_size)
    return msgspec.structs.replace(want, ranges=sliced), msgspec.structs.replace(want, ranges=shared)


def _in_order(
    ranges: Iterable[WantedRange], of_slices: tuple[Address, ...], of_all: tuple[Address, ...]
) -> tuple[Address, ...]:
    sliced, shared = iter(of_slices), iter(of_all)
    return tuple(next(sliced) if each.slice_size else next(shared) for each in ranges)
