"""Build all components: `python -m parts`.

Each step prints what it does and how long it usually takes; steps with nothing to do are silent. The first failure
ends the command with one sentence that says what to do.
"""

from __future__ import annotations

from parts import axe, debian, postgres, recipes
from parts.steps import PartMissing


def main() -> None:
    """Build or fetch every component."""
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
