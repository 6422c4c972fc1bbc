"""History reads the Pods of all allocation periods in one statement: it shares the writer with grants."""

import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.ledger.harness import Leader, LedgerHarness, ids, item, run

if TYPE_CHECKING:
    from collections.abc import Callable

TURNOVERS = 30


def test_number_of_statements_does_not_depend_on_the_number_of_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def listened(*arguments: object, **named: object) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", listened)
    harness = LedgerHarness()
    harness.subnet(cooldown=0.0, cooldown_exhausted=0.0)
    leader = Leader(harness)
    state = leader.node(wanted=1)
    for _ in range(TURNOVERS):
        state = leader.reconcile_one(item(state=state, wanted=1, released=ids(state)))
    run(harness.ledger.maintain_history())
    statements.clear()
    assert TURNOVERS < len(run(harness.client.history(node="n1", limit=1000)).periods)
    assert 2 == sum("pod_usage" in each for each in statements)
