"""Two candidates never lead at once: with skewed clocks, a hanging server, or a paused process."""

import asyncio
import itertools
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podpool.kube.client import KubeClient
from podpool.kube.leader_election import LeaderElector, LeadershipLost
from podpool.lab.apiserver.handler import ResourceHandler
from tests.kube.api_servers import ApiServerUnderTest, FixedClock, lite_api_server
from tests.kube.disturbable_transport import DisturbableTransport
from tests.kube.election_candidate import SHORT_TIMING
from tests.kube.event_loops import run_in_loop, run_virtual
from tests.kube.skewed_clocks import ClockedLoop, SkewedMachine

TICK = 0.05


class Contender:
    """A candidate on a machine of its own, which tries again whenever it lost."""

    def __init__(self, loop: ClockedLoop, server: ResourceHandler, name: str) -> None:
        self.name = name
        self.machine = SkewedMachine(loop)
        self.transport = DisturbableTransport(server)
        self.leads = 0
        self.elector = LeaderElector(
            KubeClient(self.transport),
            name="controller",
            namespace="kube-system",
            identity=name,
            clock=self.machine,
            rng=random.Random(name),  # noqa: S311  seeded
        )
        self.running = self.machine.call(lambda: asyncio.ensure_future(self._run()))

    @property
    def leading(self) -> bool:
        return self.machine.call(lambda: self.elector.is_leader)

    async def _run(self) -> None:
        while True:
            try:
                await self.elector.run(self._lead)
            except LeadershipLost:
                continue

    async def _lead(self) -> None:
        self.leads += 1
        await asyncio.Event().wait()


@asynccontextmanager
async def contest(loop: ClockedLoop, names: str) -> AsyncIterator[list[Contender]]:
    """Let them contend; at no tick of the true clock two of them lead."""
    server = lite_api_server()
    contenders = [Contender(loop, server, name) for name in names]
    watching = asyncio.ensure_future(_only_one(contenders))
    try:
        yield contenders
        assert not watching.done()
    finally:
        for each in (watching, *(contender.running for contender in contenders)):
            each.cancel()
        for contender in contenders:
            contender.machine.run_at(1.0)  # a sleeper would never end
        ended = await asyncio.gather(watching, *(contender.running for contender in contenders), return_exceptions=True)
        assert {asyncio.CancelledError} == {type(each) for each in ended}, ended


async def _only_one(contenders: list[Contender]) -> None:
    while True:
        leaders = [each.name for each in contenders if each.leading]
        assert len(leaders) <= 1, leaders
        await asyncio.sleep(TICK)


class TestClocks:
    @pytest.mark.simulation
    @pytest.mark.parametrize("seed", range(5))
    def test_clock_skew_below_one_half(self, seed: int) -> None:
        loop, rng = ClockedLoop(), random.Random(seed)  # noqa: S311  seeded

        async def scenario() -> None:
            async with contest(loop, "abc") as contenders:
                for _ in range(150):
                    each = rng.choice(contenders)
                    each.machine.run_at(rng.uniform(0.82, 1.2))
                    each.transport.hangs = rng.random() < 0.4
                    await asyncio.sleep(rng.uniform(0, 20))
                assert sum(each.leads for each in contenders) > 10

        run_virtual(scenario(), loop)

    @pytest.mark.simulation
    @pytest.mark.parametrize("seed", range(5))
    def test_clocks_stop_while_the_machine_sleeps(self, seed: int) -> None:
        loop, rng = ClockedLoop(), random.Random(seed)  # noqa: S311  seeded

        async def scenario() -> None:
            async with contest(loop, "abc") as contenders:
                for _ in range(100):
                    each = rng.choice(contenders)
                    each.machine.sleep()
                    await asyncio.sleep(rng.choice([0.1, 3.0, 9.0, 14.0, 16.0, 60.0]))
                    each.machine.run_at(1.0)
                    await asyncio.sleep(rng.uniform(0, 10))
                assert sum(each.leads for each in contenders) > 10

        run_virtual(scenario(), loop)

    def test_clock_skew_above_one_half_allows_two_leaders(self) -> None:
        """Which shows that the contest would see two leaders."""
        loop = ClockedLoop()

        async def scenario() -> None:
            async with contest(loop, "ab") as (first, second):
                await asyncio.sleep(5)
                slow, fast = (first, second) if first.leading else (second, first)
                slow.machine.run_at(0.5)
                fast.machine.run_at(2.0)
                slow.transport.hangs = True
                await asyncio.sleep(60)

        with pytest.raises(AssertionError):
            run_virtual(scenario(), loop)


def _read(lead: str) -> tuple[str, str]:
    name, number = lead.split()
    return name, number


class Candidates:
    """Candidates in separate processes, and the log to which the leader appends."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.processes: dict[str, Process] = {}

    async def enter(self, name: str, kubeconfig: Path, namespace: str) -> None:
        words = ("-m", "tests.kube.election_candidate", str(kubeconfig), namespace, name, str(self.log_path))
        self.processes[name] = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)

    def signed(self) -> list[tuple[str, str]]:
        """Who signed, one entry for each lead as far as they are not mixed.

        Who was stopped between the look at its lead and its signature finishes that one: no lead can prevent it.
        """
        lines = self.log_path.read_text().splitlines() if self.log_path.exists() else []
        runs = [(lead, len(list(signatures))) for lead, signatures in itertools.groupby(lines)]
        late = {at for at, (lead, count) in enumerate(runs) if count == 1 and lead in dict(runs[:at])}
        leads = [lead for at, (lead, _) in enumerate(runs) if at not in late]
        return [(name, number) for (name, number), _ in itertools.groupby(map(_read, leads))]

    async def led_by_another_than(self, name: str) -> str:
        """Wait until another than this one signed last."""
        last = name
        while last == name:
            await asyncio.sleep(TICK)
            last = next((each for each, _ in reversed(self.signed())), name)  # no leader yet
        return last

    async def lost(self, name: str) -> None:
        """Wait until it says that it lost the lead."""
        process = self.processes[name]
        assert process.stdout
        assert b"lost\n" == await process.stdout.readline()

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    async def leave(self) -> None:
        for process in self.processes.values():
            process.kill()
            await process.wait()


@pytest.mark.integration
@run_in_loop
async def test_a_process_that_was_paused_begins_nothing_more(cluster: ApiServerUnderTest, tmp_path: Path) -> None:
    candidates = Candidates(tmp_path / "log")
    async with cluster.open_namespace() as api, cluster.kubeconfig(api, tmp_path) as kubeconfig, asyncio.timeout(120):
        try:
            for name in ("a", "b"):
                await candidates.enter(name, kubeconfig, api.namespace)
            leader = await candidates.led_by_another_than("nobody")
            for _ in range(3):
                candidates.send(leader, signal.SIGSTOP)
                follower = await candidates.led_by_another_than(leader)
                candidates.send(leader, signal.SIGCONT)
                await candidates.lost(leader)
                leader = follower
        finally:
            await candidates.leave()
    leads = candidates.signed()
    assert len(leads) == len(set(leads)), "no candidate writes during the term of another"
    assert 4 <= len(leads)


@pytest.mark.integration
@run_in_loop
async def test_a_server_that_hangs_has_no_leader_and_soon_one_again(cluster: ApiServerUnderTest) -> None:
    async with cluster.open_namespace() as api, asyncio.timeout(120):
        leaders: list[str] = []
        lost = asyncio.Event()
        led = asyncio.Event()

        async def contend(name: str) -> None:
            elector = LeaderElector(
                KubeClient(api.transport),
                name="controller",
                namespace=api.namespace,
                identity=name,
                clock=FixedClock(),
                rng=random.Random(name),  # noqa: S311  seeded
                timing=SHORT_TIMING,
            )

            async def lead() -> None:
                assert [] == leaders
                leaders.append(name)
                led.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    leaders.remove(name)

            while True:
                try:
                    await elector.run(lead)
                except LeadershipLost:
                    lost.set()

        contending = [asyncio.ensure_future(contend(name)) for name in "ab"]
        try:
            for _ in range(2):
                await led.wait()
                async with api.hanging():
                    await lost.wait()
                    assert [] == leaders
                led.clear()
                lost.clear()
            await led.wait()
        finally:
            for each in contending:
                each.cancel()
            ended = await asyncio.gather(*contending, return_exceptions=True)
        assert {asyncio.CancelledError} == {type(each) for each in ended}, ended
