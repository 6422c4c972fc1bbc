"""`podpool status --wait`: read the status of a cluster until it is healthy."""

import asyncio
from collections.abc import Iterable

from podpool.cli.context import ClusterContext
from podpool.inspect.health import HealthReason, unhealthy_reasons
from podpool.inspect.status import ClusterStatus, read_status

WAIT_INTERVAL = 2.0
"""Seconds between two reads."""


async def read_health(context: ClusterContext) -> tuple[ClusterStatus, tuple[HealthReason, ...]]:
    """Read the status, and why the cluster is not healthy."""
    now = context.clock.wall()
    seen = await read_status(context.kube, context.ledger, at=now)
    return seen, unhealthy_reasons(seen, ledger=context.ledger is not None, at=context.clock.wall())


async def wait_until_healthy(context: ClusterContext, limit: float) -> tuple[ClusterStatus, tuple[HealthReason, ...]]:
    """Read the status until it is healthy or the time is over, and print what it waits for when that changes."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    shown = ""
    while True:
        seen, reasons = await read_health(context)
        left = deadline - loop.time()
        if not reasons or left <= 0:
            return seen, reasons
        if (text := reason_text(reasons)) != shown:
            context.printer.warn(f"waiting: {text}")
            shown = text
        await asyncio.sleep(min(WAIT_INTERVAL, left))


def reason_text(reasons: Iterable[HealthReason]) -> str:
    """Return all reasons in one line."""
    return "; ".join(f"{each.subject}: {each.message}" for each in reasons)
