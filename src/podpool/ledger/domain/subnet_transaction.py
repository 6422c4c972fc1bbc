"""One subnet within one transaction, for everybody who comes to it: what is held, what is in doubt, what is shown."""

from functools import cached_property

from podpool.ledger.domain.allocations import Holdings
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.settle import finish, is_frozen, servable
from podpool.ledger.messages import SubnetState
from podpool.ledger.storage.rows import ContainerRow, SubnetRow
from podpool.ledger.storage.store import Books


class Desk:
    """A subnet's holdings, and whether they may be given."""

    def __init__(self, books: Books, subnet: SubnetRow, *, wall: float) -> None:
        self.books = books
        self.holdings = Holdings(books, subnet, wall=wall)
        self.frozen = is_frozen(books, subnet, self.holdings.now)
        self.listing = self.frozen and bool(books.awaited(subnet.name))
        alarms = books.alarms() if subnet.alarms else []
        self.disputed = {number for each in alarms for number in (each.holder, each.claimant)}
        self.settled = False
        """Something may have changed: the subnet must be brought to rest."""
        self._before = subnet
        self._wall = wall

    def rest(self) -> None:
        """Bring the subnet to rest, and write it, after everybody has had a turn."""
        if self.settled:
            finish(self.holdings, before=self._before)

    @cached_property
    def state(self) -> SubnetState:
        """The subnet as it is shown, once it is at rest."""
        return subnet_state(self.books, self.holdings.subnet, wall=self._wall)

    def servable(self, cluster: str) -> list[str]:
        """List the containers of a cluster that would be given something now."""
        return [row.id for row in self._servable if row.cluster == cluster]

    @cached_property
    def _servable(self) -> list[ContainerRow]:
        spare = 0 if self.state.frozen else self.holdings.spare
        return servable(self.books, self.holdings.subnet, spare=spare)
