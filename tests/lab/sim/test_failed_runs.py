"""A failed run reports what there was when it failed, and never ends or blocks the command that runs many seeds."""

import os
import signal
from collections.abc import Callable

import pytest

from podpool.agent.journal_reader import UnsupportedJournal, encode_frame
from podpool.cli.commands.sim import WorkerDied, run_seeds
from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.profiles import PROFILES
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.scenario_runner import ScenarioRunner
from podpool.lab.sim.seed_runner import SeedFailure, run_and_shrink, run_scenario

SEED, FAILS_AT = 7, 60.0
"""A seed, and the second of its run from which the planted check fails."""


def plant_check(patch: pytest.MonkeyPatch, check: Callable[[SimCluster], None]) -> None:
    """Run another check with those of a cluster."""
    planned = SimCluster.check

    def both(cluster: SimCluster) -> None:
        planned(cluster)
        if cluster.loop.time() > FAILS_AT:
            check(cluster)

    patch.setattr(SimCluster, "check", both)


def fail(_: SimCluster) -> None:
    """Violate an invariant."""
    raise Violation("planted", "the check fails")


def written(cluster: SimCluster) -> tuple[int, bytes, dict[str, bytes | None]]:
    """Return what the API server, the ledger and the disks of all machines have."""
    disks = {
        f"{host.node}/{kind}/{name}": disk.read(name)
        for host in cluster.hosts.values()
        for kind, disk in (("state", host.machine.disk), ("deletes", host.runtime.deferred_deletes))
        for name in disk.names()
    }
    return cluster.store.revision, cluster.ledger_host.image(), disks


@pytest.mark.parametrize("profile", ["narrow-restores", "slices-restores", "storm"])
def test_a_shutdown_changes_nothing_that_was_written(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that are cancelled run their cleanup, on handles that are not valid any more."""
    before = []

    def record_and_fail(cluster: SimCluster) -> None:
        before.append(written(cluster))
        fail(cluster)

    plant_check(monkeypatch, record_and_fail)
    runner = ScenarioRunner(SEED, PROFILES[profile])
    with pytest.raises(Violation):
        runner.run(draw(SEED, PROFILES[profile]))
    assert before == [written(runner.first)]
    assert any(before[0][2].values())


def test_the_state_of_a_failure_is_that_before_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_check(monkeypatch, fail)
    profile = PROFILES["slices"]
    result = run_scenario(SEED, draw(SEED, profile), profile)
    assert result.error == "Violation: planted: the check fails"
    assert "controller-0: up" in result.state
    assert f"after {FAILS_AT:.0f}." in result.state
    assert "in fail" in result.traceback


def test_a_journal_that_cannot_be_read_is_a_line_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove_a_segment(cluster: SimCluster) -> None:
        disk = next(iter(cluster.hosts.values())).machine.disk
        for name in disk.names():
            disk.remove(name)
        disk.append("segment.00000001", encode_frame(b'{"journal_format": 99}'))
        fail(cluster)

    plant_check(monkeypatch, remove_a_segment)
    profile = PROFILES["slices"]
    result = run_scenario(SEED, draw(SEED, profile), profile)
    assert result.error == "Violation: planted: the check fails"
    assert "not readable: cannot read the journal file segment.00000001: " in result.state


def test_a_part_of_the_state_that_cannot_be_shown_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_a_status(cluster: SimCluster) -> None:
        monkeypatch.setattr(cluster.ledger_host, "subnet", lambda: 1 // 0)
        fail(cluster)

    plant_check(monkeypatch, drop_a_status)
    profile = PROFILES["narrow"]
    result = run_scenario(SEED, draw(SEED, profile), profile)
    assert result.error == "Violation: planted: the check fails"
    assert "not readable: ZeroDivisionError" in result.state
    assert "controller-0: up" in result.state


def test_an_exception_before_a_run_is_a_failure_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbuildable(*_args: object, **_options: object) -> None:
        raise UnsupportedJournal("segment.1", "the constructor fails")

    monkeypatch.setattr("podpool.lab.sim.scenario_runner.SimCluster", unbuildable)
    failure = run_and_shrink(SEED, "narrow")
    assert isinstance(failure, SeedFailure)
    assert f"seed {SEED} of narrow: UnsupportedJournal: " in str(failure)
    assert "in unbuildable" in str(failure)

    monkeypatch.setattr("podpool.lab.sim.seed_runner.draw", lambda *_: 1 // 0)
    failure = run_and_shrink(SEED, "narrow")
    assert isinstance(failure, SeedFailure)
    assert f"seed {SEED} of narrow: ZeroDivisionError: " in str(failure)


@pytest.mark.integration
def test_an_exception_that_cannot_be_pickled_is_a_failure_of_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Worker processes are forks of this one, with the planted check."""

    def unbuildable(*_args: object, **_options: object) -> None:
        raise UnsupportedJournal("segment.1", "the constructor fails")

    monkeypatch.setattr("podpool.lab.sim.scenario_runner.SimCluster", unbuildable)
    assert not run_seeds("1-3", "narrow")
    output = capsys.readouterr().out
    assert all(f"seed {seed} of narrow: UnsupportedJournal: " in output for seed in (1, 2, 3))
    assert "narrow: seeds 1-3, 3 failed" in output


@pytest.mark.integration
def test_a_worker_process_that_dies_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def die(_: SimCluster) -> None:
        assert parent != os.getpid()
        os.kill(os.getpid(), signal.SIGKILL)

    plant_check(monkeypatch, die)
    with pytest.raises(WorkerDied, match="4 seeds of narrow have no result, the first are 1, 2, 3, 4"):
        run_seeds("1-4", "narrow")
