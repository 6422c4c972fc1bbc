"""The ledger and the controller as processes."""

import asyncio
import logging
from pathlib import Path

from podpool.cli.daemons import parse_listen
from podpool.controller.controller import Controller
from podpool.controller.settings import Settings, parse_subnet
from podpool.core.numbers import read_numbers
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.kube.install import install
from podpool.ledger.authority import Ledger
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import NewSubnet
from podpool.ledger.service import Service
from podpool.ledger.writer import ThreadStore
from podpool.resources.crds import manifests
from podpool.runtime import daemon, randomness
from podpool.runtime.clock import SystemClock
from podpool.runtime.http import HttpTransport, serving

_log = logging.getLogger(__name__)


def transport(kubeconfig: str) -> HttpTransport:
    """Find the API server."""
    return config.from_kubeconfig(Path(kubeconfig)) if kubeconfig else config.connect()


def serve_ledger(*, data: str, listen: str) -> None:
    """Serve until told to stop."""
    host, port = parse_listen(listen)

    async def work() -> None:
        store = ThreadStore(Path(data))
        ledger = Ledger(store, clock=SystemClock(), rng=randomness.system())
        try:
            await ledger.start()
            async with serving(Service(ledger), host=host, port=port) as chosen:
                _log.info("the ledger answers on http://%s:%s, its books are in %s", host, chosen, data)
                await ledger.run()
        finally:
            await store.close()

    daemon.run(work)


def create_subnet(*, network_subnet: str, cidr: str, gateway: str, numbers: str, ledger: str) -> None:
    """Make a subnet, or find that it is there."""
    name = parse_subnet(network_subnet, what="NETWORK.SUBNET")
    chosen = read_numbers(numbers)
    wanted = NewSubnet(
        network=name.network,
        name=name.name,
        cidr=cidr,
        gateway=gateway or None,
        kept_for_primaries=chosen.kept_for_primaries,
        cooldown=chosen.cooldown,
        cooldown_floor=chosen.cooldown_floor,
        batch=chosen.batch,
        buffer=chosen.buffer,
        upper=chosen.upper,
        lower=chosen.lower,
    )

    async def work() -> None:
        road = HttpTransport(ledger)
        try:
            made = await LedgerClient(road).create_subnet(wanted)
        finally:
            await road.close()
        print(f"{made.subnet}: {made.cidr} with {made.capacity} addresses")  # noqa: T201  for the person who typed it

    asyncio.run(work())


def run_controller(*, subnet: str, ledger: str, listen: str, numbers: str, kubeconfig: str) -> None:
    """Run until told to stop."""
    settings = Settings(subnet=parse_subnet(subnet, what="--subnet"), numbers=read_numbers(numbers))
    host, port = parse_listen(listen)

    async def work() -> None:
        api, books = transport(kubeconfig), HttpTransport(ledger)
        controller = Controller(
            KubeClient(api), LedgerClient(books), settings=settings, clock=SystemClock(), rng=randomness.system()
        )
        try:
            async with serving(daemon.health(controller.missing), host=host, port=port):
                await controller.run()
        finally:
            await api.close()
            await books.close()

    daemon.run(work)


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
