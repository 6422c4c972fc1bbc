"""One subnet within one transaction, shared by all requests of the transaction."""

from functools import cached_property

from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.settle import is_frozen, servable, settle
from podpool.ledger.messages import SubnetState


class SubnetTransaction:
    """A subnet's allocations, and whether they may be granted."""

    def __init__(self, repo: Repository, subnet: SubnetRow, *, wall: float) -> None:
        self.repo = repo
        self.allocations = Allocations(repo, subnet, wall=wall)
        self.frozen = is_frozen(repo, subnet, self.allocations.now)
        self.recovering = self.frozen and bool(repo.pending_inventories(subnet.name))
        conflicts = repo.conflicts() if subnet.conflicts else []
        self.disputed = {number for each in conflicts for number in (each.holder, each.claimant)}
        self.touched = False
        """Something may have changed: the subnet must be settled."""
        self._before = subnet
        self._wall = wall

    def finish(self) -> None:
        """Settle and write the subnet, after all requests."""
        if self.touched:
            settle(self.allocations, before=self._before)

    @cached_property
    def state(self) -> SubnetState:
        """The state of the subnet, once it is settled."""
        return subnet_state(self.repo, self.allocations.subnet, wall=self._wall)

    def servable(self, cluster: str) -> list[str]:
        """Return the NCs of a cluster that would be granted addresses now."""
        return [nc.id for nc in self._servable if nc.cluster == cluster]

    @cached_property
    def _servable(self) -> list[NcRow]:
        available = 0 if self.state.frozen else self.allocations.available
        return servable(self.repo, self.allocations.subnet, available=available)
