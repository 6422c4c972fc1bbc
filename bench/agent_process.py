"""Agent process: latency under load and after a burst, memory, start time, cost of the journal."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from bench.timing import batched, repeated
from parts.loopback import read
from parts.polling import until
from podpool.agent.records import Assigned, NCAccepted, NCAdopted, Unassigned
from podpool.agent.state import AgentState
from podpool.api.azure import IPAssignment, NetworkContainer
from podpool.cni.protocol import Attachment
from podpool.core.cooldown_levels import CooldownInForce
from podpool.core.settings import Settings
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.agent_cluster import BenchNode
    from bench.scenario import Run

POD = {"containers": [{"name": "main", "image": "none"}]}
BURST = 35
WRITE = "patch nodenetworkconfigs"
NO_COOLDOWN = CooldownInForce(level=0.0, retention=0.0, shortest=0.0)


@contextmanager
def p99_under_load(node: BenchNode, *, per_second: int, seconds: float) -> Iterator[Run]:
    """p99 of ADDs in microseconds, from request frame to response, from the agent's histogram."""
    listens = node.agent.argv[node.agent.argv.index("--listen") + 1]
    port = int(str(listens).rpartition(":")[2])

    async def load(prefix: str) -> None:
        loop, count = asyncio.get_running_loop(), int(per_second * seconds)
        begun, calls = loop.time(), []
        for number in range(count):
            await asyncio.sleep(max(0.0, begun + number / per_second - loop.time()))
            calls.append(loop.create_task(node.call("ADD", f"{prefix}{number}")))
        behind = loop.time() - begun - seconds
        await asyncio.gather(*calls)
        if behind > 0.1 * seconds:
            raise RuntimeError(f"the load came {behind:.2f} s late: this machine cannot make {per_second} a second")
        await node.calls("DEL", [f"{prefix}{number}" for number in range(count)])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        def turn(repetition: int) -> float:
            before = buckets(read(port, "/metrics"))
            runner.run(load(f"load-{repetition}-"))
            after = buckets(read(port, "/metrics"))
            return quantile({edge: after[edge] - before.get(edge, 0.0) for edge in after}, 0.99) * 1e6

        yield turn


def buckets(page: bytes) -> dict[float, float]:
    """Return the buckets of the ADD histogram."""
    found: dict[float, float] = {}
    for line in page.decode().splitlines():
        if line.startswith("podpool_agent_add_seconds_bucket"):
            edge, _, count = line.partition('le="')[2].partition('"} ')
            found[float(edge)] = float(count)
    return found


def quantile(counts: dict[float, float], share: float) -> float:
    """Return a quantile of a histogram, interpolated as Prometheus does."""
    wanted = share * max(counts.values())
    for (low, below), (high, upto) in pairwise([(0.0, 0.0), *sorted(counts.items())]):
        if upto >= wanted:
            return low if high == float("inf") else low + (high - low) * (wanted - below) / (upto - below)
    return float("inf")


@contextmanager
def calls_per_add(node: BenchNode, *, adds: int) -> Iterator[Run]:
    """API calls of the agent per sandbox that starts and stops."""

    def turn(repetition: int) -> float:
        mark = node.site.plane.audit.mark()
        sandboxes = [f"quiet-{repetition}-{number}" for number in range(adds)]
        asyncio.run(node.calls("ADD", sandboxes))
        asyncio.run(node.calls("DEL", sandboxes))
        return len(node.calls_of_agent(mark)) / adds

    yield turn


@contextmanager
def burst_writes(node: BenchNode) -> Iterator[Run]:
    """Successful writes of the agent when 35 Pods start at once, until it is granted their addresses."""
    admin = node.site.plane.admin
    pods = "/api/v1/namespaces/default/pods"

    def turn(repetition: int) -> float:
        names = [f"burst-{repetition}-{number}" for number in range(BURST)]
        before = node.granted()
        node.agent.pause()  # concurrently: the API server takes longer to create 35 Pods than a scheduler to bind them
        for name in names:
            admin.post(pods, {"metadata": {"name": name}, "spec": {**POD, "nodeName": node.name}})
        mark = node.site.plane.audit.mark()
        node.agent.resume()
        node.holds(before + 32)
        writes = sum(each == WRITE for each in node.calls_of_agent(mark))
        for name in names:
            admin.delete(f"{pods}/{name}?gracePeriodSeconds=0")
        until(lambda: node.granted() <= before, f"{node.name} has given back", timeout=120)
        return float(writes)

    yield turn


@contextmanager
def memory(node: BenchNode, *, pods: int, seconds: float) -> Iterator[Run]:
    """RSS of the agent in MiB, some time after ADDs."""

    def turn(_repetition: int) -> float:
        node.agent.restart()
        node.fill(pods)
        time.sleep(seconds)
        status = Path(f"/proc/{node.agent.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    yield turn


@contextmanager
def start_to_serving(node: BenchNode, *, assigned: int) -> Iterator[Run]:
    """Seconds from process start to the first ADD response, with the given number of addresses in use."""
    node.fill(assigned)

    async def served() -> None:
        while True:
            try:
                await node.call("ADD", "resident-0")
            except OSError:
                await asyncio.sleep(0.002)
            else:
                return

    def turn(_repetition: int) -> float:
        node.agent.stop()
        begun = time.perf_counter()
        node.agent.ready = lambda: True
        node.agent.start()
        asyncio.run(served())
        return time.perf_counter() - begun

    yield turn


@contextmanager
def journalled(before: int, *, batch_seconds: float) -> Iterator[Run]:
    """Nanoseconds of one ADD and its DEL in pool and journal, after the given number of them."""
    attachment = Attachment(container_id="0" * 64, ifname="eth0")
    grants = tuple(IPAssignment(name=f"grant-{number}", ip=f"10.0.1.{number}") for number in range(250))
    container = NetworkContainer(id="nc", subnet_address_space="10.0.0.0/16", version=1, ip_assignments=grants)
    with tempfile.TemporaryDirectory() as home:
        disk, clock = LocalDisk(Path(home)), SystemClock()
        state = AgentState(disk, clock, fence_limit=Settings().fence)
        state.open(boot_id="boot")
        state.write(NCAdopted(nc="nc"))
        state.write(NCAccepted(nc=container, at=clock.boot()))

        def come_and_go() -> None:
            grant = state.pool.next_addresses(now=clock.boot(), cooldown=NO_COOLDOWN)[0].id
            state.write(Assigned(grant=grant, attachment=attachment))
            state.write(Unassigned(grant=grant, at=clock.boot()))

        for _ in range(before):
            come_and_go()
        try:
            yield batched(repeated(come_and_go), at_least=batch_seconds)
        finally:
            disk.close()
