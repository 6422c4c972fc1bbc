"""Fetch and build all that the tests need: `python -m parts`.

Each step says what it does and how long it usually takes; a step with nothing to do is silent, so that a second call
ends at once. The first step that cannot go on ends the call with one sentence that tells what to do.
"""

from __future__ import annotations

from parts import axe, debian, postgres, recipes
from parts.steps import PartMissing


def main() -> None:
    """Bring every part in place."""
    try:
        debian.install()
        postgres.fetch()
        axe.fetch()
        for recipe in recipes.RECIPES:
            recipes.build(recipe)
    except PartMissing as missing:
        raise SystemExit(f"podpool: {missing}") from None
    except KeyboardInterrupt:
        raise SystemExit("podpool: stopped; 'make parts' goes on where it was.") from None
    print("podpool: every part is in place")


if __name__ == "__main__":
    main()
