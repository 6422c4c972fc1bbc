"""Goals such as ">= 5" or "< 50", and whether a value meets one."""

from __future__ import annotations

import operator
import re

_GOAL = re.compile(r"(<=|>=|<|>|=) (-?\d+(?:\.\d+)?)")
_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


def check_goal(goal: str | None) -> None:
    """Raise an error for a goal that cannot be parsed."""
    if goal is not None and not _GOAL.fullmatch(goal):
        raise ValueError(f"a goal is a relation and a number, like '>= 5' or '< 50', not {goal!r}")


def limit(goal: str) -> float:
    """Return the number of a goal."""
    return float(goal.split()[1])


def met(goal: str | None, value: float) -> bool | None:
    """Return whether the value meets the goal; None without a goal."""
    if goal is None:
        return None
    return bool(_RELATIONS[goal.split()[0]](value, limit(goal)))
