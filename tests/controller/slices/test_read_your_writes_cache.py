"""The overlay of a leader's own writes over the informer cache."""

import asyncio
import random
from typing import TYPE_CHECKING, cast

from podpool.api.builtin import LEASES, Lease
from podpool.api.meta import ObjectMeta
from podpool.controller.slices.read_your_writes_cache import ReadYourWritesCache
from podpool.kube.expectations import WATCH_DELAY
from podpool.kube.informer import Informer
from tests.kube.event_loops import run_in_virtual_time

if TYPE_CHECKING:
    from podpool.kube.client import KubeClient


class FakeInformer(Informer[Lease]):
    """An informer whose watch has reached the version that the test sets."""

    version = 1

    @property
    def resource_version(self) -> str:
        return str(self.version)


@run_in_virtual_time
async def test_a_write_that_the_watch_never_shows_counts_until_the_watch_has_passed_its_version() -> None:
    """The API server was restored, and has passed the version by the time that it is listed again."""
    client = cast("KubeClient", None)
    informer = FakeInformer(client, LEASES, rng=random.Random(1), namespace="here")  # noqa: S311  seeded
    changes: list[Lease | None] = []
    cache: ReadYourWritesCache[Lease] = ReadYourWritesCache(
        informer, on_change=lambda name: changes.append(cache.get(name))
    )
    lease = Lease(metadata=ObjectMeta(name="one", namespace="here", uid="u", resource_version="223"))
    cache.put(lease)
    informer.version = 215
    await asyncio.sleep(WATCH_DELAY + 1.0)
    assert [lease, lease] == changes
    informer.version = 230
    await asyncio.sleep(WATCH_DELAY)
    assert [lease, lease, None] == changes
    await asyncio.sleep(3 * WATCH_DELAY)
    assert 3 == len(changes)
