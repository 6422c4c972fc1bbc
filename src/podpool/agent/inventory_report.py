"""The identity and inventory part of the agent's report: its own NC and, on request, the grants it holds.

An API server restored from an older copy shows less than the agent holds, or another node's NC; if the ledger was
restored too, only the agent has it. The controller asks with a number in an annotation; the reply is in the agent's.
"""

import msgspec

from podpool.agent.pool import Pool
from podpool.api.azure import INVENTORY_ANNOTATION, AgentReport, NetworkContainer, NodeNetworkConfig


class InventoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `AgentReport` that identifies the agent's NC."""

    nc: str
    inventory: int
    """The inventory request that is answered; 0 for none."""
    known: NetworkContainer | None = None
    """The NC as the agent knows it, where the NNC shows less."""

    def into(self, report: AgentReport) -> AgentReport:
        """Return a report with this part replaced."""
        return msgspec.structs.replace(report, network_container=self.nc, inventory=self.inventory, known=self.known)


def inventory_report(nnc: NodeNetworkConfig, pool: Pool, *, requested: int) -> InventoryReport:
    """Return what the annotation should have; grants only if an inventory is requested and the NNC shows fewer.

    The request is taken from the watch alone: once the watch shows it, no event of an older server can follow.
    """
    known = pool.nc
    shown = next((each.version for each in nnc.status.network_containers if each.id == pool.adopted_nc), -1)
    if not requested or known is None or shown >= pool.version:
        return InventoryReport(nc=pool.adopted_nc, inventory=requested)
    released = {*pool.pending_release, *(grant for grant, each in pool.assigned.items() if each.revoked)}
    kept = tuple(each for each in known.ip_assignments if each.name not in released)
    return InventoryReport(
        nc=pool.adopted_nc, inventory=requested, known=msgspec.structs.replace(known, ip_assignments=kept)
    )


def requested_inventory(nnc: NodeNetworkConfig | None) -> int:
    """Return the number of the controller's inventory request; 0 for none."""
    requested = "" if nnc is None else nnc.metadata.annotations.get(INVENTORY_ANNOTATION, "")
    return int(requested) if requested.isdecimal() else 0
