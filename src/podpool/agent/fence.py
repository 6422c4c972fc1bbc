"""Whether the agent may give new addresses: only while it knows that its Node still counts as its own.

Others may be given a node's addresses once the node has been gone for the gone time. So an agent stops on its own
before that: when its last confirmation is older than the fence time. A confirmation counts from when its reads were
sent, not from when they were answered, on whichever clock has advanced more since: the boot clock does not see that a
machine was stopped from outside, the wall clock may be set. A restart in the same boot goes on counting; a reboot
starts fenced.
"""

from podpool.agent.pool import Pool
from podpool.agent.records import Adopted, AnyRecord, Confirmed, Snapshot, Started
from podpool.api.azure import (
    REFUSED_ANNOTATION,
    AgentReport,
    NetworkContainer,
    NodeNetworkConfig,
    report_of,
)
from podpool.api.builtin import Node
from podpool.runtime.clock import Clock


class Fence:
    """Open while the last confirmation is fresh: of Node and container, or of the Node alone, as slices need it."""

    def __init__(self, clock: Clock, *, limit: float, node_only: bool = False) -> None:
        self._clock = clock
        self._limit = limit
        self._node_only = node_only
        self._boot_id = ""
        self._container = ""
        self._confirmed: tuple[float, float] | None = None

    @property
    def confirmed(self) -> tuple[float, float] | None:
        """When the confirming reads were sent, by boot and wall clock; None when there is no confirmation."""
        return self._confirmed

    def age(self) -> float | None:
        """Tell how old the confirmation is; None when there is none."""
        if self._confirmed is None:
            return None
        boot, wall = self._confirmed
        return max(self._clock.boot() - boot, self._clock.wall() - wall)

    def is_open(self) -> bool:
        """Tell whether new addresses may be given now."""
        age = self.age()
        return age is not None and age < self._limit

    def apply(self, record: AnyRecord) -> None:
        """Change as the record says."""
        match record:
            case Confirmed() if record.node_only is self._node_only:
                self._confirmed = (record.boot, record.wall)
            case Started() if record.damaged or record.boot_id != self._boot_id:
                self._boot_id, self._confirmed = record.boot_id, None
            case Adopted() if record.container != self._container and not self._node_only:
                self._container, self._confirmed = record.container, None
            case Snapshot():
                self._boot_id, self._container = record.boot_id, record.adopted
                self._confirmed = record.node_confirmed if self._node_only else record.confirmed


def own_container(node: Node, config: NodeNetworkConfig, *, pool: Pool) -> NetworkContainer | None:
    """Find the container that two quorum reads show to be this machine's, if they do; the one we have comes first.

    Another than ours counts only once the controller has said that ours is closed. A restored API server shows the NNC
    of a machine that had our name before, with a container whose addresses others have by now.
    """
    owners = config.metadata.owner_references
    if node.boot_id != pool.boot_id or not any(owner.uid == node.metadata.uid for owner in owners):
        return None
    offered = [each for each in config.status.network_containers if each.id and each.id not in pool.closed]
    ours = next((each for each in offered if each.id == pool.adopted), None)
    return ours or (offered[0] if offered and not strange(config, pool=pool) else None)


def strange(config: NodeNetworkConfig, *, pool: Pool) -> bool:
    """Tell whether an NNC shows another container than ours, and nobody has said that ours is closed."""
    shown = {each.id for each in config.status.network_containers}
    refused = config.metadata.annotations.get(REFUSED_ANNOTATION)
    return bool(shown) and pool.adopted not in {"", refused, *shown}


def own_report(config: NodeNetworkConfig) -> AgentReport:
    """Read what this node's agent last told; nothing, if it cannot be read."""
    return report_of(config) or AgentReport()
