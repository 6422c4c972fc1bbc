"""What an agent tells of itself, whatever its NNC shows: which container is its own, and, when asked, what it holds.

An API server restored from an older copy shows less than the agent knows, or another's container; when the ledger was
restored too, nobody but the agent knows any more. The controller asks with a number in an annotation; the answer goes
into the agent's own.
"""

import msgspec

from podpool.agent.pool import Pool
from podpool.api.azure import LISTING_ANNOTATION, AgentReport, NetworkContainer, NodeNetworkConfig


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the report that is about who one is."""

    container: str
    listed: int
    knows: NetworkContainer | None = None

    def into(self, report: AgentReport) -> AgentReport:
        """Put it into a report."""
        return msgspec.structs.replace(report, container=self.container, listed=self.listed, knows=self.knows)


def statement(config: NodeNetworkConfig, pool: Pool, *, asked: int) -> Statement:
    """Tell what the annotation should say; grants only while a listing asks, and the NNC shows less than we know.

    Only the watch tells what is asked: once it shows the question, nothing that it said of an older server can follow.
    """
    known = pool.container
    shown = next((each.version for each in config.status.network_containers if each.id == pool.adopted), -1)
    if not asked or known is None or shown >= pool.version:
        return Statement(container=pool.adopted, listed=asked)
    let_go = {*pool.named, *(grant for grant, holding in pool.holdings.items() if holding.dropped)}
    kept = tuple(each for each in known.ip_assignments if each.name not in let_go)
    knows = msgspec.structs.replace(known, ip_assignments=kept)
    return Statement(container=pool.adopted, listed=asked, knows=knows)


def listing_of(config: NodeNetworkConfig | None) -> int:
    """Tell which listing the controller asks for; 0 for none."""
    asked = "" if config is None else config.metadata.annotations.get(LISTING_ANNOTATION, "")
    return int(asked) if asked.isdecimal() else 0
