"""`podpool controller`: run the controller, install CRDs."""

import asyncio
import socket

from podpool.api.crds import crd_manifests
from podpool.cli.connect import kube_client, ledger_client, read_flat_file, read_token
from podpool.cli.listen import parse_listen
from podpool.cli.spec.options import NO_LEDGER
from podpool.controller.controller import Controller
from podpool.controller.metrics import with_metrics
from podpool.controller.settings import NO_SUBNET, ControllerSettings, parse_scarcity, parse_subnet
from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings
from podpool.kube import crd_install
from podpool.ledger.client import Timeouts
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_server import serving

LEDGER_TIMEOUTS = Timeouts(deadline=120.0, repeat_unanswered=False)
"""For an inventory; the controller ends other calls sooner, and decides itself what to repeat."""


def run_controller(  # noqa: PLR0913  one for each option
    *,
    subnet: str,
    ledger: str,
    ledger_token_file: str,
    ledger_ca_file: str,
    ledger_server_name: str,
    ledger_client_cert: str,
    listen: str,
    scarcity: str,
    whereabouts_namespace: str,
    flat_file: str,
    pod_history: bool,
    settings: str,
    kubeconfig: str,
) -> None:
    """Run until stopped."""
    if not subnet and ledger != NO_LEDGER:
        reason = f"is required: name a subnet, or use --ledger {NO_LEDGER} for slices only"
        raise InvalidInput("--subnet", subnet, reason)
    controller_settings = ControllerSettings(
        subnet=NO_SUBNET if ledger == NO_LEDGER else parse_subnet(subnet, what="--subnet"),
        whereabouts_namespace=whereabouts_namespace,
        flat_file=read_flat_file(flat_file),
        common=parse_settings(settings),
        scarcity=parse_scarcity(scarcity),
        pod_history=pod_history,
    )
    if ledger != NO_LEDGER:
        read_token(ledger_token_file)
    host, port = parse_listen(listen)

    async def run() -> None:
        connecting = ledger_client(
            ledger,
            token_file=ledger_token_file,
            ca_file=ledger_ca_file,
            server_name=ledger_server_name,
            client_cert=ledger_client_cert,
            timeouts=LEDGER_TIMEOUTS,
        )
        async with kube_client(kubeconfig) as kube, connecting as client:
            clock, rng = SystemClock(), entropy.system_random()
            controller = Controller(
                kube, client, settings=controller_settings, clock=clock, rng=rng, host=socket.gethostname()
            )
            handler = with_metrics(process.health_handler(controller.health_checks), controller.render_metrics)
            async with serving(handler, host=host, port=port):
                await controller.run()

    process.run(run)


def install_crds(*, kubeconfig: str) -> None:
    """Install the CustomResourceDefinitions and wait until they are established."""

    async def run() -> None:
        async with kube_client(kubeconfig) as kube:
            await crd_install.install_crds(kube, crd_manifests())
        names = ", ".join(str(each["metadata"]["name"]) for each in crd_manifests())
        print(f"installed: {names}")  # noqa: T201  the command's output

    asyncio.run(run())
