"""What a command's handler works with: open connections to cluster and ledger, and a printer.

If no cluster is named and the demo (`podpool up`) runs on this machine, the demo's cluster is used. A cluster in which
podpool serves only secondary networks has no ledger, unless one is configured.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from podpool.cli.connect import kube_connection, ledger_client
from podpool.cli.output import Printer
from podpool.cli.spec.model import Output
from podpool.cli.spec.options import ADMIN_TOKEN_FILE, LEDGER_URL
from podpool.core.errors import InvalidInput
from podpool.inspect.status import serves_slices_only
from podpool.kube import client_config
from podpool.kube.client import KubeClient
from podpool.lab.demo.settings import DemoSettings, default_home
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.runtime.clock import Clock, SystemClock

KUBECONFIG = "kubeconfig"
"""File name of the demo's kubeconfig in its state directory."""
USING_DEMO = "using the demo cluster of `podpool up`"
TIMEOUTS = Timeouts(attempts=2)
"""Retries of an interactive command."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where cluster and ledger are, and how to print."""

    kubeconfig: str = ""
    context: str = ""
    ledger: str = LEDGER_URL
    ledger_token_file: str = ADMIN_TOKEN_FILE
    ledger_ca_file: str = ""
    ledger_server_name: str = ""
    ledger_client_cert: str = ""
    output: str = Output.TABLE
    no_color: bool = False

    @property
    def named_kubeconfig(self) -> str:
        """The kubeconfig of the command line or of the environment."""
        return self.kubeconfig or os.environ.get("KUBECONFIG", "")

    @property
    def ledger_configured(self) -> bool:
        """Whether a ledger is named, runs on this machine, or is the demo's."""
        named = (self.ledger, self.ledger_token_file) != (LEDGER_URL, ADMIN_TOKEN_FILE)
        return named or Path(ADMIN_TOKEN_FILE).exists() or demo_connection(self) != self

    @property
    def printer(self) -> Printer:
        """A new printer."""
        return Printer(self.output, no_color=self.no_color)


class ClusterContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a command that inspects a cluster."""

    kube: KubeClient
    server: str
    """URL of the API server."""
    namespace: str = "default"
    """Namespace of Pods that are named without one."""
    ledger: LedgerClient | None
    clock: Clock
    printer: Printer


class LedgerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a command that manages a ledger."""

    client: LedgerClient
    printer: Printer


ClusterHandler = Callable[..., Awaitable[int]]
LedgerHandler = Callable[..., Awaitable[None]]


def run_with_cluster(handler: ClusterHandler, values: dict[str, Any]) -> int:
    """Run a handler with connections to cluster and ledger; return its exit code."""
    detects = "ledger" in values
    connection = _take_connection(values)

    async def run() -> int:
        async with open_cluster(connection) as context:
            needless = detects and not connection.ledger_configured and await serves_slices_only(context.kube)
            return await handler(msgspec.structs.replace(context, ledger=None) if needless else context, **values)

    return asyncio.run(run())


def run_with_ledger(handler: LedgerHandler, values: dict[str, Any]) -> int:
    """Run a handler with a connection to the ledger."""
    connection = _take_connection(values)
    printer, chosen = connection.printer, demo_connection(connection)
    if chosen != connection:
        printer.warn(f"{USING_DEMO}; --ledger names another ledger")

    async def run() -> None:
        async with _open_ledger(chosen) as client:
            if client is None:
                raise InvalidInput("--ledger", chosen.ledger, "this command needs a ledger: name its URL")
            await handler(LedgerContext(client=client, printer=printer), **values)

    asyncio.run(run())
    return 0


def _take_connection(values: dict[str, Any]) -> Connection:
    return Connection(**{name: values.pop(name) for name in Connection.__struct_fields__ if name in values})


@asynccontextmanager
async def open_cluster(connection: Connection) -> AsyncIterator[ClusterContext]:
    """Open the connections. Nothing is sent yet."""
    printer, chosen = connection.printer, demo_connection(connection)
    if chosen != connection and not connection.named_kubeconfig:
        printer.warn(f"{USING_DEMO}; --kubeconfig or --context names another cluster")
    api = _api_connection(chosen)
    try:
        async with _open_ledger(chosen) as ledger:
            kube, server, namespace, clock = KubeClient(api), str(api.base), _namespace(chosen), SystemClock()
            yield ClusterContext(
                kube=kube, server=server, namespace=namespace, ledger=ledger, clock=clock, printer=printer
            )
    finally:
        await api.close()


def _open_ledger(connection: Connection) -> AbstractAsyncContextManager[LedgerClient | None]:
    return ledger_client(
        connection.ledger,
        token_file=connection.ledger_token_file,
        ca_file=connection.ledger_ca_file,
        server_name=connection.ledger_server_name,
        client_cert=connection.ledger_client_cert,
        timeouts=TIMEOUTS,
    )


def demo_connection(connection: Connection) -> Connection:
    """Return the connection to the demo, if it runs and no other cluster is named; else the connection as it is."""
    named = connection.named_kubeconfig
    home = Path(named).parent if named else default_home()
    ledger = (connection.ledger, connection.ledger_token_file)
    other = connection.context or ledger != (LEDGER_URL, ADMIN_TOKEN_FILE)
    if other or (named and Path(named) != home / KUBECONFIG) or not _is_locked(home / "lock"):
        return connection
    settings = msgspec.json.decode((home / "settings.json").read_bytes(), type=DemoSettings)
    return msgspec.structs.replace(
        connection,
        kubeconfig=str(home / KUBECONFIG),
        ledger=f"http://127.0.0.1:{settings.ports['ledger']}",
        ledger_token_file=str(home / "ledger.db.admin-token"),
    )


def _is_locked(lock: Path) -> bool:
    """Return whether a process holds the lock, as the demo does while it runs."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _namespace(connection: Connection) -> str:
    named = [Path(connection.kubeconfig)] if connection.kubeconfig else []
    return client_config.default_namespace(*named, context=connection.context or None)


def _api_connection(connection: Connection) -> client_config.Connection:
    try:
        return kube_connection(connection.kubeconfig, connection.context)
    except InvalidInput as error:
        fix = "name a cluster with --kubeconfig, KUBECONFIG or --context"
        raise InvalidInput(error.what, error.value, f"{error.reason}; {fix}") from None
