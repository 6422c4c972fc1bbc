"""`podpool support-bundle`: write an archive of a cluster's state and logs, without secrets."""

import os
import tempfile
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from podpool import __version__
from podpool.agent.pool import Pool
from podpool.agent.secondary.slices import Slices
from podpool.agent.state import read_agent_journal
from podpool.cli.commands.agent import BOOT_ID, CRI_SOCKETS
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED
from podpool.cli.output import TextTable
from podpool.cni import paths as cni_paths
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.quantities import parse_duration
from podpool.inspect.bundle.archive import BundleArchive, BundleManifest
from podpool.inspect.bundle.collect import COMPONENTS, BundleCollector, BundleOptions
from podpool.inspect.preflight.checks import PreflightOptions, run_preflight
from podpool.inspect.preflight.node_files import NodePaths
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_client import HttpTransport

LOCAL_TIMEOUT = 2.0
"""Seconds to connect to a health port of this machine."""


class BundleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bundle is, and what is in it."""

    file: str
    bytes: int
    manifest: BundleManifest


class JournalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the records of a node's journal result in."""

    records: int
    torn_bytes: int
    damaged: bool
    network_container: str
    version: int
    grants: int
    free: int
    pending_release: int
    assigned: tuple[str, ...]
    slices: tuple[str, ...]


async def support_bundle(context: ClusterContext, *, file: str, since: str, namespace: str, state: str) -> int:
    """Collect everything, and write the archive."""
    seconds = parse_duration(since, what="--since")
    now = context.clock.wall()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    target = Path(file or f"podpool-support-{stamp}.tar.gz")
    if not target.parent.is_dir():
        raise InvalidInput("--file", str(target), "its directory does not exist")
    archive = BundleArchive(f"podpool-support-{stamp}", time=now)
    options = BundleOptions(namespace=namespace, since=seconds)
    async with AsyncExitStack() as stack:
        local = dict[str, HttpTransport]()
        for name, port in COMPONENTS.items():
            if port:
                local[name] = HttpTransport(f"http://127.0.0.1:{port}", connect_timeout=LOCAL_TIMEOUT)
                stack.push_async_callback(local[name].close)
        await BundleCollector(archive, context.kube, context.ledger, options).collect(local)
        await _add_preflight(archive, context, namespace=namespace, state=state)
    _add_journal(archive, Path(state))
    manifest = BundleManifest(
        podpool=__version__,
        created=stamp,
        server=context.server,
        since_seconds=seconds,
        entries=tuple(archive.entries),
    )
    content = archive.finish(manifest)
    _write(target, content)
    _print(context, BundleResult(file=str(target), bytes=len(content), manifest=manifest))
    return FAILED if not any(each.bytes for each in manifest.entries) else 0


async def _add_preflight(archive: BundleArchive, context: ClusterContext, *, namespace: str, state: str) -> None:
    node = NodePaths(
        bin_dir=cni_paths.BIN_DIR,
        conf_dir=cni_paths.CONF_DIR,
        state=state,
        cri_sockets=CRI_SOCKETS,
        boot_id=BOOT_ID,
    )
    options = PreflightOptions(namespace=namespace, paths=node)
    try:
        report = await run_preflight(context.kube, context.ledger, clock=context.clock, options=options)
        archive.add_json("preflight.json", report)
    except PodpoolError as error:
        archive.fail("preflight.json", str(error))


def _add_journal(archive: BundleArchive, state: Path) -> None:
    """Add what the journal of this machine's agent results in, if there is one; its records may be many."""
    if not state.is_dir():
        return
    try:
        contents, pool, slices = read_agent_journal(LocalDisk(state)), Pool(), Slices()
        for record in contents.records:
            pool.apply(record)
            slices.apply(record)
    except (PodpoolError, OSError) as error:
        archive.fail("journal.json", str(error))
        return
    summary = JournalSummary(
        records=len(contents.records),
        torn_bytes=contents.torn,
        damaged=contents.damaged,
        network_container=pool.adopted_nc or "",
        version=pool.version,
        grants=pool.granted,
        free=pool.free,
        pending_release=len(pool.pending_release),
        assigned=tuple(sorted(each.grant.address for each in pool.assigned.values())),
        slices=tuple(f"{each.prefix} of {each.range}: {len(each.assigned)} assigned" for each in slices),
    )
    archive.add_json("journal.json", summary)


def _write(target: Path, content: bytes) -> None:
    """Write the file whole or not at all, readable for this user only."""
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(name).replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise InvalidInput("--file", str(target), f"cannot be written: {error.strerror}") from None


def _print(context: ClusterContext, result: BundleResult) -> None:
    failed = [(each.path, each.error) for each in result.manifest.failed]
    files = sum(bool(each.bytes) for each in result.manifest.entries)
    parts: list[TextTable | str] = [f"{result.file}: {files} files, {-(-result.bytes // 1024)} KiB"]
    if failed:
        parts += ["", TextTable(("NOT READ", "REASON"), failed)]
    notice = "Read it before you pass it on: it has names and addresses of Pods and Nodes, and no Secrets."
    context.printer.result(result, *parts, "", notice)
