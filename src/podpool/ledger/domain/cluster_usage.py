"""What each cluster has of a subnet: counted with every change, and once for rows that an earlier version wrote."""

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterUse, SubnetRow

Changes = Mapping[str, tuple[int, int]]
"""By cluster, how many more NCs and addresses it has."""


def changed_usage(usage: Mapping[str, ClusterUse], changes: Changes) -> dict[str, ClusterUse]:
    """Return the usage after changes; clusters that have nothing are left out."""
    after = dict(usage)
    for cluster, (ncs, addresses) in changes.items():
        use = after.pop(cluster, ClusterUse())
        use = ClusterUse(use.network_containers + ncs, use.held + addresses)
        if use != ClusterUse():
            after[cluster] = use
    return after


def uncounted_networks(repo: Repository) -> list[str]:
    """Return the networks with subnets whose row lacks the usage."""
    return sorted({row.spec.network for row in repo.subnets() if row.usage is None})


def count_missing(repo: Repository) -> None:
    """Count the usage of every subnet of a network whose row lacks it."""
    for row in repo.subnets():
        if row.usage is None:
            repo.put_subnet(replace(row, usage=_count(repo, row)))


def _count(repo: Repository, row: SubnetRow) -> dict[str, ClusterUse]:
    ncs: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for nc in repo.ncs_in_subnet(row.number):
        ncs[nc.cluster] += 1
        blocks = [repo.block(row.number, number) for number in nc.blocks]
        held[nc.cluster] += sum(len(list(block.owned_by(nc.number))) for block in blocks if block is not None)
    return {cluster: ClusterUse(ncs[cluster], held[cluster]) for cluster in ncs}
