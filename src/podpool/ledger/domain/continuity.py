"""Continuity: whether a network may grant addresses, or its database could have lost commits.

A database that was restored, promoted or restarted without its last commits looks like any other, so its numbers alone
prove nothing. The rules, of which the model in `tests/ledger/continuity_model.py` needs each:

1. Only a PROVEN network grants, changes network containers, or issues receipts. Others serve reads, and callers must
   not publish what they read: a newer version made from an older database would hide what was lost.
2. The database records the server on which it was proven: for PostgreSQL system identifier, timeline and start time.
   A process that finds itself on that server adopts what is recorded. On any other the network is PROVING, with a new
   challenge that all members must answer. That the last commit is the process's own proves nothing: another replica's
   may be lost. Only a record of the last commit on another device replaces the answers (`continuous`).
3. An answer names the challenge, so that neither a late message nor an answer to an earlier challenge counts. A leader
   answers with its newest receipt, if it was the leader before the challenge was made and, having received the
   challenge, still is. Any other leader first writes the challenge to every NNC, so that no earlier patch can still
   arrive, and asks every agent for the signed state in its journal. One of these that the commits do not contain means
   lost commits, whatever its epoch: a backup may be newer than the database that it replaces.
4. Outside of answers, a receipt that the commits do not contain means lost commits if it is of this epoch or a later
   one. One of an earlier epoch is a repetition: every member has answered since. A missing or invalid one is no
   evidence of anything.
5. Lost commits begin a recovery: a higher epoch than any seen, a new challenge, and each member's inventory after it.
   So does an operator's declaration, and the replacement of the key, after which no receipt can be evidence.

The service does not apply these rules yet: `controller_terms` and `storage.rollback_detector` decide until it does.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.incarnations import Commits
from podpool.ledger.domain.members import Members
from podpool.ledger.domain.receipts import Receipt


class Stage(StrEnum):
    """What is known about the database of a network."""

    PROVEN = "proven"
    """It has lost nothing that a member could know."""
    PROVING = "proving"
    """It may have lost commits: the members are asked."""
    RECOVERING = "recovering"
    """It has lost commits: the members' inventories become the database."""


class Continuity(msgspec.Struct, frozen=True):
    """The recorded state of a network."""

    stage: Stage = Stage.PROVEN
    epoch: int = 0
    """How many recoveries were begun; rises above that of every receipt that revealed one."""
    server: str | None = None
    """The database server that the stage is about; None before the first start."""
    challenge: str = ""
    """Random, new with each question to the members."""
    members: Members = Members()
    awaited: frozenset[str] = frozenset()
    """The members that have not answered the challenge."""

    def may_change(self, member: str) -> bool:
        """Return whether a member's calls are processed, and answered with a receipt."""
        return self.stage is Stage.PROVEN and member in self.members.present

    def must_list(self, member: str) -> bool:
        """Return whether a member must send its inventory before anything else."""
        return member in self.members.excused or (self.stage is Stage.RECOVERING and member in self.awaited)

    def start(self, server: str, *, challenge: str, continuous: bool = False, first: bool = False) -> "Continuity":
        """A process has connected. `first`: the key was made just now, so no receipt was ever issued."""
        if server == self.server:
            return self
        if continuous or (first and self.server is None):
            return replace(self, server=server)
        if self.stage is Stage.RECOVERING:  # inventories, or the end of this recovery, may be among the lost commits
            return _recover(replace(self, server=server), self.epoch, challenge)
        return _ask(replace(self, server=server), Stage.PROVING, challenge)

    def receive(self, member: str, unknown: Receipt | None, *, challenge: str) -> "Continuity":
        """A member's call carried a signed receipt that the commits do not contain."""
        if unknown is None or unknown.epoch < self.epoch or member not in self.members.present:
            return self
        if self.stage is Stage.RECOVERING:  # it is asked anyway; the same receipt must not begin the next one
            return replace(self, epoch=unknown.epoch + 1)
        return _recover(self, unknown.epoch, challenge)

    def answer(
        self, member: str, answered: str, evidence: "Evidence", *, agents_asked: bool, challenge: str
    ) -> "Continuity":
        """A member has answered a challenge: what it knows is in the commits, or they are incomplete."""
        if self.stage is not Stage.PROVING or answered != self.challenge or member not in self.awaited:
            return self
        if evidence.unknown:
            return _recover(self, max(each.epoch for each in evidence.unknown), challenge)
        return _without(self, member) if evidence.known or agents_asked else self

    def listed(self, member: str, answered: str) -> "Continuity":
        """A member has sent its whole inventory, read after the challenge was written to each NNC."""
        if member in self.members.excused:
            return replace(self, members=self.members.restore(member))
        if self.stage is not Stage.RECOVERING or answered != self.challenge:
            return self
        return _without(self, member)

    def declare_lost(self, challenge: str) -> "Continuity":
        """An operator has restored the database or replaced the key."""
        return _recover(self, self.epoch, challenge)

    def join(self, member: str) -> "Continuity":
        """A token for the network was created; a new member knows nothing yet, and is not awaited."""
        return replace(self, members=self.members.join(member))

    def excuse(self, member: str) -> "Continuity":
        """An operator has decided not to wait for a member."""
        return _without(replace(self, members=self.members.excuse(member)), member)

    def retire(self, member: str) -> "Continuity":
        """An operator has ended a membership."""
        return _without(replace(self, members=self.members.retire(member)), member)


class Evidence(msgspec.Struct, frozen=True):
    """The signed receipts of an answer, that of each NC state included."""

    known: tuple[Receipt, ...] = ()
    unknown: tuple[Receipt, ...] = ()


def examine(receipts: Iterable[Receipt | None], commits: Commits) -> Evidence:
    """Compare receipts with the commits; what was missing or not signed is None and no evidence."""
    signed = [each for each in receipts if each is not None]
    known = tuple(each for each in signed if commits.contain(each))
    unknown = tuple(each for each in signed if not commits.contain(each))
    return Evidence(known, unknown)


def _recover(state: Continuity, epoch: int, challenge: str) -> Continuity:
    return _ask(replace(state, epoch=max(epoch, state.epoch) + 1), Stage.RECOVERING, challenge)


def _ask(state: Continuity, stage: Stage, challenge: str) -> Continuity:
    return _settled(replace(state, stage=stage, challenge=challenge, awaited=state.members.present))


def _without(state: Continuity, member: str) -> Continuity:
    return _settled(replace(state, awaited=state.awaited - {member}))


def _settled(state: Continuity) -> Continuity:
    if state.stage is Stage.PROVEN or state.awaited:
        return state
    return replace(state, stage=Stage.PROVEN, challenge="")
