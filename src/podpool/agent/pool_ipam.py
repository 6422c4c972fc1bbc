"""CNI IPAM on the node's pool: ADD, DEL, CHECK and GC.

An ADD without an available address waits for requested ones, after those that wait already, and then fails with the
reason; so does one at a closed fence. An ADD that names its addresses gets these or fails at once.
"""

import asyncio
from collections.abc import Iterable

from podpool.agent.demand import AddRequest, Assignments, PodDemand, SandboxDeleted
from podpool.agent.deps import MIN_WAIT, AgentDeps, AgentOptions, event_or_timeout
from podpool.agent.grant_table import GrantState
from podpool.agent.neighbor_proxy import NeighborProxy
from podpool.agent.records import Assigned, GrantAssignment, NCFamily, PoolGrant, Unassigned
from podpool.agent.sandbox_gc import SandboxInterface
from podpool.agent.scaling_decision import ScalingMode
from podpool.agent.scaling_input_collector import InputCollector
from podpool.agent.state import AgentState
from podpool.cni.protocol import Attachment, CniError, ErrorCode, IPConfig
from podpool.core.addresses import parse_address

LOG_DELAY = 0.02
"""Seconds after which assignments and releases are logged: not before the requests that arrived with them."""


class PoolIPAM:
    """Assigns the grants of the pool."""

    def __init__(
        self,
        deps: AgentDeps,
        options: AgentOptions,
        state: AgentState,
        demand: PodDemand,
        inputs: InputCollector,
        proxy: NeighborProxy | None = None,
    ) -> None:
        self.added: set[str] = set()
        """Keys of Pods that sent an ADD while grants are lost: they use none of those."""
        self.queue = demand.queue
        self._deps = deps
        self._log = deps.log
        self._mode = options.mode
        self._timeout = 0.0 if options.mode is ScalingMode.REACTIVE else deps.settings.add_timeout
        self._state = state
        self._demand = demand
        self._inputs = inputs
        self._proxy = proxy
        self._changed = asyncio.Event()
        self._log_lines: list[tuple[str, GrantAssignment]] = []

    def on_change(self) -> None:
        """Serve waiting ADDs as far as there are addresses."""
        while (first := self.queue.first()) and (assignments := self._assign(first)):
            self.queue.serve(first.attachment, assignments)
        self._changed.set()

    async def run(self) -> None:
        """Serve waiting ADDs when an address has cooled down, until cancelled."""
        while True:
            self._changed.clear()
            now = self._deps.clock.boot()
            cooled = self._state.pool.next_cooled_down(now=now, cooldown=self._inputs.cooldown().shortest)
            timeout = asyncio.timeout(None if cooled is None else max(cooled - now, MIN_WAIT))
            if not await event_or_timeout(self._changed, timeout):
                self._deps.changes.notify()

    async def allocate(self, request: AddRequest) -> tuple[IPConfig, ...]:
        """Return the addresses of a sandbox: those it has, or new ones, now or within the ADD timeout."""
        if self._state.pool.lost:
            self.added.add(request.pod.key)
        assignments = self._state.pool.assignments_of(request.attachment) or self._assign_now(request)
        if not assignments:
            assignments = await self._wait(request)
        elif self._mode is not ScalingMode.PODS:
            self._deps.changes.notify()  # these modes count a Pod only now
        if self._proxy:
            self._proxy.on_assigned(assignments)
        return tuple(self._ip_config(each, behind_node=request.behind_node) for each in assignments)

    def _ip_config(self, assignment: GrantAssignment, *, behind_node: bool) -> IPConfig:
        address, gateway = parse_address(assignment.grant.address), assignment.gateway
        if behind_node:
            gateway = self._state.pool.node_gateway(assignment.grant) or gateway
        return IPConfig(address=address, prefix=assignment.prefix, gateway=gateway)

    async def _wait(self, request: AddRequest) -> Assignments:
        self._deps.changes.notify()
        timeout = self._timeout if self._state.fence.is_open() else self._deps.settings.add_timeout
        waits = timeout and not request.addresses
        answer = await self.queue.wait(request.attachment, request, timeout=timeout) if waits else None
        self._deps.changes.notify()
        if answer is None:
            if waits:
                self._demand.add_refused(request.pod)
            reason = self._inputs.no_address_reason()
            self._log.warning("no address for Pod", pod=request.pod.qualified_name, reason=reason)
            raise CniError(ErrorCode.TRY_AGAIN_LATER, reason)
        assignments = self._state.pool.assignments_of(request.attachment)
        if isinstance(answer, SandboxDeleted) or not assignments:  # also by a DEL since it was served
            raise CniError(ErrorCode.TRY_AGAIN_LATER, "the sandbox was deleted while it waited for an address")
        return assignments

    def interfaces(self) -> Iterable[SandboxInterface]:
        """Return the interfaces with addresses."""
        assigned = self._state.pool.assigned.values()
        for attachment in dict.fromkeys(each.attachment for each in assigned):
            assignments = self._state.pool.assignments_of(attachment)
            first = assignments[0]
            yield SandboxInterface(
                attachment=attachment,
                pod=first.pod.qualified_name,
                pod_uid=first.pod.uid,
                netns=first.netns,
                added=first.added,
                addresses=tuple(each.grant.address for each in assignments),
            )

    def has_address(self, attachment: Attachment) -> bool:
        """Return whether a sandbox has addresses."""
        return bool(self._state.pool.assignments_of(attachment))

    def schedule_release(self, attachment: Attachment) -> None:
        """Unassign the addresses of a sandbox, and end its wait."""
        for assignment in self._state.pool.assignments_of(attachment):
            self._state.write(Unassigned(grant=assignment.grant.id, at=self._deps.clock.boot()))
            self._demand.sandbox_deleted(assignment.pod)
            if self._proxy:
                self._proxy.on_released(assignment.grant.address)
            revoked = assignment.revoked
            event = "address released, not assigned again" if revoked else "address released, cooling down"
            self._log_soon(event, assignment)
        self.queue.cancel(attachment)

    def check(self, attachment: Attachment) -> tuple[str, ...]:
        """Return the addresses of a sandbox."""
        return tuple(each.grant.address for each in self._state.pool.assignments_of(attachment))

    def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        """Unassign the addresses of sandboxes of a CNI network that are not valid."""
        assigned = [each for each in self._state.pool.assigned.values() if each.network == network]
        for attachment in dict.fromkeys(each.attachment for each in assigned if each.attachment not in valid):
            self._log.info(
                "CNI GC releases a sandbox that the runtime does not list",
                sandbox=attachment.container_id,
                network=network,
            )
            self.schedule_release(attachment)

    def _assign_now(self, request: AddRequest) -> Assignments:
        """Assign an available address, unless others wait already for any."""
        return () if len(self.queue) and not request.addresses else self._assign(request)

    def _assign(self, request: AddRequest) -> Assignments:
        pool = self._state.pool
        if not self._state.fence.is_open():
            return ()
        now, cooldown = self._deps.clock.boot(), self._inputs.cooldown()
        grants = self._requested(request) if request.addresses else pool.next_addresses(now=now, cooldown=cooldown)
        if not grants:
            return ()
        first, *more = (grant.id for grant in grants)
        self._state.write(
            Assigned(
                grant=first,
                more=tuple(more),
                attachment=request.attachment,
                pod=request.pod,
                network=request.network,
                netns=request.netns,
                added=self._deps.clock.boot(),
            )
        )
        self._demand.add_served(request.pod)
        assignments = pool.assignments_of(request.attachment)
        for assignment in assignments:
            self._log_soon("address assigned", assignment)
        return assignments

    def _log_soon(self, event: str, assignment: GrantAssignment) -> None:
        """Log what happened to an address, after the requests that arrived with this one."""
        if not self._log_lines:
            asyncio.get_running_loop().call_later(LOG_DELAY, self.write_log_lines)
        self._log_lines.append((event, assignment))

    def write_log_lines(self) -> None:
        """Write what is to be logged."""
        lines, self._log_lines = self._log_lines, []
        for event, assignment in lines:
            self._log.info(event, **_fields(assignment))

    def _requested(self, request: AddRequest) -> tuple[PoolGrant, ...]:
        """Return the grants of requested addresses, and any of the other NCs and families; raises `CniError`."""
        pool, now, cooldown = self._state.pool, self._deps.clock.boot(), self._inputs.cooldown()
        chosen: dict[NCFamily, PoolGrant] = {}
        for address in map(str, request.addresses):
            grant = self._available_grant(address)
            other = chosen.setdefault(grant.nc_family, grant)
            if other is not grant:
                message = f"requested addresses {other.address} and {address}: a Pod gets only one of these"
                raise CniError(ErrorCode.INVALID_CONFIG, message)
        found = [
            chosen.get(each) or pool.next_available(now=now, cooldown=cooldown, nc_family=each)
            for each in pool.nc_families
        ]
        return () if None in found else tuple(filter(None, found))

    def _available_grant(self, address: str) -> PoolGrant:
        """Return the grant of a requested address; raises `CniError` if it cannot be assigned now."""
        pool, cooldown = self._state.pool, self._inputs.cooldown()
        grant = next((each for each in pool.grants.all() if each.address == address), None)
        if grant is None:
            message = f"requested address {address} is not one of node {self._deps.node}'s addresses"
            raise CniError(ErrorCode.INVALID_CONFIG, message)
        state = pool.state_of(grant.id, now=self._deps.clock.boot(), cooldown=cooldown.shortest)
        if state is GrantState.AVAILABLE and grant.id not in pool.lost and not pool.incomplete:
            return grant
        what = "possibly in use" if state in (None, GrantState.AVAILABLE) else state.value
        raise CniError(ErrorCode.TRY_AGAIN_LATER, f"requested address {address} is not available: it is {what}")


def _fields(assignment: GrantAssignment) -> dict[str, object]:
    return {
        "pod": assignment.pod.qualified_name,
        "address": assignment.grant.address,
        "sandbox": assignment.attachment.container_id,
        "network": assignment.network,
    }
