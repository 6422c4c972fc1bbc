"""Incarnations: which writer has made which commits of a network, kept for ever.

Each start and each reconnect of a writer begins an incarnation with a random ID. The database records the first and the
last revision of each. Lost commits end an interval at the fork, and no later writer has the same ID, so a receipt of a
lost commit stays unknown even when the revisions have risen above it again.
"""

import msgspec

from podpool.ledger.domain.receipts import Receipt


class Incarnation(msgspec.Struct, frozen=True):
    """A writer's commits: none of its revisions is outside of the interval."""

    id: str
    first: int
    last: int


class Commits(msgspec.Struct, frozen=True):
    """The commits of a network: the intervals of earlier writers, and the last commit."""

    earlier: tuple[Incarnation, ...] = ()
    """Of the last writer too, if others have written since it began; ends with its last commit before another's."""
    incarnation: str = ""
    revision: int = 0

    def commit(self, incarnation: str) -> "Commits":
        """Return the commits with one more. An earlier interval is written only when the writer changes."""
        earlier, revision = self.earlier, self.revision + 1
        if incarnation != self.incarnation:
            if self.incarnation:
                earlier = _with(earlier, self.incarnation, self.revision)
            earlier = _with(earlier, incarnation, revision)
        return Commits(earlier, incarnation, revision)

    def contain(self, receipt: Receipt) -> bool:
        """Return whether this commit was made and not lost."""
        if receipt.incarnation == self.incarnation and receipt.revision > self.revision:
            return False
        interval = next((each for each in self.earlier if each.id == receipt.incarnation), None)
        if interval is None or receipt.revision < interval.first:
            return False
        return receipt.incarnation == self.incarnation or receipt.revision <= interval.last


def _with(earlier: tuple[Incarnation, ...], id_: str, revision: int) -> tuple[Incarnation, ...]:
    """Return the intervals with one that contains this revision."""
    for index, each in enumerate(earlier):
        if each.id == id_:
            return (*earlier[:index], Incarnation(id_, each.first, revision), *earlier[index + 1 :])
    return (*earlier, Incarnation(id_, revision, revision))
