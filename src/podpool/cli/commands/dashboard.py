"""`podpool dashboard`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podpool.cli.connect import kube_connection, ledger_client
from podpool.cli.listen import parse_listen, url
from podpool.dashboard.feed import Feed
from podpool.dashboard.handler import make_dashboard
from podpool.inspect.observer import Observer
from podpool.kube.client import KubeClient
from podpool.ledger.client import Timeouts
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import serving
from podpool.runtime.logging import get_logger

log = get_logger(__name__)


@asynccontextmanager
async def _open_observer(
    *, kubeconfig: str, ledger: str, ledger_token_file: str, ledger_ca_file: str
) -> AsyncIterator[Observer]:
    """Return an observer of the cluster and its ledger, not yet running."""
    api = kube_connection(kubeconfig)
    connecting = ledger_client(ledger, token_file=ledger_token_file, ca_file=ledger_ca_file, timeouts=Timeouts())
    try:
        async with connecting as client:
            yield Observer(KubeClient(api), client, clock=SystemClock(), rng=entropy.system_random())
    finally:
        await api.close()


def serve_dashboard(*, kubeconfig: str, ledger: str, ledger_token_file: str, ledger_ca_file: str, listen: str) -> None:
    """Serve until stopped."""
    host, port = parse_listen(listen)

    async def run() -> None:
        async with _open_observer(
            kubeconfig=kubeconfig, ledger=ledger, ledger_token_file=ledger_token_file, ledger_ca_file=ledger_ca_file
        ) as observer:
            feed = Feed(observer.model, clock=observer.clock, epoch=entropy.new_uuid(entropy.system_random()))
            page = make_dashboard(observer, feed, host=host)
            async with serving(page, host=host, port=port, grace=0.2) as chosen, asyncio.TaskGroup() as group:
                log.info("dashboard started", url=url("http", host, chosen))
                group.create_task(observer.run())
                group.create_task(feed.run())

    process.run(run)
