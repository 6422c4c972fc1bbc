"""The ledger and the controller as processes."""

import asyncio
import logging
from pathlib import Path

from podpool.api.crds import manifests
from podpool.cli.certificates import shown_certificate
from podpool.cli.daemon_parser import parse_listen
from podpool.cli.flat_file import read_flat_file
from podpool.cli.ledger_connection import NO_LEDGER, reached
from podpool.controller.controller import Controller
from podpool.controller.metrics import metered
from podpool.controller.settings import NO_SUBNET, ControllerSettings, parse_scarcity, parse_subnet
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_duration
from podpool.core.settings import parse_settings
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install
from podpool.ledger.domain.service import Habits, Ledger
from podpool.ledger.http.app import admin_token, front
from podpool.ledger.storage.database import parse_database
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import serving

_log = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds in which a ledger that stops finishes what it took."""


def transport(kubeconfig: str) -> config.Connection:
    """Find the API server."""
    return config.from_kubeconfig(Path(kubeconfig)) if kubeconfig else config.connect()


def serve_ledger(
    *, database: str, listen: str, tls_cert: str, tls_key: str, admin_token_file: str, history: str, refresh: str
) -> None:
    """Serve until told to stop; then finish what was taken."""
    host, port = parse_listen(listen)
    books = parse_database(database)
    clock, rng, tls = SystemClock(), entropy.system(), shown_certificate(tls_cert, tls_key)
    habits = Habits(
        history=parse_duration(history, what="--history"), refresh=parse_duration(refresh, what="--refresh")
    )

    async def work() -> None:
        store = await books.open(rng=rng)
        ledger = Ledger(store, clock=clock, rng=rng, habits=habits)
        try:
            await ledger.start()
            secret = admin_token(Path(admin_token_file or f"{books.beside}.admin-token"), rng=rng)
            await ledger.administration.accept_admin(secret)
            handler = front(ledger, store, clock=clock)
            async with serving(handler, host=host, port=port, tls=tls, grace=GRACE, connections=2048) as chosen:
                scheme = "https" if tls else "http"
                _log.info("the ledger answers on %s://%s:%s, its books are in %s", scheme, host, chosen, books)
                try:
                    await ledger.run()
                finally:
                    ledger.stop()
        finally:
            await store.close()

    process.run(work)


def run_controller(  # noqa: PLR0913  one for each option
    *,
    subnet: str,
    ledger: str,
    ledger_token_file: str,
    ledger_ca_file: str,
    listen: str,
    scarcity: str,
    whereabouts_namespace: str,
    flat_file: str,
    pod_history: str,
    numbers: str,
    kubeconfig: str,
) -> None:
    """Run until told to stop."""
    alone = ledger == NO_LEDGER
    if not alone and not subnet:
        raise InvalidInput("--subnet", subnet, f"is missing: name one, or use slices alone with --ledger {NO_LEDGER}")
    settings = ControllerSettings(
        subnet=NO_SUBNET if alone else parse_subnet(subnet, what="--subnet"),
        whereabouts_namespace=whereabouts_namespace,
        flat_file=read_flat_file(flat_file),
        common=parse_settings(numbers),
        scarcity=parse_scarcity(scarcity),
        pod_history=pod_history == "on",
    )
    host, port = parse_listen(listen)

    async def work() -> None:
        api = transport(kubeconfig)
        try:
            async with reached(ledger, token_file=ledger_token_file, ca_file=ledger_ca_file) as client:
                controller = Controller(
                    KubeClient(api), client, settings=settings, clock=SystemClock(), rng=entropy.system()
                )
                handler = metered(process.health(controller.missing), controller.page)
                async with serving(handler, host=host, port=port):
                    await controller.run()
        finally:
            await api.close()

    process.run(work)


def install_crds(*, kubeconfig: str) -> None:
    """Define our kinds, and wait until they are in force."""

    async def work() -> None:
        api = transport(kubeconfig)
        try:
            await install(KubeClient(api), manifests())
        finally:
            await api.close()
        names = ", ".join(str(each["metadata"]["name"]) for each in manifests())
        print(f"defined: {names}")  # noqa: T201  for the person who typed it

    asyncio.run(work())
