"""Where the books are kept: what a database must offer, and nothing about how.

A call's work is a plain function over `Books`: it reads rows, decides, and puts rows back. The store runs it in one
transaction, alone, and answers when it is durable; several works may share a commit, and those that are made for it
(`works.Shared`) are done as one. Work that raises leaves no trace. A work that changed nothing costs no commit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.block import Block
from podpool.ledger.storage.rows import (
    AlarmRow,
    ClusterRow,
    ContainerRow,
    Event,
    EventRow,
    PodRow,
    Question,
    SubnetRow,
    TenureRow,
    TokenRow,
)

T = TypeVar("T")

Member = tuple[str, str, str]
"""A cluster that has, or had, a container in a subnet: cluster, network, subnet."""


class Books(Protocol):
    """The rows, within one transaction. Whatever lists rows does so in a fixed order."""

    @property
    def revision(self) -> int:
        """Rises with each change of the books, and never goes back, not even with a restore."""

    @property
    def epoch(self) -> int:
        """How often the books were found to be restored."""

    def advance(self, *, floor: int = 0) -> int:
        """Raise the revision: by one, once for each work, or to a floor above that."""

    def begin_epoch(self) -> int:
        """Raise the epoch."""

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[Event]) -> None:
        """Write what happened, as one row under the revision."""

    # clusters
    def cluster(self, id_: str) -> ClusterRow | None:
        """Find a cluster."""

    def clusters(self) -> list[ClusterRow]:
        """List all clusters."""

    def put_cluster(self, row: ClusterRow) -> None:
        """Write a cluster."""

    # subnets
    def subnet(self, name: SubnetName) -> SubnetRow | None:
        """Find a subnet by its name, and lock it."""

    def subnet_at(self, number: int) -> SubnetRow:
        """Find a subnet by its number, and lock it; raises LookupError when there is none."""

    def subnets(self, *, network: str | None = None) -> list[SubnetRow]:
        """List subnets by network and name."""

    def due(self, wall: float) -> list[int]:
        """List the subnets in which something changes by itself at this time or before."""

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        """Write a new subnet, and number it."""

    def put_subnet(self, row: SubnetRow) -> None:
        """Write a subnet; whoever follows the store is told."""

    def remove_subnet(self, row: SubnetRow) -> None:
        """Forget a subnet, with its blocks and its closed containers; whoever follows the store is told."""

    # containers
    def container(self, id_: str) -> ContainerRow | None:
        """Find a container, closed or not."""

    def container_at(self, number: int) -> ContainerRow:
        """Find a container by its number."""

    def container_of(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> ContainerRow | None:
        """Find the container that is open for a node in a subnet."""

    def containers(self, cluster: str) -> list[ContainerRow]:
        """List the open containers of a cluster."""

    def container_count(self, cluster: str) -> int:
        """Count the open containers of a cluster."""

    def containers_in(self, subnet: int) -> list[ContainerRow]:
        """List the open containers in a subnet."""

    def needing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers with waiting Pods, first come first."""

    def wishing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers that are short of buffer, first come first."""

    def foreign(self, subnet: int) -> list[ContainerRow]:
        """List the open containers of foreign agents."""

    def add_container(self, row: ContainerRow) -> ContainerRow:
        """Number a new container, which is then to be put."""

    def put_container(self, row: ContainerRow) -> None:
        """Write a container."""

    # blocks
    def block(self, subnet: int, number: int) -> Block | None:
        """Read a block, if it was made."""

    def ready_block(self, subnet: int, awake: int) -> int | None:
        """Find a block with a slot stamped at `awake` or before: the one that is free for longest."""

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        """Write a block."""

    # recovery
    def add_member(self, member: Member) -> None:
        """Remember that a cluster has something in a subnet, here and with the witness."""

    def members(self) -> list[Member]:
        """List who has, or had, something where."""

    def awaited(self, name: SubnetName | None = None) -> list[Member]:
        """List whose lists are missing, in one subnet or all."""

    def await_lists(self, members: Iterable[Member]) -> None:
        """Grant nothing in these subnets until these clusters have listed."""

    def stop_awaiting(self, cluster: str) -> None:
        """Wait for a cluster's list no longer."""

    def alarms(self) -> list[AlarmRow]:
        """List the addresses with two owners."""

    def add_alarm(self, row: AlarmRow) -> None:
        """Write down a second owner."""

    def drop_alarms(self, *, subnet: int | None = None, address: int | None = None) -> int:
        """Forget alarms: all, or those about one address; tell how many there were."""

    # tokens
    def token(self, id_: str) -> TokenRow | None:
        """Find a token."""

    def tokens(self) -> list[TokenRow]:
        """List all tokens, by their ids."""

    def put_token(self, row: TokenRow) -> None:
        """Write a token."""

    # history
    def unread_events(self, limit: int) -> list[EventRow]:
        """List what was logged and not read yet, first come first; nobody else reads it until this work has ended."""

    def mark_read(self, numbers: Iterable[int]) -> None:
        """Note that events were read."""

    def lasting_tenures(self, *, network: str, address: str) -> list[TenureRow]:
        """List who has an address, as far as the history was read: one, if anybody."""

    def begin_tenure(self, row: TenureRow) -> None:
        """Write a new tenure."""

    def end_tenures(self, *, until: float, number: int | None = None, container: str | None = None) -> None:
        """Write the end of one tenure, or of all that a container has."""

    def tenures(self, question: Question) -> list[TenureRow]:
        """List tenures of an address, or of a node's containers, that overlap a time; the latest first."""

    def put_pod(self, row: PodRow) -> None:
        """Write what is known of a Pod and an address; a report again widens what was known.

        An address has one Pod at a time: an earlier one whose end nobody reported ended when this one began.
        """

    def pods(self, *, network: str, address: str, cluster: str, begin: float, end: float) -> list[PodRow]:
        """List the Pods of a cluster that had an address within a time; the latest first."""

    def reported(self, question: Question) -> list[PodRow]:
        """List what Pods had within a time; the latest first.

        Asked for an address or a node, only addresses that were in no node's hands: those of further networks.
        """

    def trim_history(self, *, before: float, limit: int) -> int:
        """Forget what ended before a time, at most so many rows of each kind; tell how many were."""


class Restored(msgspec.Struct, frozen=True):
    """What a witness says when the books may be older than the last answer."""

    revision: int
    members: tuple[Member, ...] | None
    """Who has something where, as far as the witness knows; None when it cannot tell."""


Mend = Callable[[Books, Restored], None]
"""What is done to books that may be older than the last answer."""

Listener = Callable[[Sequence[int]], None]
"""Told, in the event loop, which subnets a commit has changed."""


class Store(Protocol):
    """A database with its one writer."""

    async def begin(self, mend: Mend) -> None:
        """Ask the witness, now and whenever the database was away, and mend the books if they may be old."""

    async def write(self, work: Callable[[Books], T]) -> T:
        """Run a work that may change something; returns when that is durable."""

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing."""

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit, until what this returns is called."""

    def count_commits(self, hear: Callable[[int], None]) -> None:
        """Tell somebody of every commit how many works it carried; perhaps from another thread."""

    async def close(self) -> None:
        """Finish what was taken, and stop."""
