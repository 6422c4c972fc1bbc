"""`podpool apiserver serve`: the lite API server."""

import asyncio
from pathlib import Path

from podpool.cli.listen import parse_listen, server_tls, url
from podpool.core.errors import InvalidInput
from podpool.lab.apiserver.garbage_collector import run_garbage_collector
from podpool.lab.apiserver.persistence import StoreFile, StoreFileError
from podpool.lab.apiserver.root_handler import LiteApiServer
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import ensure_certificate, is_generated
from podpool.lab.apiserver.tls import kubeconfig as kubeconfig_for
from podpool.runtime import entropy, process
from podpool.runtime.clock import SystemClock
from podpool.runtime.host_header import allowed_hosts
from podpool.runtime.http_server import serving
from podpool.runtime.logging import get_logger

log = get_logger(__name__)


def serve_apiserver(*, listen: str, file: str, tls: bool, tls_cert: str, tls_key: str, write_kubeconfig: str) -> None:
    """Serve until stopped."""
    host, port = parse_listen(listen)
    _check_kubeconfig(write_kubeconfig)
    if tls and not tls_cert:
        # beside the data file, so that a kubeconfig is valid after a restart
        tls_cert, tls_key = map(str, ensure_certificate(Path(file).parent if file else Path.cwd(), host))
    context = server_tls(tls_cert, tls_key)

    async def run() -> None:
        failed: asyncio.Future[StoreFileError] = asyncio.get_running_loop().create_future()
        store = ObjectStore(clock=SystemClock(), rng=entropy.system_random())
        store_file = StoreFile(Path(file), on_failure=failed.set_result) if file else None
        if store_file:
            store_file.attach(store)
        try:
            async with serving(
                LiteApiServer(store, hosts=allowed_hosts(host)), host=host, port=port, tls=context
            ) as chosen:
                address = url("https" if context else "http", host, chosen)
                _write_kubeconfig(kubeconfig_for(address, Path(tls_cert) if context else None), write_kubeconfig)
                log.info("API server started", url=address, store=file or "memory")
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(run_garbage_collector(store))
                        raise await failed
                finally:
                    store.stop_watches()
        finally:
            if store_file:
                store_file.close()

    process.run(run)


def _check_kubeconfig(path: str) -> None:
    """Refuse to overwrite a kubeconfig that was not written by this command."""
    if path and Path(path).exists() and not is_generated(Path(path).read_bytes()):
        reason = "exists and was not written by this command: name another file, or remove it"
        raise InvalidInput("--write-kubeconfig", path, reason)


def _write_kubeconfig(content: str, path: str) -> None:
    if not path:
        print(content, flush=True)  # noqa: T201  the command's output
        return
    file = Path(path)
    file.touch(mode=0o600)
    file.write_text(content)
