"""Findings of an audit: which invariant is violated, by which object."""

from collections.abc import Iterable
from typing import Literal

from podpool.inspect.view_models import ViewModel

Invariant = Literal[1, 2, 3, 7]
"""Numbers of the invariants in docs/architecture.md."""
ONE_OWNER: Invariant = 1
CONTAINMENT: Invariant = 2
CONSENT: Invariant = 3
ALIGNED: Invariant = 7
RULES: dict[Invariant, str] = {
    ONE_OWNER: "one owner",
    CONTAINMENT: "containment",
    CONSENT: "consent",
    ALIGNED: "aligned",
}
MAX_NAMES = 4
"""Names listed in a message; more are counted."""


class AuditFinding(ViewModel, frozen=True, kw_only=True):
    """A violated invariant."""

    invariant: Invariant
    code: str
    """Identifies the kind of finding, for programs."""
    subject: str
    """The object as kubectl names it, or `address/10.0.0.5`."""
    message: str
    action: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identity of a finding across two snapshots, independent of its text."""
        return self.code, self.subject


def list_names(names: Iterable[str]) -> str:
    """Return up to `MAX_NAMES` names, and the count of the rest."""
    listed = sorted(names)
    if len(listed) <= MAX_NAMES:
        return " and ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))
    return f"{', '.join(listed[:MAX_NAMES])} and {len(listed) - MAX_NAMES} more"
