"""`podpool.cni.uninstall` and `podpool controller uninstall`: take podpool away from a node, and from a cluster."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from podpool.agent.state_lock import acquire_lock
from podpool.cli.connect import kube_client
from podpool.cli.listen import parse_listen
from podpool.cni.uninstall import remove_node_files
from podpool.controller.uninstall import delete_objects, wait_for_nodes
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_duration
from podpool.runtime import process
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_server import serving
from podpool.runtime.logging import get_logger
from podpool.runtime.netlink import remove_all_proxy_entries
from podpool.runtime.process import HealthCheck

log = get_logger(__name__)


def uninstall_agent(  # noqa: PLR0913  one for each option
    *,
    bin_dir: str,
    name: str,
    conf_dir: str,
    state: str,
    empty_dirs: str,
    keep_state: bool,
    installed_file: str,
    listen: str,
) -> None:
    """Wait until the agent has stopped, remove its files, and with --listen report that until stopped."""
    address = parse_listen(listen) if listen else None
    if installed_file and Path(installed_file).exists():
        reason = "exists, so podpool is still installed, and nothing is removed: uninstall the release first"
        raise InvalidInput("--installed-file", installed_file, reason)
    emptied = [Path(each.strip()) for each in empty_dirs.split(",") if each.strip()]
    emptied += [] if keep_state else [Path(state)]

    async def run() -> None:
        disk = LocalDisk(Path(state))
        try:
            await acquire_lock(disk, log, directory=state)
            try:
                removed = await asyncio.to_thread(
                    remove_node_files,
                    bin_dir=Path(bin_dir),
                    names=[each.strip() for each in name.split(",")],
                    conf_dir=Path(conf_dir) if conf_dir else None,
                    emptied=emptied,
                )
            except OSError as error:
                raise InvalidInput("path", str(error.filename), f"cannot be removed: {error.strerror}") from None
            for path in removed:
                log.info("removed", path=str(path))
            _remove_proxy_entries()
        finally:
            disk.close()
        log.info("node cleaned up", state_kept=keep_state)
        if address:
            host, port = address
            async with serving(process.health_handler(_cleaned), host=host, port=port):
                await asyncio.Event().wait()

    process.run(run)


def _remove_proxy_entries() -> None:
    """Let the kernel no longer answer ARP and NDP for Pods."""
    try:
        removed = remove_all_proxy_entries()
    except OSError as error:
        reason = f"{error.strerror}: run it with NET_ADMIN, or ip neigh flush proxy dev INTERFACE"
        raise InvalidInput("proxy entries", "of podpool", f"cannot be removed: {reason}") from None
    if removed:
        log.info("proxy entries removed", count=removed)


def _cleaned() -> Sequence[HealthCheck]:
    return (HealthCheck("node cleaned up"),)


def uninstall_cluster(
    *, daemon_set: str, timeout: str, keep_state: bool, whereabouts_namespace: str, kubeconfig: str
) -> None:
    """Wait until the nodes were cleaned up, then delete the objects."""
    seconds = parse_duration(timeout, what="--timeout")

    async def run() -> None:
        async with kube_client(kubeconfig) as kube:
            if daemon_set:
                count = await wait_for_nodes(kube, daemon_set, within=seconds)
                print(f"{count} nodes were cleaned up", flush=True)  # noqa: T201  the command's output
            if keep_state:
                print("kept: objects, CRDs and journals")  # noqa: T201  the command's output
                return
            async with asyncio.timeout(seconds):
                async for text in delete_objects(kube, whereabouts_namespace=whereabouts_namespace):
                    print(text if text.startswith("kept") else f"deleted: {text}", flush=True)  # noqa: T201  the command's output

    asyncio.run(run())
