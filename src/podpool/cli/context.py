"""The roads to a cluster and its ledger, for as long as a command needs them.

Named by nobody, they lead to the stage of `podpool up`, while that runs on this machine.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from podpool.cli.ledger_connection import reached
from podpool.cli.ledger_spec import LEDGER
from podpool.cli.options import TOKEN_FILE, Asked
from podpool.cli.output import Teller
from podpool.core.errors import InvalidInput
from podpool.kube import config
from podpool.kube.client import KubeClient
from podpool.lab.demo.settings import DemoSettings, usual_home
from podpool.ledger.client import LedgerClient, Patience
from podpool.runtime.clock import Clock, SystemClock

KUBECONFIG = "kubeconfig"
"""How `podpool up` names it, in its own place."""
STAGE = "this is the stage of `podpool up`"
PATIENCE = Patience(attempts=2)
"""Of somebody who waits in front of a terminal."""


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What a command works with."""

    kube: KubeClient
    server: str
    """Where the cluster's API server is."""
    namespace: str = "default"
    """Of Pods that are named without one."""
    ledger: LedgerClient | None
    clock: Clock
    teller: Teller


def at_desk(asked: Asked, work: Callable[[Desk], Awaitable[int]]) -> int:
    """Do a command's work; gives its exit code."""

    async def done() -> int:
        async with opened(asked) as desk:
            return await work(desk)

    return asyncio.run(done())


@asynccontextmanager
async def opened(asked: Asked) -> AsyncIterator[Desk]:
    """Open the roads; nothing is asked of anybody yet."""
    teller = Teller(asked)
    chosen = on_stage(asked)
    if chosen != asked and not _named(asked):
        teller.remark(f"{STAGE}; --kubeconfig or --context name another cluster")
    api = _api(chosen)
    books = reached(
        chosen.ledger, token_file=chosen.ledger_token_file, ca_file=chosen.ledger_ca_file, patience=PATIENCE
    )
    try:
        async with books as ledger:
            yield Desk(
                kube=KubeClient(api),
                server=str(api.base),
                namespace=_namespace(chosen),
                ledger=ledger,
                clock=SystemClock(),
                teller=teller,
            )
    finally:
        await api.close()


def on_stage(asked: Asked) -> Asked:
    """Fill in where `podpool up` has its parts, if it runs and nobody named another cluster."""
    named = _named(asked)
    home = Path(named).parent if named else usual_home()
    another = asked.context or (asked.ledger, asked.ledger_token_file) != (LEDGER, TOKEN_FILE)
    if another or (named and Path(named) != home / KUBECONFIG) or not _held(home / "lock"):
        return asked
    settings = msgspec.json.decode((home / "settings.json").read_bytes(), type=DemoSettings)
    return msgspec.structs.replace(
        asked,
        kubeconfig=str(home / KUBECONFIG),
        ledger=f"http://127.0.0.1:{settings.ports['ledger']}",
        ledger_token_file=str(home / "ledger.db.admin-token"),
    )


def _named(asked: Asked) -> str:
    return asked.kubeconfig or os.environ.get("KUBECONFIG", "")


def _held(lock: Path) -> bool:
    """Tell whether somebody holds a lock, as `podpool up` does while it runs."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _namespace(asked: Asked) -> str:
    named = [Path(asked.kubeconfig)] if asked.kubeconfig else []
    return config.namespace_of(*named, context=asked.context or None)


def _api(asked: Asked) -> config.Connection:
    context = asked.context or None
    try:
        if asked.kubeconfig:
            return config.from_kubeconfig(Path(asked.kubeconfig), context=context)
        return config.connect(context=context)
    except InvalidInput as error:
        fix = "name a cluster with --kubeconfig, KUBECONFIG or --context"
        raise InvalidInput(error.what, error.value, f"{error.reason}; {fix}") from None
