"""The agent process is killed, restarted and replaced under churn: nothing answered is lost, and no ADD fails."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.agent.agent_process import AgentCluster, agent_cluster

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

WRITES = [f"append:{number}:{number % 5 / 4}" for pair in range(1, 10) for number in (pair, 19 - pair)]
"""The write in which each process is killed: the first few are those of a start, the others those of ADDs and DELs.

They alternate, so that a plugin, which waits 30 s, never waits for many processes that are killed while they start.
"""
OTHERS = [
    *(f"replace:{number}:{part}" for number in (1, 2) for part in (0, 0.5, 1)),
    *(f"remove:{number}:{part}" for number in (1, 2) for part in (0, 1)),
    *(point for part in (0, 1) for point in ("append:9:0.5", f"truncate:1:{part}")),
]
"""The same for compaction, and for the truncation of a torn tail."""
NO_COOLDOWN = ("--settings", "cooldown=0,cooldown_exhausted=0")


class Churn:
    """Sandboxes that start and stop, and the address of each from the response until its DEL is sent."""

    def __init__(self, cluster: AgentCluster, *, seed: int) -> None:
        self.cluster = cluster
        self.assigned: dict[str, str] = {}
        self.failed: list[str] = []
        self.over = asyncio.Event()
        self._rng = random.Random(seed)  # noqa: S311  seeded

    async def run(self, name: str) -> None:
        """Start and stop sandboxes until it is over."""
        number = 0
        while not self.over.is_set():
            number += 1
            box = f"{name}-{number}"
            code, result = await self.cluster.call("ADD", box)
            if code:
                self.failed.append(result)
                continue
            assert result not in self.assigned.values(), f"{result} was assigned to {box} and is in use"
            self.assigned[box] = result
            if self._rng.random() < 0.3:
                assert (0, result) == await self.cluster.call("ADD", box)
            if len(self.assigned) > 8 or self._rng.random() < 0.8:
                del self.assigned[box]
                code, result = await self.cluster.call("DEL", box)
                assert 0 == code, result

    async def check(self) -> None:
        """Check with the running agent that every sandbox has its address."""
        for box, address in self.assigned.items():
            assert (0, address) == await self.cluster.call("ADD", box)


def run_on_cluster(home: Path, test: Callable[[AgentCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(240), agent_cluster(home) as cluster:
            await test(cluster)

    asyncio.run(run())


async def under_churn(cluster: AgentCluster, restarts: Callable[[], Awaitable[None]]) -> Churn:
    """Do the restarts while sandboxes start and stop, then check."""
    churn = Churn(cluster, seed=1)
    working = [asyncio.create_task(churn.run(f"box{n}")) for n in range(3)]
    await restarts()
    churn.over.set()
    last = await cluster.agent(*NO_COOLDOWN)
    try:
        await asyncio.gather(*working)
        await churn.check()
    finally:
        last.terminate()
        assert 0 == await last.wait()
    assert [] == churn.failed
    return churn


@pytest.mark.parametrize("kill_points", [WRITES, OTHERS], ids=["writes", "others"])
def test_killed_in_every_change_of_the_journal_nothing_is_lost_or_assigned_twice(
    tmp_path: Path, kill_points: Sequence[str]
) -> None:
    async def test(cluster: AgentCluster) -> None:
        async def restarts() -> None:
            for point in kill_points:
                agent = await cluster.agent(*NO_COOLDOWN, killed_in=point)
                assert -signal.SIGKILL == await agent.wait()

        churn = await under_churn(cluster, restarts)
        assert churn.assigned
        assert (cluster.home / "journal" / "snapshot").exists() or kill_points is WRITES

    run_on_cluster(tmp_path, test)


def newest_segment(home: Path) -> tuple[str, int]:
    """Return name and size of the journal's last segment; a compaction starts the next."""
    segments = sorted((home / "journal").glob("segment.*"))
    return (segments[-1].name, segments[-1].stat().st_size) if segments else ("", 0)


def test_replaced_under_churn_no_add_fails(tmp_path: Path) -> None:
    """As in an upgrade: the old process is terminated, the new one starts."""

    async def test(cluster: AgentCluster) -> None:
        async def restarts() -> None:
            for _ in range(4):
                agent = await cluster.agent(*NO_COOLDOWN)
                segment, size = newest_segment(cluster.home)
                while True:
                    newest, now = newest_segment(cluster.home)
                    if now >= 3000 + (size if newest == segment else 0):
                        break
                    await asyncio.sleep(0.02)
                agent.terminate()
                assert 0 == await agent.wait()

        await under_churn(cluster, restarts)

    run_on_cluster(tmp_path, test)


def test_overlapping_under_churn_no_add_fails(tmp_path: Path) -> None:
    """As in an upgrade that starts the new process first: it waits for the old one, which keeps the socket."""

    async def test(cluster: AgentCluster) -> None:
        async def restarts() -> None:
            agent = await cluster.agent(*NO_COOLDOWN)
            for _ in range(3):
                assert 0 == (await cluster.call("DEL", "unknown"))[0]
                served = (cluster.home / "agent.sock").stat().st_ino
                successor = await cluster.agent(*NO_COOLDOWN)
                await asyncio.sleep(2.0)
                assert (served, None) == ((cluster.home / "agent.sock").stat().st_ino, successor.returncode)
                agent.terminate()
                assert 0 == await agent.wait()
                agent = successor
                await asyncio.sleep(1.0)
            agent.kill()
            await agent.wait()

        await under_churn(cluster, restarts)
        assert [] == [*(cluster.home / "journal").glob("*damaged*")]

    run_on_cluster(tmp_path, test)


def test_without_the_api_server_pods_get_available_addresses_and_one_patch_follows(tmp_path: Path) -> None:
    async def test(cluster: AgentCluster) -> None:
        agent = await cluster.agent(*NO_COOLDOWN)
        while 15 != (await cluster.env.nnc()).status.assigned:  # noqa: ASYNC110  another process requests them
            await asyncio.sleep(0.02)
        while (await cluster.call("STATUS", ""))[0]:  # noqa: ASYNC110  it confirms its Node once more after its request
            await asyncio.sleep(0.02)
        await cluster.stop()
        cluster.patches.clear()
        churn = Churn(cluster, seed=2)
        working = [asyncio.create_task(churn.run(f"box{n}")) for n in range(3)]
        await cluster.env.bind(*(f"pod-{n}" for n in range(20)))
        for _ in range(2):  # a new agent serves without the API server
            agent.kill()
            await agent.wait()
            agent = await cluster.agent(*NO_COOLDOWN)
            assert 0 == (await cluster.call("STATUS", ""))[0]
        churn.over.set()
        await asyncio.gather(*working)
        await churn.check()
        assert [] == churn.failed
        await cluster.serve()
        while (await cluster.env.nnc()).spec.requested <= 15:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.02)
        await churn.check()
        assert 1 == sum(status == 200 for _, status in cluster.patches), cluster.patches
        agent.terminate()
        assert 0 == await agent.wait()

    run_on_cluster(tmp_path, test)


def test_the_cni_configuration_is_written_when_it_can_serve_and_stays(tmp_path: Path) -> None:
    async def test(cluster: AgentCluster) -> None:
        configuration = cluster.home / "net.d" / "10-podpool.conflist"
        await cluster.env.report_boot("another")  # the Node has another boot ID: fenced
        agent = await cluster.agent()
        assert 1 == (await cluster.call("STATUS", ""))[0]
        assert not configuration.exists()
        await cluster.env.report_boot(cluster.env.boot_id)
        while not configuration.exists():  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.02)
        assert 0 == (await cluster.call("STATUS", ""))[0]
        assert '"type": "podpool"' in configuration.read_text()
        agent.terminate()
        assert 0 == await agent.wait()
        assert configuration.exists()

    run_on_cluster(tmp_path, test)


def test_the_cni_configuration_is_written_once_its_directory_is_writable(tmp_path: Path) -> None:
    """An agent that did not retry would leave its node NotReady until it is restarted."""

    async def test(cluster: AgentCluster) -> None:
        directory = cluster.home / "net.d"
        directory.write_text("not a directory")
        agent = await cluster.agent()
        while (await cluster.call("STATUS", ""))[0]:  # noqa: ASYNC110  another process becomes ready
            await asyncio.sleep(0.02)
        directory.unlink()
        while not (directory / "10-podpool.conflist").exists():  # noqa: ASYNC110  as above
            await asyncio.sleep(0.02)
        agent.terminate()
        assert 0 == await agent.wait()

    run_on_cluster(tmp_path, test)
