"""The agent serves the Pods of a full node within the memory that it requests in the chart, and is not killed.

The limit is a control group's, as a kubelet sets it for a container; those of a process (`prlimit`) are of address
space, which the agent does not touch all of, or have no effect (`RLIMIT_RSS`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from parts import cgroups
from tests.agent.agent_process import AgentCluster, agent_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]

VALUES = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "podpool" / "values.yaml"
PODS = 110
"""The kubelet's default maximum."""


@pytest.fixture
def group() -> Iterator[str]:
    made = cgroups.make("agent")
    try:
        yield made
    finally:
        cgroups.remove(made)


def entering(limited: Path) -> list[str]:
    """Return the prefix that starts a command in a control group: all of its memory is counted there."""
    return ["/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"', str(limited / "cgroup.procs")]


def requested_memory() -> int:
    resources: dict[str, Any] = msgspec.yaml.decode(VALUES.read_text())["agent"]["resources"]
    return int(resources["requests"]["memory"].removesuffix("Mi")) << 20


async def fill_and_empty_the_node(cluster: AgentCluster) -> None:
    """All sandboxes at once, as after a reboot."""
    await cluster.env.bind(*(f"pod-{number}" for number in range(PODS)))
    while (await cluster.env.nnc()).status.assigned < PODS:  # noqa: ASYNC110  another process requests them
        await asyncio.sleep(0.02)
    boxes = [f"box-{number}" for number in range(PODS)]
    added = await asyncio.gather(*(cluster.call("ADD", box) for box in boxes))
    assert {0} == {code for code, _ in added}
    assert PODS == len({address for _, address in added})
    assert {(0, "")} == {*await asyncio.gather(*(cluster.call("DEL", box) for box in boxes))}


def test_110_pods_start_and_stop_within_the_memory_that_the_agent_requests(tmp_path: Path, group: str) -> None:
    limited = cgroups.limit_memory(group, requested_memory())

    async def test() -> None:
        async with asyncio.timeout(120), agent_cluster(tmp_path) as cluster:
            agent = await cluster.agent(before=entering(limited))
            ended = asyncio.create_task(agent.wait())
            served = asyncio.create_task(fill_and_empty_the_node(cluster))
            try:
                await asyncio.wait({ended, served}, return_when=asyncio.FIRST_COMPLETED)
                assert (None, 0) == (agent.returncode, cgroups.killed_for_memory(limited))
                assert [str(agent.pid)] == (limited / "cgroup.procs").read_text().split()
                await served
            finally:
                served.cancel()
                if not ended.done():
                    agent.terminate()
            assert 0 == await ended

    asyncio.run(test())
