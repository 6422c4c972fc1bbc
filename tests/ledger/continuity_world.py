"""The world of the continuity model: two clusters, the database of a network as its commits, and what is under way."""

from functools import cache
from typing import NamedTuple

from podpool.ledger.domain.continuity import Continuity
from podpool.ledger.domain.incarnations import Commits
from podpool.ledger.domain.receipts import NCStateReceipt, Receipt, ReceiptKey, digest

NETWORK = "vnet"
CLUSTERS = (0, 1)
FREE = -1


class State(NamedTuple):
    """A state of a cluster's network container: what the ledger returns, an NNC shows, and a journal holds."""

    version: int = 0
    grant: int = 0
    """The ID of the grant of the address; 0 if the cluster does not hold it."""
    signed: str | None = None


class Leader(NamedTuple):
    """A controller process."""

    term: int = 0
    receipt: str | None = None
    """Of its own term; None until its first response from a proven network."""
    unpublished: State | None = None
    seen_rv: int = 0
    """The resourceVersion of the NNC that it has read: the precondition of its patch."""


class Cluster(NamedTuple):
    """One cluster."""

    leader: Leader = Leader()
    former: Leader | None = None
    """A paused leader that another has replaced."""
    lease: str | None = None
    nnc: State = State()
    rv: int = 0
    journal: State = State()
    released: bool = False
    """The agent does not use the address any more."""
    answer: tuple[str, tuple[str | None, ...]] = ("", ())
    """The last challenge in the NNC and the answer: kept only where a mutant reads it again."""

    @property
    def uses(self) -> bool:
        return bool(self.journal.grant) and not self.released


class Database(NamedTuple):
    """The database after one commit."""

    continuity: Continuity
    commits: Commits = Commits()
    owner: int = FREE
    grant: int = 0
    states: tuple[State, State] = (State(), State())
    terms: tuple[int, int] = (0, 0)
    listed: tuple[int | None, int | None] = (None, None)
    """During a recovery: the grant that each cluster claims; None before its inventory."""
    key: int = 0


class Late(NamedTuple):
    """A message that arrives again."""

    cluster: int
    kind: str
    leader: Leader
    answered: str = ""
    receipts: tuple[str | None, ...] = ()


class Budget(NamedTuple):
    """How many faults of each kind are left."""

    losses: int = 0
    restarts: int = 0
    """Of the database server, without a loss."""
    elections: int = 0
    late: int = 0
    lost_responses: int = 0
    api_restores: int = 0
    excuses: int = 0
    releases: int = 0
    keys: int = 0
    backups: int = 0
    commits: int = 9


class World(NamedTuple):
    """A state of the model."""

    left: Budget
    past: tuple[int, ...]
    """The commits that can be lost, the oldest first, with the database at the end; see `number_of`."""
    life: int = 0
    clusters: tuple[Cluster, Cluster] = (Cluster(), Cluster())
    late: Late | None = None
    key: int = 0
    key_made: bool = True
    backup: tuple[int, ...] = ()
    """A copy of the database that can be restored, also over one that is older."""
    record: Receipt | None = None
    """The last commit, recorded by the process outside of the database."""
    deserved: int = 0
    """How many recoveries the losses so far may cause."""
    excused: frozenset[int] = frozenset()
    reported: bool = False
    """A dispute was reported to the operators."""

    @property
    def db(self) -> Database:
        return DATABASES[self.past[-1]]


class Setup(NamedTuple):
    """A family of worlds to search."""

    budget: Budget
    faulty: tuple[int, ...] = (0,)
    """The clusters with elections, late messages, lost responses and restored API servers."""
    sqlite: bool = False
    """Every start is on a server of its own, and a record outside of the database may replace the answers."""
    one_volume: bool = False
    """The record is lost together with the database."""
    upgrade: bool = False
    """The database is from a version without receipts."""
    begin: tuple[str, ...] = ()
    """The first steps of every trace; what follows is exhaustive."""


def with_cluster(world: World, index: int, cluster: Cluster) -> World:
    clusters = (cluster, world.clusters[1]) if index == 0 else (world.clusters[0], cluster)
    return world._replace(clusters=clusters)


def with_state(db: Database, index: int, state: State) -> Database:
    return db._replace(states=(state, db.states[1]) if index == 0 else (db.states[0], state))


def later(world: World, message: Late) -> World:
    return world._replace(late=message, left=world.left._replace(late=world.left.late - 1))


DATABASES: list[Database] = []
_NUMBERS: dict[Database, int] = {}


def number_of(db: Database) -> int:
    """Return the number of a database: worlds are compared by it, which is much faster."""
    number = _NUMBERS.setdefault(db, len(DATABASES))
    if number == len(DATABASES):
        DATABASES.append(db)
    return number


_KEYS = [ReceiptKey(bytes([index]) * 32) for index in range(4)]


@cache
def sign(key: int, receipt: Receipt) -> str:
    return _KEYS[key].sign(NETWORK, receipt)


@cache
def verify(key: int, text: str | None) -> Receipt | None:
    return _KEYS[key].verify(NETWORK, text)


@cache
def sign_state(key: int, index: int, commit: Receipt, version: int, grant: int) -> str:
    listed = digest("", [(str(grant), "10.0.0.1")] if grant else [])
    return _KEYS[key].sign_state(NETWORK, str(index), NCStateReceipt(commit, version, listed))


@cache
def verify_state(key: int, index: int, text: str | None) -> Receipt | None:
    state = _KEYS[key].verify_state(NETWORK, str(index), text)
    return state.commit if state else None
