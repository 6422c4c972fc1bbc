"""What an audit finds, one thing at a time."""

from collections.abc import Iterable
from typing import Literal

from podpool.inspect.view_models import View

Invariant = Literal[1, 2, 3, 7]
"""The numbers that docs/architecture.md gives them."""
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
NAMED = 4
"""Names in a sentence; of more, the number is told."""


class Finding(View, frozen=True, kw_only=True):
    """Something that must not be."""

    invariant: Invariant
    code: str
    """What kind of fault, for programs."""
    about: str
    """The object, as kubectl names it; or `address/10.0.0.5`."""
    told: str
    todo: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What is the same in two looks, whatever the words."""
        return self.code, self.about


def few(names: Iterable[str]) -> str:
    """Name a few, and count the rest."""
    listed = sorted(names)
    if len(listed) <= NAMED:
        return " and ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))
    return f"{', '.join(listed[:NAMED])} and {len(listed) - NAMED} more"
