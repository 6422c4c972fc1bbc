"""The continuity rules hold in every state of the model, and each of them is needed."""

import pytest

from tests.ledger.continuity_model import Model
from tests.ledger.continuity_search import MUTANTS, SETUPS, search

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("name", SETUPS)
def test_no_two_owners_no_needless_recovery_and_no_dead_end(name: str) -> None:
    """Within the budget no trace breaks a rule, and when the faults end the network grants again."""
    trace = search(Model(SETUPS[name]), live=True)
    assert (trace.broken, trace.steps) == ("", ())
    assert trace.states > 100


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    """The model finds every omitted rule."""
    assert search(Model(MUTANTS[mutant], mutant)).broken
