"""Pocket as a process."""

import asyncio
import logging
from pathlib import Path

from podpool.cli.certificates import shown_certificate
from podpool.cli.daemon_parser import parse_listen
from podpool.core.errors import InvalidInput
from podpool.lab.apiserver.garbage_collector import collecting
from podpool.lab.apiserver.persistence import FileFailed, PocketFile
from podpool.lab.apiserver.server import PocketServer
from podpool.lab.apiserver.store import PocketStore
from podpool.lab.apiserver.tls import is_own, own_certificate
from podpool.lab.apiserver.tls import kubeconfig as way_to
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.host_check import names_on
from podpool.runtime.http import serving

_log = logging.getLogger(__name__)


def serve_pocket(*, listen: str, file: str, tls: str, tls_cert: str, tls_key: str, write_kubeconfig: str) -> None:
    """Serve until told to stop."""
    host, port = parse_listen(listen)
    _refuse_foreign(write_kubeconfig)
    if tls == "on" and not tls_cert:
        # beside the file, so that a kubeconfig stays good over a restart
        tls_cert, tls_key = map(str, own_certificate(Path(file).parent if file else Path.cwd(), host))
    context = shown_certificate(tls_cert, tls_key)

    async def work() -> None:
        failed: asyncio.Future[FileFailed] = asyncio.get_running_loop().create_future()
        store = PocketStore(clock=SystemClock(), rng=entropy.system())
        kept = PocketFile(Path(file), failed=failed.set_result) if file else None
        if kept:
            kept.attach(store)
        try:
            async with serving(PocketServer(store, hosts=names_on(host)), host=host, port=port, tls=context) as chosen:
                address = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{chosen}"
                _tell(way_to(address, Path(tls_cert) if context else None), write_kubeconfig)
                _log.info("pocket answers on %s, its objects are in %s", address, file or "memory")
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(collecting(store))
                        raise await failed
                finally:
                    store.end_watches()
        finally:
            if kept:
                kept.close()

    process.run(work)


def _refuse_foreign(path: str) -> None:
    """Write over no kubeconfig of somebody else: the user's own has the ways to all clusters."""
    if path and Path(path).exists() and not is_own(Path(path).read_bytes()):
        reason = "is there already, and was not written by pocket: name another file, or remove it"
        raise InvalidInput("--write-kubeconfig", path, reason)


def _tell(way: str, path: str) -> None:
    if not path:
        print(way, flush=True)  # noqa: T201  for the person who typed it
        return
    place = Path(path)
    place.touch(mode=0o600)
    place.write_text(way)
