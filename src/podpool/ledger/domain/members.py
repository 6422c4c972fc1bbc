"""Members of a network: the clusters that may know something that its database has lost.

A cluster is a member from the creation of its first token for the network, before it has made any call: its first call
and its first network container may be in the lost commits. Only an operator ends a membership, or excuses an absence.
An excused member's addresses stay held as the database has them. When it returns, it sends an inventory before
anything else: undisputed claims are adopted, disputed ones are reported, and no other cluster waits for it.
"""

import msgspec


class Members(msgspec.Struct, frozen=True):
    """The members of a network, by their IDs."""

    present: frozenset[str] = frozenset()
    """Awaited whenever something must be proven or recovered."""
    excused: frozenset[str] = frozenset()
    """Not awaited; each sends an inventory when it returns, and is granted nothing before."""

    def __contains__(self, member: str) -> bool:
        return member in self.present or member in self.excused

    def join(self, member: str) -> "Members":
        """Return the members with a new one."""
        return self if member in self else Members(self.present | {member}, self.excused)

    def excuse(self, member: str) -> "Members":
        """Return the members without waiting for one of them."""
        return Members(self.present - {member}, self.excused | {member}) if member in self else self

    def restore(self, member: str) -> "Members":
        """Return the members with an excused one that has sent its inventory."""
        return Members(self.present | {member}, self.excused - {member}) if member in self else self

    def retire(self, member: str) -> "Members":
        """Return the members without one that was destroyed."""
        return Members(self.present - {member}, self.excused - {member})
