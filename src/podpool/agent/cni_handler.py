"""CNI on the node: what the plugin process asks, and what the runtime reads.

A configuration is answered from the node's own pool (`dynamic`), or, where it has ranges, from the node's slices and
shared ranges (`networks`). The same sandbox and interface get the same addresses again. A DEL of something unknown
succeeds; a DEL frees what its own sandbox holds and nothing else. DELs that were left in a directory while no agent ran
are worked through before any ADD; one that cannot be read or removed stays, and holds up nobody. A GC frees what the
runtime no longer lists, of its own network. STATUS tells whether an ADD could be served, not whether there are
addresses: a runtime that is told no has its node's Pods evicted.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.agent.notices import Tell
from podpool.agent.pool_ipam import Asker, Dynamic
from podpool.agent.records import Owner, PodName
from podpool.agent.secondary.address_source import Want
from podpool.agent.secondary.router import refuse_ranges
from podpool.agent.secondary.secondary import Networks
from podpool.cni.protocol import (
    Answer,
    BadFrame,
    CniError,
    Code,
    Extras,
    Lease,
    Request,
    decode_request,
    encode_answer,
    parse_config,
    result_of_add,
    result_of_error,
    result_of_version,
    shown_addresses,
    stated_version,
)
from podpool.core.addresses import Address
from podpool.runtime.disk import Disk

Command = Callable[[Request], Awaitable[Answer]]


class Plugin:
    """Answers one frame after the other; any number at once."""

    def __init__(
        self,
        dynamic: Dynamic,
        networks: Networks | None,
        *,
        deletes: Disk | None,
        closed: Callable[[], str | None],
        missing: Callable[[], str | None],
        changed: Callable[[], None],
        tell: Tell,
    ) -> None:
        self._dynamic = dynamic
        self._networks = networks
        self._deletes = deletes
        self._closed = closed
        self._missing = missing
        self._changed = changed
        self._tell = tell
        self._kept: set[str] = set()
        self._commands: Mapping[str, Command] = {
            "ADD": self._add,
            "DEL": self._delete,
            "CHECK": self._check,
            "GC": self._collect,
            "STATUS": self._status,
            "VERSION": self._version,
        }

    async def handle(self, body: bytes) -> bytes:
        """Answer the body of one request with the body of an answer."""
        try:
            request = decode_request(body)
        except BadFrame as error:
            return encode_answer(result_of_error(CniError(Code.DECODE_FAILURE, str(error)), "1.0.0"))
        try:
            closed = self._closed()
            answer = _refused(request, closed) if closed else await self._command(request.command)(request)
        except CniError as error:
            answer = result_of_error(error, stated_version(request.stdin))
        except OSError as error:
            answer = _refused(request, str(error))
        return encode_answer(answer)

    def work_through(self) -> None:
        """Do the DELs that were left while nobody answered, before an ADD of the same sandbox is."""
        if self._deletes is None:
            return
        try:
            names = self._deletes.names()
        except OSError as error:
            self._keep("DELs that were left for later cannot be looked for", error)
            return
        for name in names:
            try:
                self._work(self._deletes, name)
            except OSError as error:
                self._keep(f"a DEL that was left for later stays where it is: {name}", error)
        if names:
            self._changed()

    async def _version(self, _request: Request) -> Answer:
        return result_of_version()

    async def _add(self, request: Request) -> Answer:
        config = parse_config(request.stdin)
        owner, want = _owner(request), self._want(request)
        self.work_through()
        if want and self._networks:
            return _answer(want, await self._networks.router.give(want), config.cni_version)
        leases = await self._dynamic.give(Asker(owner=owner, pod=_pod(request), network=config.name))
        return result_of_add(leases, config.cni_version)

    async def _delete(self, request: Request) -> Answer:
        owner = _owner(request)
        want = self._release(owner, request)
        self._changed()
        if self._networks:
            await self._networks.router.give_back(owner, want)
        return Answer()

    async def _check(self, request: Request) -> Answer:
        config = parse_config(request.stdin, command=request.command)
        owner, shown, want = _owner(request), shown_addresses(config), self._want(request)
        if want and self._networks:
            held = tuple(map(str, await self._networks.router.check(want)))
        else:
            held = self._dynamic.check(owner)
        if not held and not (want and not want.ranges):
            who = f"interface {owner.ifname} of sandbox {owner.container_id}"
            raise CniError(Code.NOT_AS_ADDED, f"{who} has no address here")
        if shown and not set(held) <= set(shown):
            told = f"the runtime knows {', '.join(shown)}, and the agent gave {', '.join(held)}"
            raise CniError(Code.NOT_AS_ADDED, told)
        return Answer()

    async def _collect(self, request: Request) -> Answer:
        config = parse_config(request.stdin, command=request.command)
        if config.attachments is None:
            raise CniError(Code.INVALID_CONFIG, "a GC without cni.dev/valid-attachments would free everything")
        valid = frozenset(Owner(container_id=each.container_id, ifname=each.ifname) for each in config.attachments)
        self._dynamic.collect(config.name, valid)
        self._changed()
        if self._networks:
            await self._networks.router.collect(config.name, valid)
        return Answer()

    async def _status(self, request: Request) -> Answer:
        parse_config(request.stdin, command=request.command)
        networks = self._networks if self._want(request) else None
        missing = networks.missing() if networks else self._missing()
        if missing:
            raise CniError(Code.UNAVAILABLE, missing)
        return Answer()

    def _want(self, request: Request) -> Want | None:
        """Read which ranges a request is about; None when it is about the node's own pool."""
        if self._networks:
            return self._networks.router.want(request, _pod(request))
        refuse_ranges(request.stdin)
        return None

    def _release(self, owner: Owner, request: Request) -> Want | None:
        """Free what a sandbox holds on this node, whatever its configuration is; gives what that asks for."""
        self._dynamic.give_back(owner)
        if self._networks is None:
            return None
        self._networks.sliced.release(owner)
        try:
            return self._want(request)
        except CniError as error:
            self._tell(f"a DEL of sandbox {owner.container_id} has a configuration that cannot be read: {error}")
            return None

    def _work(self, deletes: Disk, name: str) -> None:
        try:
            request = decode_request(deletes.read(name) or b"")
            owner = _owner(request)
        except (BadFrame, CniError) as error:
            self._tell(f"a DEL that was left for later cannot be read and is thrown away: {name}: {error}")
        else:
            want = self._release(owner, request)
            if self._networks:
                self._networks.router.release(owner, want)
        deletes.remove(name)

    def _keep(self, sentence: str, error: OSError) -> None:
        """Say once why something stays: it is tried again every few seconds."""
        if sentence not in self._kept:
            self._kept.add(sentence)
            self._tell(f"{sentence}: {error}")

    def _command(self, name: str) -> Command:
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(self._commands)
            raise CniError(Code.INVALID_ENVIRONMENT, f"CNI_COMMAND {name!r} is not served here", f"served: {known}")
        return command


def _refused(request: Request, why: str) -> Answer:
    """Say that the journal takes nothing; to who asks for the status, that no address could be given."""
    code = Code.UNAVAILABLE if request.command == "STATUS" else Code.IO_FAILURE
    error = CniError(code, "the agent cannot write its journal: look at the node's disk", why)
    return result_of_error(error, stated_version(request.stdin))


def _owner(request: Request) -> Owner:
    for variable, value in (("CNI_CONTAINERID", request.container_id), ("CNI_IFNAME", request.ifname)):
        if not value:
            raise CniError(Code.INVALID_ENVIRONMENT, f"{variable} is not set")
    return Owner(container_id=request.container_id, ifname=request.ifname)


def _pod(request: Request) -> PodName:
    told = request.arguments()
    return PodName(
        namespace=told.get("K8S_POD_NAMESPACE", ""),
        name=told.get("K8S_POD_NAME", ""),
        uid=told.get("K8S_POD_UID", ""),
    )


def _answer(want: Want, addresses: tuple[Address, ...], version: str) -> Answer:
    """Write what a Pod gets from ranges, with what its configuration hands on."""
    given = want.config.given(addresses)
    leases = [Lease(address=each.address, prefix=each.prefix.length, gateway=str(each.gateway or "")) for each in given]
    extras = Extras(routes=want.config.routes, dns=msgspec.to_builtins(want.config.dns))
    return result_of_add(leases, version, extras=extras)
