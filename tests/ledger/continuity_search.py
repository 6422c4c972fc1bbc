"""The search of the continuity model: every state within a budget of faults, and the shortest trace to a broken rule.

A rule is broken when both agents use the address although no operator has excused one of them, when a recovery begins
although nothing was lost since the last one, or when the network cannot grant again once the faults have ended.
`python -m tests.ledger.continuity_search` (`make model`) searches larger budgets.
"""

import sys
from collections import deque
from typing import NamedTuple

from tests.ledger.continuity_model import Broken, Model
from tests.ledger.continuity_world import Budget, Setup, World


class Trace(NamedTuple):
    """The result of a search."""

    states: int
    broken: str = ""
    steps: tuple[str, ...] = ()


SETUPS = {
    "lost commits": Setup(Budget(losses=1, commits=6)),
    "an old replica's token after another replica's commits were lost": Setup(Budget(losses=2, commits=6), faulty=()),
    "database and state directory on one volume": Setup(
        Budget(losses=1, restarts=1, commits=5), sqlite=True, one_volume=True
    ),
    "a state directory on another device": Setup(Budget(losses=1, restarts=1, commits=5), sqlite=True),
    "a leader paused between answer and publication": Setup(Budget(losses=1, elections=1, commits=5)),
    "API server and ledger restored together": Setup(Budget(losses=1, elections=1, api_restores=1, commits=4)),
    "a member whose first calls were in the lost commits": Setup(Budget(losses=1, lost_responses=1, commits=5)),
    "a member switched off for a weekend": Setup(Budget(losses=1, excuses=1, commits=6)),
    "a receipt of a lost branch replayed after recovery": Setup(Budget(losses=1, late=1, commits=6)),
    "a lost or second key": Setup(Budget(losses=1, keys=1, commits=5)),
    "the first upgrade": Setup(Budget(losses=1, commits=6), upgrade=True),
    "restarts without a loss": Setup(Budget(restarts=1, elections=1, late=1, commits=4)),
    "a release in the lost commits": Setup(Budget(losses=1, releases=1, commits=6), faulty=()),
    "a backup newer than the database": Setup(Budget(losses=1, backups=1, commits=5), faulty=()),
}
"""The traces that the rules are for: all of them hold."""

LARGE = {
    "losses and late messages": Setup(Budget(losses=2, late=1, commits=6)),
    "losses and elections": Setup(Budget(losses=2, elections=1, commits=6)),
    "late messages of two leaders": Setup(Budget(losses=1, elections=1, late=1, lost_responses=1, commits=6)),
    "faults in both clusters": Setup(Budget(losses=1, elections=2, commits=6), faulty=(0, 1)),
    "restored API servers": Setup(Budget(losses=1, elections=1, api_restores=2, commits=5), faulty=(0, 1)),
    "excuses and releases": Setup(Budget(losses=1, excuses=1, releases=1, commits=7)),
    "keys and restarts": Setup(Budget(losses=1, restarts=1, keys=1, commits=6)),
    "backups": Setup(Budget(losses=1, restarts=1, backups=1, commits=6), faulty=()),
    "SQLite": Setup(Budget(losses=1, restarts=1, elections=1, commits=6), sqlite=True),
}
"""Larger budgets, for `make model`."""

_FORKS_TWICE = (
    "0 opens a term",
    "the last 1 commits are lost",
    *("0 calls", "0 lists", "1 lists", "a backup is made", "the last 4 commits are lost"),
    *("0 answers with its agents", "1 answers with its agents", "0 calls", "0 calls", "0 publishes"),
    "the backup is restored",
)
_ANSWERS_LATE = (
    *("0 opens a term", "the server restarts", "0 sends a late answer"),
    *("0 answers", "1 answers with its agents"),
)
_ANSWERED_BEFORE = (
    *("0 opens a term", "0 elects", "the server restarts", "0 answers with its agents"),
    *("1 answers with its agents", "0 calls", "0 publishes"),
)

MUTANTS = {
    "nothing is asked": Setup(Budget(losses=1, commits=5)),
    "an own commit token proves": Setup(Budget(losses=1, commits=5)),
    "a writer keeps its incarnation": Setup(Budget(losses=2, commits=7)),
    "any known receipt is an answer": Setup(Budget(losses=1, late=1, commits=6)),
    "a late answer counts": Setup(Budget(losses=1, restarts=1, late=1, commits=10), begin=_ANSWERS_LATE),
    "challenges are counted": Setup(Budget(losses=1, restarts=1, elections=2, commits=11), begin=_ANSWERED_BEFORE),
    "the challenge is not written to NNCs": Setup(Budget(losses=1, elections=1, commits=6)),
    "agents are not asked": Setup(Budget(losses=1, elections=1, api_restores=1, commits=6)),
    "a new leader answers with its Lease": Setup(
        Budget(losses=1, elections=1, commits=7), begin=("0 opens a term", "0 renews its Lease")
    ),
    "a former leader answers": Setup(
        Budget(losses=1, elections=1, commits=9), begin=("0 opens a term", "0 elects", "0 calls")
    ),
    "an unproven network issues receipts": Setup(Budget(losses=1, elections=1, commits=7), begin=("0 calls",)),
    "a receipt of an earlier epoch is evidence": Setup(Budget(losses=1, late=1, commits=8)),
    "an answer of an earlier epoch is no evidence": Setup(
        Budget(losses=2, backups=1, elections=1, commits=18), begin=_FORKS_TWICE
    ),
    "one answer is enough": Setup(Budget(losses=1, commits=5)),
    "a recovery goes on after a restart": Setup(
        Budget(losses=2, commits=11), faulty=(), begin=("0 calls", "the last 1 commits are lost", "0 calls", "0 lists")
    ),
    "members from their first call": Setup(Budget(losses=1, commits=6)),
    "an excused member is served": Setup(Budget(losses=1, excuses=1, commits=8)),
    "a key is replaced without a recovery": Setup(Budget(losses=1, keys=1, commits=7), faulty=()),
    "a record on the database's volume proves": Setup(Budget(losses=1, commits=6), sqlite=True, one_volume=True),
    "a migration always counts as the first": Setup(Budget(losses=1, commits=6), upgrade=True),
}
"""What a world shows without one of the rules."""


def search(model: Model, *, live: bool = False) -> Trace:
    """Visit every state, the nearest first; return the shortest trace to a broken rule, if there is one."""
    first = model.initial()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        for name, after in model.steps(world):
            if after in came_from:
                continue
            came_from[after] = (world, name)
            try:
                model.check(after)
                if live and len(came_from) % 50 == 0:
                    check_live(model, after)
            except Broken as broken:
                return Trace(len(came_from), str(broken), tuple(_steps(came_from, after)))
            queue.append(after)
    return Trace(len(came_from))


def _steps(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    steps: list[str] = []
    while (origin := came_from[world]) is not None:
        world, name = origin
        steps.append(name)
    return steps[::-1]


def check_live(model: Model, world: World) -> None:
    """Raise unless the network grants again when the faults have ended and every cluster continues."""
    if model.granting(world):
        return
    world = world._replace(left=Budget(commits=100), late=None, backup=())
    if world.db.key != world.key:
        world = dict(model.steps(world))["the key is replaced"]
    for _ in range(3):
        for name in ("0", "1"):
            for verb in ("answers", "calls", "answers with its agents", "lists"):
                world = dict(model.steps(world)).get(f"{name} {verb}", world)
    if not model.granting(world):
        raise Broken("the network never grants again")


def main() -> None:
    """Search the larger budgets, or those whose names contain an argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = False
    for name, setup in LARGE.items():
        if wanted in name:
            found = search(Model(setup))
            failed = failed or bool(found.broken)
            print(f"{name}: {found.broken or 'holds'}, {found.states:,} states", *found.steps, sep="\n  ", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
