"""CNI on the node's pool: what the plugin process asks, and what the runtime reads.

The same sandbox and interface get the same address again. A DEL of something unknown succeeds; a DEL frees what its own
sandbox holds and nothing else. DELs that were left in a directory while no agent ran are worked through before any ADD.
A GC frees what the runtime no longer lists, of its own network. STATUS tells whether an ADD could be served, not
whether the subnet has addresses: a runtime that is told no has its node's Pods evicted.
"""

from collections.abc import Awaitable, Callable, Mapping

from podpool.agent.book import Book
from podpool.agent.containers import lease_of
from podpool.agent.demand import Demand
from podpool.agent.ground import Ground
from podpool.agent.modes import Mode
from podpool.agent.reasons import not_yet
from podpool.agent.records import Assigned, Holding, Owner, PodName, Released
from podpool.agent.waiting import Asker, Ended, Holdings, Queue
from podpool.cni.messages import (
    Answer,
    BadFrame,
    CniError,
    Code,
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
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.resources.acn import NetworkContainer
from podpool.runtime.disk import Disk

Command = Callable[[Request], Awaitable[Answer]]


class Plugin:
    """Answers one frame after the other; any number at once."""

    def __init__(
        self,
        ground: Ground,
        book: Book,
        *,
        deletes: Disk | None,
        demand: Demand,
        rest: Callable[[], float],
        why_none: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        self.queue = Queue()
        self._ground = ground
        self._book = book
        self._deletes = deletes
        self._demand = demand
        self._rest = rest
        self._why_none = why_none
        self._patience = 0.0 if ground.mode is Mode.REACTIVE else ground.numbers.add_wait
        self._changed = changed
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
            answer = await self._command(request.command)(request)
        except CniError as error:
            answer = result_of_error(error, stated_version(request.stdin))
        except OSError as error:
            failed = CniError(
                Code.IO_FAILURE, "the agent cannot write its journal: look at the node's disk", str(error)
            )
            answer = result_of_error(failed, stated_version(request.stdin))
        return encode_answer(answer)

    def serve(self) -> None:
        """Give addresses to those who wait, as far as there are any."""
        while (first := self.queue.first()) and (holdings := self._assign(first)):
            self.queue.serve(first.owner, holdings)

    def work_through(self) -> None:
        """Do the DELs that were left while nobody answered."""
        names = self._deletes.names() if self._deletes else []
        for name in names:
            self._work(name)
        if names:
            self._changed()

    async def _version(self, _request: Request) -> Answer:
        return result_of_version()

    async def _add(self, request: Request) -> Answer:
        config = parse_config(request.stdin)
        asker = Asker(owner=_owner(request), pod=_pod(request), network=config.name)
        self.work_through()
        holdings = self._book.pool.holdings_of(asker.owner) or self._at_once(asker)
        if not holdings:
            self._changed()
            answer = await self.queue.wait(asker, timeout=self._patience) if self._patience else None
            self._changed()
            if answer is None:
                raise CniError(Code.TRY_AGAIN_LATER, self._why_none())
            if isinstance(answer, Ended):
                raise CniError(Code.TRY_AGAIN_LATER, "the sandbox was deleted while it waited for an address")
            holdings = answer
        elif self._ground.mode is not Mode.PODS:
            self._changed()  # these monitors learn of a Pod only now
        return self._result(holdings, config.cni_version)

    async def _delete(self, request: Request) -> Answer:
        owner = _owner(request)
        self._release(owner)
        self.queue.end(owner)
        self._changed()
        return Answer()

    async def _check(self, request: Request) -> Answer:
        config = parse_config(request.stdin, command=request.command)
        owner, shown = _owner(request), shown_addresses(config)
        held = [each.grant.address for each in self._book.pool.holdings_of(owner)]
        if not held:
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
        valid = {Owner(container_id=each.container_id, ifname=each.ifname) for each in config.attachments}
        held = [each.owner for each in self._book.pool.holdings.values() if each.network == config.name]
        for owner in dict.fromkeys(each for each in held if each not in valid):
            self._ground.tell(f"sandbox {owner.container_id} is not listed by the runtime any more: its address rests")
            self._release(owner)
        self._changed()
        return Answer()

    async def _status(self, request: Request) -> Answer:
        parse_config(request.stdin, command=request.command)
        missing = not_yet(self._ground.node, self._book, numbers=self._ground.numbers)
        if missing:
            raise CniError(Code.UNAVAILABLE, missing)
        return Answer()

    def _at_once(self, asker: Asker) -> Holdings:
        """Take a free address, but not before those who already wait."""
        return () if len(self.queue) else self._assign(asker)

    def _assign(self, asker: Asker) -> Holdings:
        pool = self._book.pool
        grants = pool.next_set(now=self._ground.clock.boot(), rest=self._rest())
        if not grants or not self._book.fence.is_open():
            return ()
        first, *more = (grant.id for grant in grants)
        self._book.write(
            Assigned(grant=first, more=tuple(more), owner=asker.owner, pod=asker.pod, network=asker.network)
        )
        return pool.holdings_of(asker.owner)

    def _release(self, owner: Owner) -> None:
        for holding in self._book.pool.holdings_of(owner):
            self._book.write(Released(grant=holding.grant.id, at=self._ground.clock.boot()))
            self._demand.gave_back(holding.pod)

    def _work(self, name: str) -> None:
        if self._deletes is None:
            return
        try:
            self._release(_owner(decode_request(self._deletes.read(name) or b"")))
        except (BadFrame, CniError) as error:
            self._ground.tell(f"a DEL that was left for later cannot be read and is thrown away: {name}: {error}")
        self._deletes.remove(name)

    def _result(self, holdings: Holdings, version: str) -> Answer:
        try:
            return result_of_add([self._lease(each) for each in holdings], version)
        except InvalidInput as error:
            raise CniError(Code.TRY_AGAIN_LATER, f"the node's network container cannot be used: {error}") from error

    def _lease(self, holding: Holding) -> Lease:
        container = self._book.pool.container_of(holding.grant) or NetworkContainer()
        return lease_of(container, parse_address(holding.grant.address))

    def _command(self, name: str) -> Command:
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(self._commands)
            raise CniError(Code.INVALID_ENVIRONMENT, f"CNI_COMMAND {name!r} is not served here", f"served: {known}")
        return command


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
