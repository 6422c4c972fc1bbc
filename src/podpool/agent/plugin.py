"""CNI on the node's pool: what the plugin process asks, and what the runtime reads.

The same sandbox and interface get the same address again. A DEL of something unknown succeeds; a DEL frees what its own
sandbox holds and nothing else. DELs that were left in a directory while no agent ran are worked through before any ADD.
"""

from collections.abc import Awaitable, Callable, Mapping

from podpool.agent.book import Book
from podpool.agent.containers import lease_of
from podpool.agent.demand import Demand
from podpool.agent.ground import Ground
from podpool.agent.records import Assigned, Holding, Owner, PodName, Released
from podpool.agent.waiting import Ended, Queue
from podpool.cni.messages import (
    Answer,
    BadFrame,
    CniError,
    Code,
    Request,
    decode_request,
    encode_answer,
    parse_config,
    result_of_add,
    result_of_error,
    result_of_version,
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
        self._changed = changed
        self._commands: Mapping[str, Command] = {"ADD": self._add, "DEL": self._delete, "VERSION": self._version}

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
        while (first := self.queue.first()) and (holding := self._assign(*first)):
            self.queue.serve(holding)

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
        owner, pod = _owner(request), _pod(request)
        self.work_through()
        holding = self._book.pool.holding(owner) or self._at_once(owner, pod)
        if holding is None:
            self._changed()
            answer = await self._waited(owner, pod)
            self._changed()
            if answer is None:
                raise CniError(Code.TRY_AGAIN_LATER, self._why_none())
            if isinstance(answer, Ended):
                raise CniError(Code.TRY_AGAIN_LATER, "the sandbox was deleted while it waited for an address")
            holding = answer
        return self._result(holding, config.cni_version)

    async def _delete(self, request: Request) -> Answer:
        owner = _owner(request)
        self._release(owner)
        self.queue.end(owner)
        self._changed()
        return Answer()

    async def _waited(self, owner: Owner, pod: PodName) -> Holding | Ended | None:
        return await self.queue.wait(owner, pod, timeout=self._ground.numbers.add_wait)

    def _at_once(self, owner: Owner, pod: PodName) -> Holding | None:
        """Take a free address, but not before those who already wait."""
        return None if len(self.queue) else self._assign(owner, pod)

    def _assign(self, owner: Owner, pod: PodName) -> Holding | None:
        pool = self._book.pool
        grant = pool.next_free(now=self._ground.clock.boot(), rest=self._rest())
        if grant is None or not self._book.fence.is_open():
            return None
        self._book.write(Assigned(grant=grant.id, owner=owner, pod=pod))
        return pool.holding(owner)

    def _release(self, owner: Owner) -> None:
        holding = self._book.pool.holding(owner)
        if holding:
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

    def _result(self, holding: Holding, version: str) -> Answer:
        container = self._book.pool.container or NetworkContainer()
        try:
            return result_of_add(lease_of(container, parse_address(holding.grant.address)), version)
        except InvalidInput as error:
            raise CniError(Code.TRY_AGAIN_LATER, f"the node's network container cannot be used: {error}") from error

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
