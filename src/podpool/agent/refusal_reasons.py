"""Error messages: why the agent assigns no address, and where to look."""

from podpool.agent.fence import Fence
from podpool.agent.state import AgentState
from podpool.core.quantities import show_duration
from podpool.core.settings import Settings


def not_ready_reason(node: str, state: AgentState, *, settings: Settings) -> str | None:
    """Return what the agent needs before it can assign any address; None when it has all of it."""
    pool = state.pool
    if not pool.adopted_nc:
        return (
            f"node {node} has no network container yet: check that podpool's controller is running, that "
            f"NodeNetworkConfig kube-system/{node} is owned by this Node, and that the Node reports boot ID "
            f"{pool.boot_id}"
        )
    if not state.programming.covers(pool.adopted_nc, 0):
        return (
            f"the underlay of node {node} has not programmed network container {pool.adopted_nc} yet: "
            "check that the underlay was configured with it"
        )
    return None if state.fence.is_open() else fenced_reason(node, state.fence, settings)


def no_address_reason(
    node: str, state: AgentState, *, requested: int | None, cooling_down: int, settings: Settings
) -> str:
    """Return why the pool has no address for an ADD."""
    not_ready = not_ready_reason(node, state, settings=settings)
    if not_ready:
        return not_ready
    pool = state.pool
    status, reason = (pool.nc.status, pool.nc.status_reason) if pool.nc else ("", "")
    subnet = pool.nc.subnet_name if pool.nc else ""
    unprogrammed = sum(1 for _ in pool.pending_programming())
    pending = f", {unprogrammed} pending programming" if unprogrammed else ""
    request = "has not requested more yet" if requested is None else f"requested {requested}"
    return (
        f"node {node} has no available address: it has {pool.granted} ({len(pool.assigned)} assigned, "
        f"{cooling_down} cooling down, {len(pool.pending_release)} pending release{pending}) and {request}; "
        f"subnet {subnet or 'of this node'} answered {status or 'nothing yet'}{_advice(status, reason)}"
    )


def shortage_message(state: AgentState) -> str:
    """Return that Pods wait, without numbers: as a Node condition it stays while they change."""
    subnet = state.pool.nc.subnet_name if state.pool.nc else ""
    return (
        f"Pods of this node wait for addresses, and subnet {subnet or 'of this node'} has none free: "
        "add addresses to it, or run fewer Pods on it"
    )


def fenced_reason(node: str, fence: Fence, settings: Settings) -> str:
    """Return why the fence is closed: it is suspended, or the Node was not confirmed for too long."""
    if fence.suspended:
        return fence.suspended
    age = fence.age()
    since = "since it started" if age is None else f"for {show_duration(round(age))}"
    return (
        f"the agent of node {node} is fenced and assigns no new address: it could not confirm its Node {since} "
        f"(limit {show_duration(settings.fence)}): check that it can reach the API server"
    )


def _advice(status: str, reason: str) -> str:
    if reason:
        return f": {reason}"
    if status == "NCUpdateSubnetFullError":
        return ": the subnet is full; add addresses to it or run fewer Pods on it"
    return "" if status in ("", "NCUpdateSuccess") else ": see the log of podpool's controller"
