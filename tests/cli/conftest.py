"""A cluster that several tests look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.small_world import small_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.small_world import SmallWorld


@pytest.fixture(scope="module")
def shared_world() -> Iterator[SmallWorld]:
    with small_world() as made:
        yield made


@pytest.fixture
def world(shared_world: SmallWorld) -> Iterator[SmallWorld]:
    """A cluster that a test may look at, and cut roads in."""
    yield shared_world
    shared_world.network.mend_all()
