"""The real process dies, restarts and is replaced under churn: nothing that was answered is lost, and no ADD fails."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.agent.processes import Cluster, cluster

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

WRITES = [f"append:{number}:{number % 5 / 4}" for number in range(1, 19)]
"""In which of its writes each life ends: the first few are those of a start, the others those of ADDs and DELs."""
OTHERS = [
    *(f"replace:{number}:{part}" for number in (1, 2) for part in (0, 0.5, 1)),
    *(f"remove:{number}:{part}" for number in (1, 2) for part in (0, 1)),
    *(death for part in (0, 1) for death in ("append:9:0.5", f"truncate:1:{part}")),
]
"""The same for the changes with which the journal is made short, and with which a start cuts off what is torn."""
NO_REST = ("--numbers", "cooldown=0,cooldown_floor=0")


class Churn:
    """Sandboxes that come and go; knows who has which address, from the answer until its DEL is sent."""

    def __init__(self, there: Cluster, *, seed: int) -> None:
        self.there = there
        self.held: dict[str, str] = {}
        self.failed: list[str] = []
        self.over = asyncio.Event()
        self._rng = random.Random(seed)  # noqa: S311  seeded

    async def sandbox(self, name: str) -> None:
        """One life after the other, until it is over."""
        number = 0
        while not self.over.is_set():
            number += 1
            box = f"{name}-{number}"
            code, told = await self.there.call("ADD", box)
            if code:
                self.failed.append(told)
                continue
            assert told not in self.held.values(), f"{told} was given to {box}, and somebody has it"
            self.held[box] = told
            if self._rng.random() < 0.3:
                assert (0, told) == await self.there.call("ADD", box)
            if len(self.held) > 8 or self._rng.random() < 0.8:
                del self.held[box]
                code, said = await self.there.call("DEL", box)
                assert 0 == code, said

    async def check(self) -> None:
        """Every address that was answered is its sandbox', by the agent that runs now."""
        for box, address in self.held.items():
            assert (0, address) == await self.there.call("ADD", box)


def play(home: Path, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(240), cluster(home) as there:
            await story(there)

    asyncio.run(run())


async def under_churn(there: Cluster, live: Callable[[], Awaitable[None]]) -> Churn:
    """Live all lives while sandboxes come and go, then look."""
    churn = Churn(there, seed=1)
    working = [asyncio.create_task(churn.sandbox(f"box{n}")) for n in range(3)]
    await live()
    churn.over.set()
    last = await there.agent(*NO_REST)
    try:
        await asyncio.gather(*working)
        await churn.check()
    finally:
        last.terminate()
        assert 0 == await last.wait()
    assert [] == churn.failed
    return churn


@pytest.mark.parametrize("deaths", [WRITES, OTHERS], ids=["writes", "others"])
def test_killed_in_every_change_of_the_journal_nothing_is_lost_and_nothing_given_twice(
    tmp_path: Path, deaths: Sequence[str]
) -> None:
    async def story(there: Cluster) -> None:
        async def live() -> None:
            for death in deaths:
                agent = await there.agent(*NO_REST, dies_in=death)
                assert -signal.SIGKILL == await agent.wait()

        churn = await under_churn(there, live)
        assert churn.held
        assert (there.home / "journal" / "snapshot").exists() or deaths is WRITES

    play(tmp_path, story)


def test_replaced_under_churn_no_add_fails(tmp_path: Path) -> None:
    """As an upgrade does it: the old one is told to end, the new one starts."""

    async def story(there: Cluster) -> None:
        async def live() -> None:
            for _ in range(4):
                agent = await there.agent(*NO_REST)
                records = there.home / "journal" / "segment.00000001"
                before = records.stat().st_size if records.exists() else 0
                while not records.exists() or records.stat().st_size < before + 3000:  # noqa: ASYNC110  another process writes it
                    await asyncio.sleep(0.02)
                agent.terminate()
                assert 0 == await agent.wait()

        await under_churn(there, live)

    play(tmp_path, story)


def test_while_the_api_server_is_away_pods_start_from_what_is_free_and_one_patch_follows(tmp_path: Path) -> None:
    async def story(there: Cluster) -> None:
        agent = await there.agent(*NO_REST)
        while 15 != (await there.world.config()).status.assigned:  # noqa: ASYNC110  another process asks for them
            await asyncio.sleep(0.02)
        while (await there.call("STATUS", ""))[0]:  # noqa: ASYNC110  it confirms its Node once more after it has asked
            await asyncio.sleep(0.02)
        await there.leave()
        there.patches.clear()
        churn = Churn(there, seed=2)
        working = [asyncio.create_task(churn.sandbox(f"box{n}")) for n in range(3)]
        await there.world.bind(*(f"pod-{n}" for n in range(20)))
        for _ in range(2):  # a new agent has nobody to ask, and serves
            agent.kill()
            await agent.wait()
            agent = await there.agent(*NO_REST)
            assert 0 == (await there.call("STATUS", ""))[0]
        churn.over.set()
        await asyncio.gather(*working)
        await churn.check()
        assert [] == churn.failed
        await there.serve()
        while (await there.world.config()).spec.requested <= 15:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.02)
        await churn.check()
        assert 1 == sum(status == 200 for _, status in there.patches), there.patches
        agent.terminate()
        assert 0 == await agent.wait()

    play(tmp_path, story)


def test_the_runtimes_configuration_appears_when_it_can_serve_and_stays(tmp_path: Path) -> None:
    async def story(there: Cluster) -> None:
        configuration = there.home / "net.d" / "10-podpool.conflist"
        await there.world.report_boot("another")  # the Node is not this machine's: fenced
        agent = await there.agent()
        assert 1 == (await there.call("STATUS", ""))[0]
        assert not configuration.exists()
        await there.world.report_boot(there.world.boot_id)
        while not configuration.exists():  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.02)
        assert 0 == (await there.call("STATUS", ""))[0]
        assert '"type": "podpool"' in configuration.read_text()
        agent.terminate()
        assert 0 == await agent.wait()
        assert configuration.exists()

    play(tmp_path, story)


def test_the_runtimes_configuration_appears_when_its_place_can_be_written_at_last(tmp_path: Path) -> None:
    """An agent that gave up would leave its node without Pods until it is restarted."""

    async def story(there: Cluster) -> None:
        place = there.home / "net.d"
        place.write_text("no directory")
        agent = await there.agent()
        while (await there.call("STATUS", ""))[0]:  # noqa: ASYNC110  another process becomes able to serve
            await asyncio.sleep(0.02)
        place.unlink()
        while not (place / "10-podpool.conflist").exists():  # noqa: ASYNC110  as above
            await asyncio.sleep(0.02)
        agent.terminate()
        assert 0 == await agent.wait()

    play(tmp_path, story)
