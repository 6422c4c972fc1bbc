"""Fixtures: a cluster that several tests read, and commands that run in this process."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest

from podpool.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.small_cluster import SmallCluster


class Result(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


class Invoke(Protocol):
    """Runs a command line."""

    def __call__(self, *words: str, program: str = "podpool") -> Result:
        """Return its result."""


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """Run commands in this process, without variables of the tester's own."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in [name for name in os.environ if name.startswith(("PODPOOL_", "KUBE"))]:
        monkeypatch.delenv(name)

    def run(*words: str, program: str = "podpool") -> Result:
        with pytest.raises(SystemExit) as stopped:
            main(words, program=program)
        printed = capsys.readouterr()
        return Result(int(stopped.value.code or 0), printed.out, printed.err)

    before = logging.root.handlers[:], logging.root.level
    yield run
    logging.root.handlers[:], logging.root.level = before


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SmallCluster]:
    from tests.cli.small_cluster import small_cluster  # noqa: PLC0415  the simulator is slow to import

    with small_cluster() as made:
        yield made


@pytest.fixture
def cluster(shared_cluster: SmallCluster) -> Iterator[SmallCluster]:
    """A cluster that a test may read, and whose connections it may cut."""
    yield shared_cluster
    shared_cluster.network.heal_all()
