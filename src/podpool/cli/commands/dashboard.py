"""The page as a process: `podpool dashboard`."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podpool.cli.ledger_connection import reached
from podpool.cli.commands.controller import transport
from podpool.dashboard.feed import Feed
from podpool.dashboard.handler import dashboard_of
from podpool.inspect.observer import Observer
from podpool.kube.client import KubeClient
from podpool.ledger.client import Patience
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import serving

_log = logging.getLogger(__name__)


@asynccontextmanager
async def observing(
    *, kubeconfig: str, ledger: str, ledger_token_file: str, ledger_ca_file: str
) -> AsyncIterator[Observer]:
    """See a cluster and its ledger; whoever runs the observer decides for how long."""
    api = transport(kubeconfig)
    books = reached(ledger, token_file=ledger_token_file, ca_file=ledger_ca_file, patience=Patience())
    try:
        async with books as client:
            yield Observer(KubeClient(api), client, clock=SystemClock(), rng=entropy.system())
    finally:
        await api.close()


def serve_dashboard(
    *, kubeconfig: str, ledger: str, ledger_token_file: str, ledger_ca_file: str, host: str, port: int
) -> None:
    """Serve until told to stop."""

    async def work() -> None:
        async with observing(
            kubeconfig=kubeconfig, ledger=ledger, ledger_token_file=ledger_token_file, ledger_ca_file=ledger_ca_file
        ) as observer:
            feed = Feed(observer.scene, clock=observer.clock, epoch=entropy.new_uuid(entropy.system()))
            page = dashboard_of(observer, feed, host=host)
            async with serving(page, host=host, port=port, grace=0.2) as chosen, asyncio.TaskGroup() as group:
                _log.info("the page is on http://%s:%s", f"[{host}]" if ":" in host else host, chosen)
                group.create_task(observer.run())
                group.create_task(feed.run())

    process.run(work)
