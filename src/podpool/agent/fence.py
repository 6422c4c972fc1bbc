"""The fence: new addresses are assigned only while the Node is confirmed to be this agent's.

Node GC may give a node's addresses to others after the node GC delay. So an agent stops assigning before that, when its
last confirmation is older than the fence time. A confirmation counts from when its reads were sent, on whichever clock
has advanced more since: the boot clock does not advance while a machine is suspended from outside, the wall clock may
be set. A restart in the same boot continues to count; a reboot starts fenced. An agent that yields to another of its
node is fenced, too (`duplicate_agent`).
"""

from podpool.agent.network_container import unsupported_reason
from podpool.agent.pool import Pool
from podpool.agent.records import AnyRecord, NCAdopted, NodeConfirmed, Snapshot, Started
from podpool.api.azure import CLOSED_ANNOTATION, AgentReport, NetworkContainer, NodeNetworkConfig, agent_report
from podpool.api.builtin import Node
from podpool.runtime.clock import Clock


class Fence:
    """Open while the last confirmation is recent: of Node and NC or, with `node_only` for slices, of the Node."""

    def __init__(self, clock: Clock, *, limit: float, node_only: bool = False) -> None:
        self._clock = clock
        self._limit = limit
        self._node_only = node_only
        self._boot_id = ""
        self._nc = ""
        self._confirmed: tuple[float, float] | None = None
        self._suspended, self._suspended_until = "", 0.0

    @property
    def confirmed(self) -> tuple[float, float] | None:
        """When the confirming reads were sent, by boot and wall clock; None without a confirmation."""
        return self._confirmed

    def age(self) -> float | None:
        """Return the age of the confirmation; None without one."""
        if self._confirmed is None:
            return None
        boot, wall = self._confirmed
        return max(self._clock.boot() - boot, self._clock.wall() - wall)

    def is_open(self) -> bool:
        """Return whether new addresses may be assigned now."""
        age = self.age()
        return age is not None and age < self._limit and not self.suspended

    def suspend(self, reason: str, *, until: float) -> None:
        """Close until a time on the boot clock, whatever is confirmed."""
        self._suspended, self._suspended_until = reason, until

    @property
    def suspended(self) -> str:
        """Why the fence is closed whatever is confirmed; empty if it is not."""
        return self._suspended if self._clock.boot() < self._suspended_until else ""

    @property
    def suspended_until(self) -> float | None:
        """When a suspension ends, on the boot clock; None if there is none."""
        return self._suspended_until if self.suspended else None

    def apply(self, record: AnyRecord) -> None:
        """Apply a record."""
        match record:
            case NodeConfirmed() if record.node_only is self._node_only:
                self._confirmed = (record.boot, record.wall)
            case Started() if record.damaged or record.boot_id != self._boot_id:
                self._boot_id, self._confirmed = record.boot_id, None
            case NCAdopted() if record.nc != self._nc and not self._node_only:
                self._nc, self._confirmed = record.nc, None
            case Snapshot():
                self._boot_id, self._nc = record.boot_id, record.adopted_nc
                self._confirmed = record.node_confirmed if self._node_only else record.confirmed


def own_nc(node: Node, nnc: NodeNetworkConfig, *, pool: Pool) -> NetworkContainer | None:
    """Return the NC that quorum reads of Node and NNC show to be this machine's, the adopted one first.

    Another NC counts only once the controller has declared the adopted one closed. A restored API server may show the
    NNC of an earlier machine of this name, with an NC whose addresses other nodes have by now.
    """
    owners = nnc.metadata.owner_references
    if node.boot_id != pool.boot_id or not any(owner.uid == node.metadata.uid for owner in owners):
        return None
    served = [each for each in nnc.status.network_containers if not unsupported_reason(each)]
    shown = [each for each in served if each.id and each.id not in pool.closed_ncs]
    adopted = next((each for each in shown if each.id == pool.adopted_nc), None)
    return adopted or (shown[0] if shown and not shows_other_nc(nnc, pool=pool) else None)


def shows_other_nc(nnc: NodeNetworkConfig, *, pool: Pool) -> bool:
    """Return whether an NNC shows another NC than the adopted one, which was not declared closed."""
    shown = {each.id for each in nnc.status.network_containers}
    closed = nnc.metadata.annotations.get(CLOSED_ANNOTATION)
    return bool(shown) and pool.adopted_nc not in {"", closed, *shown}


def own_report(nnc: NodeNetworkConfig) -> AgentReport:
    """Return the report in the annotation; an empty one if it cannot be parsed."""
    return agent_report(nnc) or AgentReport()
