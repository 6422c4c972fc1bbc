"""What a leader wrote, beside what its watches show."""

import asyncio
import random
from typing import TYPE_CHECKING, cast

from podpool.api.builtin import LEASES, Lease
from podpool.api.meta import ObjectMeta
from podpool.kube.expectations import WATCH_DELAY
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.informers import TrackedInformer, WriteThroughCache
from tests.kube.loops import play

if TYPE_CHECKING:
    from podpool.kube.client import KubeClient


class Told(TrackedInformer[Lease]):
    """A mirror that has come as far as a test says."""

    version = 1

    @property
    def seen(self) -> int:
        return self.version


def test_what_the_watch_never_showed_is_known_until_it_has_come_as_far_and_then_told_to_be_gone() -> None:
    """A server was restored, and has come further than it was by the time that it is listed again."""

    async def story() -> None:
        nobody = cast("KubeClient", None)
        mirror = Told(nobody, LEASES, settings=ControllerSettings(), rng=random.Random(1), namespace="here")  # noqa: S311  seeded
        changed: list[Lease | None] = []
        latest = WriteThroughCache(mirror, changed=lambda name: changed.append(latest.get(name)))
        lease = Lease(metadata=ObjectMeta(name="one", namespace="here", uid="u", resource_version="223"))
        latest.note(lease)
        mirror.version = 215
        await asyncio.sleep(WATCH_DELAY + 1.0)
        assert [lease, lease] == changed
        mirror.version = 230
        await asyncio.sleep(WATCH_DELAY)
        assert [lease, lease, None] == changed
        await asyncio.sleep(3 * WATCH_DELAY)
        assert 3 == len(changed)

    play(story())
