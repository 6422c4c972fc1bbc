"""A candidate in a process of its own: `python -m tests.kube.election_candidate KUBECONFIG NAMESPACE NAME LOG`.

While it leads, it appends its name and the number of its term to the log. It prints when it lost the leadership.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.kube.leader_election import LeaderElector, LeadershipLost, LeaseTiming
from podpool.runtime.clock import SystemClock

SHORT_TIMING = LeaseTiming(duration=3.0, renew_deadline=2.0, retry=0.3)
"""client-go's proportions, short enough for a test."""


async def run(kubeconfig: str, namespace: str, name: str, log: str) -> None:
    transport = from_kubeconfig(Path(kubeconfig))
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    elector = LeaderElector(
        KubeClient(transport),
        name="controller",
        namespace=namespace,
        identity=name,
        clock=SystemClock(),
        rng=random.Random(name),  # noqa: S311  seeded
        timing=SHORT_TIMING,
    )
    leads = 0

    async def lead() -> None:
        while True:
            if elector.is_leader:
                os.write(descriptor, f"{name} {leads}\n".encode())
            await asyncio.sleep(0.005)

    while True:
        leads += 1
        try:
            await elector.run(lead)
        except LeadershipLost:
            print("lost", flush=True)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
