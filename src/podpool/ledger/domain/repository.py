"""Storage as the domain sees it: the rows of one transaction (`Repository`) and the database around it (`LedgerStore`).

Each network is a shard: it has its own revision, epoch, clusters with their terms, recovery, and writer. Transactions
of two networks are independent. What belongs to no network, such as tokens, is written as network "".

A transaction is a plain function of a `Repository`: it reads rows, decides, and writes rows back. The store runs it
alone and returns when it is durable. Several transactions may share a commit; neighbouring batch transactions run as
one. A transaction that raises changes nothing, and one that changed nothing costs no commit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from podpool.ledger.domain.address_block import Block
from podpool.ledger.domain.rows import (
    AllocationEvent,
    AllocationPeriodRow,
    AuditRow,
    ClusterRow,
    EventRow,
    HistoryQuery,
    LedgerTimeRow,
    NcRow,
    OwnershipConflictRow,
    PodUsageRow,
    SubnetRow,
    TokenRow,
)
from podpool.ledger.messages import SubnetName
from podpool.runtime.clock import Clock

A = TypeVar("A")
T = TypeVar("T")

Membership = tuple[str, str, str]
"""A cluster that has, or had, an NC in a subnet: cluster, network, subnet."""


class Repository(Protocol):
    """The rows of one network, within one transaction; for network "" those of all. Every list has a fixed order."""

    @property
    def network(self) -> str:
        """The network; "" for what belongs to none, and to read all networks."""

    @property
    def revision(self) -> int:
        """Rises with each change of the network and never goes back, not even with a restore."""

    @property
    def epoch(self) -> int:
        """The number of restores that were detected in the network."""

    def networks(self) -> list[str]:
        """Return all networks of the database by name: those that ever had a subnet."""

    def advance_revision(self, *, floor: int = 0) -> int:
        """Raise the revision by one, once for each transaction, or to a floor above that."""

    def start_epoch(self) -> int:
        """Raise the epoch."""

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[AllocationEvent]) -> None:
        """Append one row to the network's event log, under the current revision."""

    # Ledger time
    def time_row(self) -> LedgerTimeRow:
        """Return the stored ledger time."""

    def put_time_row(self, row: LedgerTimeRow) -> None:
        """Store the ledger time."""

    # Clusters
    def cluster(self, id_: str, *, network: str | None = None) -> ClusterRow | None:
        """Return a cluster in the network, or in another one to read it."""

    def clusters(self) -> list[ClusterRow]:
        """Return all clusters."""

    def put_cluster(self, row: ClusterRow) -> None:
        """Write a cluster."""

    # Subnets
    def subnet(self, name: SubnetName) -> SubnetRow | None:
        """Return a subnet by name, and lock it."""

    def subnet_by_number(self, number: int) -> SubnetRow:
        """Return a subnet by number, and lock it; raises LookupError if there is none."""

    def subnets(self) -> list[SubnetRow]:
        """Return subnets by network and name."""

    def due(self, time: float) -> list[tuple[str, int]]:
        """Return the network and number of the subnets whose timer has expired at this time."""

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        """Write a new subnet; returns it with its number."""

    def put_subnet(self, row: SubnetRow) -> None:
        """Write a subnet, and notify the listeners."""

    def delete_subnet_row(self, row: SubnetRow) -> None:
        """Delete a subnet with its blocks and closed NCs, and notify the listeners."""

    # Network containers
    def nc(self, id_: str) -> NcRow | None:
        """Return an NC, open or closed."""

    def nc_by_number(self, number: int) -> NcRow:
        """Return an NC by number."""

    def nc_of_node(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> NcRow | None:
        """Return the open NC of a node in a subnet."""

    def ncs(self, cluster: str) -> list[NcRow]:
        """Return the open NCs of a cluster."""

    def nc_count(self, cluster: str) -> int:
        """Count the open NCs of a cluster."""

    def ncs_in_subnet(self, subnet: int) -> list[NcRow]:
        """Return the open NCs in a subnet."""

    def waiting_for_pods(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        """Return NCs with waiting Pods, the longest waiting first; with `of_each` as many of each cluster."""

    def waiting_for_buffer(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        """Return NCs without their full buffer, the longest waiting first; with `of_each` as many of each cluster."""

    def third_party(self, subnet: int) -> list[NcRow]:
        """Return the open NCs of third-party agents."""

    def add_nc(self, row: NcRow) -> NcRow:
        """Return a new NC with its number; it must be written by `put_nc` afterwards."""

    def put_nc(self, row: NcRow) -> None:
        """Write an NC."""

    # Blocks
    def block(self, subnet: int, number: int) -> Block | None:
        """Return a block, if it was created."""

    def reusable_block(self, subnet: int, reusable_stamp: int) -> int | None:
        """Return the block with the slot that was freed first, if that was at this stamp or before."""

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        """Write a block."""

    # Recovery
    def add_member(self, member: Membership) -> None:
        """Record a membership, here and in the rollback detector."""

    def members(self) -> list[Membership]:
        """Return all memberships."""

    def pending_inventories(self, name: SubnetName | None = None) -> list[Membership]:
        """Return the inventories that are missing, for one subnet or all."""

    def require_inventories(self, members: Iterable[Membership]) -> None:
        """Grant nothing in these subnets until these clusters have sent their inventory."""

    def clear_pending_inventories(self, cluster: str) -> None:
        """Require no inventory of a cluster."""

    def conflicts(self) -> list[OwnershipConflictRow]:
        """Return the ownership conflicts."""

    def add_conflict(self, row: OwnershipConflictRow) -> None:
        """Write an ownership conflict."""

    def delete_conflicts(self, *, subnet: int | None = None, address: int | None = None) -> int:
        """Delete all ownership conflicts, or those of one address; returns how many."""

    # Tokens
    def token(self, id_: str) -> TokenRow | None:
        """Return a token."""

    def tokens(self) -> list[TokenRow]:
        """Return all tokens by ID."""

    def put_token(self, row: TokenRow) -> None:
        """Write a token."""

    def delete_token(self, id_: str) -> None:
        """Delete a token."""

    # Audit log
    def add_audit(self, row: AuditRow, *, keep: int) -> None:
        """Append an administrative call, and delete all but the latest ones."""

    def audit_rows(self, limit: int) -> list[AuditRow]:
        """Return the latest administrative calls, the latest first."""

    # History
    def unindexed_networks(self) -> list[str]:
        """Return the networks with events that the history lacks; "" comes first."""

    def unindexed_events(self, limit: int) -> list[EventRow]:
        """Return the oldest events that the history lacks, and lock them until the transaction ends."""

    def mark_indexed(self, numbers: Iterable[int]) -> None:
        """Mark events as part of the history."""

    def open_periods(self, *, network: str, address: str) -> list[AllocationPeriodRow]:
        """Return the allocation period of an address that has not ended, as far as the history goes."""

    def open_period(self, row: AllocationPeriodRow) -> None:
        """Write a new allocation period."""

    def close_periods(self, *, until: float, number: int | None = None, nc_id: str | None = None) -> None:
        """Write the end of one allocation period, or of all open ones of an NC."""

    def periods(self, query: HistoryQuery) -> list[AllocationPeriodRow]:
        """Return the allocation periods of an address or a node that overlap a time, the latest first."""

    def put_pod_usage(self, row: PodUsageRow) -> None:
        """Write that a Pod used an address; a repeated report extends the time.

        An address has one Pod at a time: an earlier usage without an end ends when this one begins.
        """

    def end_pod_usages(self, cluster: str, *, until: float) -> None:
        """End all usages of a cluster that have no end: no caller reports their end any more."""

    def pod_usages(self, periods: Sequence[AllocationPeriodRow]) -> list[list[PodUsageRow]]:
        """Return, for each of these ended periods, the Pods of its cluster that used its address, the latest first."""

    def reported_usages(self, query: HistoryQuery) -> list[PodUsageRow]:
        """Return the usages of a Pod within a time, the latest first.

        For an address or a node: only addresses that no NC held, that is those of secondary networks.
        """

    def trim_history(self, *, before: float, limit: int) -> int:
        """Delete what ended before a time, at most `limit` rows of each kind; returns how many."""


class BatchTransaction(msgspec.Struct, Generic[A, T], frozen=True):
    """A transaction that is run once for all neighbours in a group with the same function, each with its argument."""

    function: Callable[[Repository, Sequence[A]], Sequence[T]]
    argument: A
    weight: int = 1
    """Its work, in items: large ones share no commit."""

    def __call__(self, repository: Repository) -> T:
        """Run it for this argument alone."""
        (value,) = self.function(repository, [self.argument])
        return value


class LargeTransaction(msgspec.Struct, Generic[T], frozen=True):
    """A transaction whose work is known, in items."""

    function: Callable[[Repository], T]
    weight: int

    def __call__(self, repository: Repository) -> T:
        """Run it."""
        return self.function(repository)


class Rollback(msgspec.Struct, frozen=True):
    """The database may be older than the last response."""

    revision: int
    """The revision that it must have had."""
    members: tuple[Membership, ...] | None
    """The memberships that the rollback detector knows; None if it knows nothing."""


Repair = Callable[[Repository, Rollback], None]
"""Starts the recovery of a network that was rolled back."""

Listener = Callable[[str, Sequence[int]], None]
"""Called in the event loop with the network of a commit, and its subnets that the commit has changed."""


class QueueState(msgspec.Struct, frozen=True):
    """The transactions that wait for the writer, and what became of others."""

    waiting: int = 0
    dropped: int = 0
    """Not run, because their callers had gone or their deadlines had passed."""
    refused: int = 0
    """Turned away, because the queue was full."""


class LedgerStore(Protocol):
    """A database. Each of its networks has one writer at a time; network "" is for what belongs to none."""

    async def begin(self, repair: Repair) -> None:
        """Check for a rollback, now and after each reconnect, and repair the networks that were rolled back."""

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction that may change rows of a network; returns when that is durable."""

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction that changes nothing, on the rows of a network."""

    async def query(self, transaction: Callable[[Repository], T]) -> T:
        """Run a long transaction on all networks that changes nothing; it waits for no writer, sees earlier commits."""

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        """Call a listener after every commit; returns a function that removes it."""

    def clock(self, local: Clock) -> Clock:
        """Return the clock that all replicas share; if there is only one ledger, that of its machine."""

    def queue(self) -> QueueState:
        """Return the state of the queue."""

    def on_commit(self, callback: Callable[[int], None]) -> None:
        """Call a function after every commit with the size of its group, perhaps from another thread."""

    async def close(self) -> None:
        """Finish the queued transactions, and stop."""
