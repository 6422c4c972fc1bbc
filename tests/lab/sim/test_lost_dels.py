"""Lost DELs in the simulator: found in time, no living sandbox loses its address, and every planted bug is found."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.invariants import InvariantChecker
from podpool.lab.sim.lost_del_invariants import LostDelChecker
from podpool.lab.sim.profiles import PROFILES, SimConfig
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.seed_runner import run_scenario as run_random
from tests.lab.sim import planted_lost_dels, scenarios_lost_dels
from tests.lab.sim.driver import WIDE, Scenario, run_scenario

pytestmark = pytest.mark.simulation

PODS_ONLY = msgspec.structs.replace(WIDE, runtime_socket=False)
SEEDS = (1, 2)


class Bug(msgspec.Struct, frozen=True):
    """An omitted rule, and the scenario that shows it."""

    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: str
    config: SimConfig = WIDE


BUGS = (
    Bug(
        "sandboxes that ended without a DEL are released",
        planted_lost_dels.lost_dels_are_ignored,
        scenarios_lost_dels.a_runtime_loses_dels,
        "lost DEL",
    ),
    Bug(
        "also of Pods that live",
        planted_lost_dels.lost_dels_are_ignored,
        scenarios_lost_dels.a_runtime_is_killed_while_it_creates_sandboxes,
        "lost DEL",
    ),
    Bug(
        "a mass loss is released when Pods and runtime agree",
        planted_lost_dels.a_mass_loss_is_never_released,
        scenarios_lost_dels.all_deferred_dels_are_deleted,
        "agreement",
    ),
    Bug(
        "without the runtime's socket, Pods and network namespaces decide",
        planted_lost_dels.lost_dels_are_ignored,
        scenarios_lost_dels.all_deferred_dels_are_deleted,
        "lost DEL",
        PODS_ONLY,
    ),
    Bug(
        "a sandbox is absent in two observations",
        planted_lost_dels.one_observation_is_enough,
        scenarios_lost_dels.a_list_lacks_a_sandbox_once,
        "living sandbox",
    ),
    Bug(
        "a mass loss needs both sources",
        planted_lost_dels.a_mass_loss_needs_one_source,
        scenarios_lost_dels.a_runtime_loses_its_state,
        "living sandbox",
    ),
    Bug(
        "a list without any known sandbox does not count",
        planted_lost_dels.every_list_counts,
        scenarios_lost_dels.the_socket_is_of_another_runtime,
        "living sandbox",
    ),
    Bug(
        "a sandbox that was never listed may have a slow ADD chain",
        planted_lost_dels.slow_add_chains_are_forgotten,
        scenarios_lost_dels.an_add_chain_is_slow,
        "living sandbox",
    ),
    Bug(
        "a sandbox without Pod lives while its network namespace exists",
        planted_lost_dels.namespaces_are_not_checked,
        scenarios_lost_dels.a_sandbox_outlives_its_pod,
        "living sandbox",
    ),
    Bug(
        "a static Pod has the UID of its config hash in the runtime",
        planted_lost_dels.config_hashes_are_ignored,
        scenarios_lost_dels.namespaces_of_static_pods_are_hidden,
        "living sandbox",
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: faults log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def checkers(cluster: SimCluster) -> None:
    InvariantChecker(cluster)
    LostDelChecker(cluster)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.plant.__name__}-{bug.scenario.__name__}")
def test_an_omitted_rule_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        run_scenario(bug.scenario, seed=seed, config=bug.config, checker=checkers)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            run_scenario(bug.scenario, seed=seed, config=bug.config, checker=checkers)
        assert bug.reported == found.value.invariant


@pytest.mark.parametrize("name", ["narrow-lost-dels", "narrow-lost-dels-pods-only", "slices-lost-dels"])
def test_no_history_violates_an_invariant(name: str) -> None:
    profile = PROFILES[name]
    for seed in range(2000, 2003):
        result = run_random(seed, draw(seed, profile), profile)
        assert result.error is None, f"podpool sim --seed {seed} --profile {name}"


def test_the_documentation_lists_every_bug() -> None:
    documentation = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    rows = [f"| {bug.rule} | {bug.scenario.__name__.replace('_', ' ')} | {bug.reported} |" for bug in BUGS]
    assert [] == [row for row in rows if row not in documentation]
