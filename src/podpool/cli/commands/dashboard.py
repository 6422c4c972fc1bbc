"""`podpool dashboard`."""

import asyncio

from podpool.cli.connect import kube_client, ledger_client
from podpool.cli.listen import parse_listen, url
from podpool.cli.spec.options import LEDGER_URL
from podpool.dashboard.feed import Feed
from podpool.dashboard.handler import make_dashboard
from podpool.inspect.observer import Observer
from podpool.ledger.client import Timeouts
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_server import serving
from podpool.runtime.logging import get_logger

log = get_logger(__name__)


def serve_dashboard(
    *,
    kubeconfig: str,
    ledger: str,
    ledger_token_file: str,
    ledger_ca_file: str,
    ledger_server_name: str,
    ledger_client_cert: str,
    listen: str,
) -> None:
    """Serve until stopped."""
    host, port = parse_listen(listen)

    async def run() -> None:
        connecting = ledger_client(
            ledger,
            token_file=ledger_token_file,
            ca_file=ledger_ca_file,
            server_name=ledger_server_name,
            client_cert=ledger_client_cert,
            timeouts=Timeouts(),
        )
        async with kube_client(kubeconfig) as kube, connecting as client:
            clock, rng = SystemClock(), entropy.system_random()
            configured = ledger != LEDGER_URL or bool(ledger_token_file)
            observer = Observer(kube, client, clock=clock, rng=rng, ledger_configured=configured)
            feed = Feed(observer.model, clock=clock, epoch=entropy.new_uuid(rng))
            page = make_dashboard(observer, feed, host=host)
            async with serving(page, host=host, port=port, grace=0.2) as chosen, asyncio.TaskGroup() as group:
                log.info("dashboard started", url=url("http", host, chosen))
                group.create_task(observer.run())
                group.create_task(feed.run())

    process.run(run)
