"""A full subnet is given more addresses, and the Pods that waited get them."""

import pytest

from tests.lab.sim.story import NARROW, Story, tell

pytestmark = pytest.mark.histories


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("cidr", ["10.0.0.0/26", "10.9.0.0/27"], ids=["around", "further"])
def test_who_waits_is_served_when_the_subnet_grows(cidr: str, seed: int) -> None:
    async def story(told: Story) -> None:
        await told.joined("a", "b")
        told.bind("a", 12)
        await told.watch(30)
        assert told.served("a") < 12
        told.world.office.grow(cidr)
        await told.until(lambda: told.served("a") == 12)
        await told.settled(60)

    tell(story, seed=seed, shape=NARROW, audited=True)
