"""Memberships, pending inventories and ownership conflicts in PostgreSQL: small tables that are cached as a whole."""

from collections.abc import Iterable

from podpool.ledger.domain.repository import Membership
from podpool.ledger.domain.rows import OwnershipConflictRow
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.postgres.history import PostgresHistory

_INSERT_PENDING = "INSERT INTO pending_inventory (cluster, network, subnet) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"


class PostgresRecovery(PostgresHistory):
    """The rows that a recovery needs."""

    def add_member(self, member: Membership) -> None:
        self._load_members()
        if not self.cache.members.rows.get(member):
            self.dirty = True
            self.cache.members.put(member, True)  # noqa: FBT003  True: the row exists

    def members(self) -> list[Membership]:
        self._load_members()
        return sorted(member for member, present in self.cache.members.rows.items() if present)

    def pending_inventories(self, name: SubnetName | None = None) -> list[Membership]:
        self._load_pending_inventories()
        if not self.cache.pending_inventories.rows:  # always, except after a restore
            return []
        found = [member for member, present in self.cache.pending_inventories.rows.items() if present]
        if name is not None:
            found = [member for member in found if member[1:] == (name.network, name.name)]
        return sorted(found, key=lambda member: (member[1:], member[0]))

    def require_inventories(self, members: Iterable[Membership]) -> None:
        self._load_pending_inventories()
        for member in members:
            self.invalidate_all = True
            self._execute(_INSERT_PENDING, *member)
            self.cache.pending_inventories.put(member, True)  # noqa: FBT003  True: the row exists

    def clear_pending_inventories(self, cluster: str) -> None:
        pending = [member for member in self.pending_inventories() if member[0] == cluster]
        if pending:
            self.invalidate_all = True
            self._execute("DELETE FROM pending_inventory WHERE network = $1 AND cluster = $2", self.network, cluster)
        for member in pending:
            self.cache.pending_inventories.put(member, None)

    def conflicts(self) -> list[OwnershipConflictRow]:
        if self._mark_loaded("ownership_conflict"):
            columns = 'subnet, address, holder, claimant, "grant"'
            statement = f"SELECT {columns} FROM ownership_conflict WHERE {self._own_subnet}"  # noqa: S608  our own names
            for row in self._fetch_all(statement, self.network):
                conflict = OwnershipConflictRow(**{**dict(row), "address": int(row["address"])})
                self.cache.conflicts.load(_conflict_key(conflict), conflict)
        return sorted(self.cache.conflicts.existing(), key=_conflict_key)

    def add_conflict(self, row: OwnershipConflictRow) -> None:
        self.conflicts()
        self.invalidate_all = True
        self._execute(
            'INSERT INTO ownership_conflict (subnet, address, claimant, holder, "grant") VALUES ($1, $2, $3, $4, $5)'
            ' ON CONFLICT (subnet, address, claimant) DO UPDATE SET holder = $4, "grant" = $5',
            *_conflict_key(row),
            row.holder,
            row.grant,
        )
        self.cache.conflicts.put(_conflict_key(row), row)

    def delete_conflicts(self, *, subnet: int | None = None, address: int | None = None) -> int:
        deleted = [row for row in self.conflicts() if subnet is None or (row.subnet, row.address) == (subnet, address)]
        for row in deleted:
            self.invalidate_all = True
            condition = "subnet = $1 AND address = $2 AND claimant = $3"
            self._execute(f"DELETE FROM ownership_conflict WHERE {condition}", *_conflict_key(row))  # noqa: S608  our own names
            self.cache.conflicts.put(_conflict_key(row), None)
        return len(deleted)

    @property
    def _own(self) -> str:
        """A condition for rows with a network, which is parameter 1."""
        return "network = $1" if self.network else "$1::text = ''"

    @property
    def _own_subnet(self) -> str:
        """A condition for rows with a subnet; parameter 1 is the network."""
        return "subnet IN (SELECT number FROM subnet WHERE network = $1)" if self.network else "$1::text = ''"

    def _mark_loaded(self, table: str) -> bool:
        first = table not in self.cache.loaded
        self.cache.loaded.add(table)
        return first

    def _load_members(self) -> None:
        if self._mark_loaded("membership"):
            statement = f"SELECT cluster, network, subnet FROM membership WHERE {self._own}"  # noqa: S608  our own names
            for row in self._fetch_all(statement, self.network):
                self.cache.members.load(tuple(row), True)  # noqa: FBT003  True: the row exists

    def _load_pending_inventories(self) -> None:
        if self._mark_loaded("pending_inventory"):
            statement = f"SELECT cluster, network, subnet FROM pending_inventory WHERE {self._own}"  # noqa: S608  our own names
            for row in self._fetch_all(statement, self.network):
                self.cache.pending_inventories.load(tuple(row), True)  # noqa: FBT003  True: the row exists


def _conflict_key(row: OwnershipConflictRow) -> tuple[int, str, int]:
    return row.subnet, str(row.address), row.claimant
