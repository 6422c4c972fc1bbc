"""Who has something where, whose lists are missing, and which addresses have two owners, in PostgreSQL.

Small tables, which are at hand as a whole.
"""

from collections.abc import Iterable

from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.postgres.history import PostgresHistory
from podpool.ledger.storage.rows import AlarmRow
from podpool.ledger.storage.store import Member


class PostgresRecovery(PostgresHistory):
    """The rows that a recovery is made of."""

    def add_member(self, member: Member) -> None:
        """Remember who has something where."""
        self._see_members()
        if not self.shelf.members.rows.get(member):
            self.dirty = True
            self.shelf.members.put(member, True)  # noqa: FBT003  there it is

    def members(self) -> list[Member]:
        """List who has, or had, something where."""
        self._see_members()
        return sorted(member for member, there in self.shelf.members.rows.items() if there)

    def awaited(self, name: SubnetName | None = None) -> list[Member]:
        """List whose lists are missing."""
        self._see_awaited()
        if not self.shelf.awaited.rows:  # as always but after a restore
            return []
        found = [member for member, there in self.shelf.awaited.rows.items() if there]
        if name is not None:
            found = [member for member in found if member[1:] == (name.network, name.name)]
        return sorted(found, key=lambda member: (member[1:], member[0]))

    def await_lists(self, members: Iterable[Member]) -> None:
        """Wait for lists."""
        self._see_awaited()
        for member in members:
            self.rare = True
            self._do(
                "INSERT INTO awaited (cluster, network, subnet) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", *member
            )
            self.shelf.awaited.put(member, True)  # noqa: FBT003  there it is

    def stop_awaiting(self, cluster: str) -> None:
        """Wait for a cluster's list no longer."""
        mine = [member for member in self.awaited() if member[0] == cluster]
        if mine:
            self.rare = True
            self._do("DELETE FROM awaited WHERE cluster = $1", cluster)
        for member in mine:
            self.shelf.awaited.put(member, None)

    def alarms(self) -> list[AlarmRow]:
        """List the addresses with two owners."""
        if self._first_use("alarm"):
            for row in self._all('SELECT subnet, address, holder, claimant, "grant" FROM alarm'):
                alarm = AlarmRow(**{**dict(row), "address": int(row["address"])})
                self.shelf.alarms.see(_alarm_key(alarm), alarm)
        return sorted(self.shelf.alarms.there(), key=_alarm_key)

    def add_alarm(self, row: AlarmRow) -> None:
        """Write down a second owner."""
        self.alarms()
        self.rare = True
        self._do(
            'INSERT INTO alarm (subnet, address, claimant, holder, "grant") VALUES ($1, $2, $3, $4, $5)'
            ' ON CONFLICT (subnet, address, claimant) DO UPDATE SET holder = $4, "grant" = $5',
            *_alarm_key(row),
            row.holder,
            row.grant,
        )
        self.shelf.alarms.put(_alarm_key(row), row)

    def drop_alarms(self, *, subnet: int | None = None, address: int | None = None) -> int:
        """Forget alarms."""
        dropped = [row for row in self.alarms() if subnet is None or (row.subnet, row.address) == (subnet, address)]
        for row in dropped:
            self.rare = True
            self._do("DELETE FROM alarm WHERE subnet = $1 AND address = $2 AND claimant = $3", *_alarm_key(row))
            self.shelf.alarms.put(_alarm_key(row), None)
        return len(dropped)

    def _first_use(self, table: str) -> bool:
        first = table not in self.shelf.whole
        self.shelf.whole.add(table)
        return first

    def _see_members(self) -> None:
        if self._first_use("member"):
            for row in self._all("SELECT cluster, network, subnet FROM member"):
                self.shelf.members.see(tuple(row), True)  # noqa: FBT003  there it is

    def _see_awaited(self) -> None:
        if self._first_use("awaited"):
            for row in self._all("SELECT cluster, network, subnet FROM awaited"):
                self.shelf.awaited.see(tuple(row), True)  # noqa: FBT003  there it is


def _alarm_key(row: AlarmRow) -> tuple[int, str, int]:
    return row.subnet, str(row.address), row.claimant
