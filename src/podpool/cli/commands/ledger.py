"""`podpool ledger`: serve it, and back up, restore and check its database."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from podpool.cli.connect import read_new_token
from podpool.cli.errors import FAILED
from podpool.cli.listen import parse_listen, reload_certificate, server_tls, url, warn_of_plain_http
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_duration
from podpool.ledger.domain.service import LedgerService, LedgerSettings
from podpool.ledger.http.app import admin_token, build_app
from podpool.ledger.storage.backup import read_header, read_rows, verify_backup
from podpool.ledger.storage.database import parse_database
from podpool.ledger.storage.fsck import check
from podpool.runtime import entropy, process
from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_server import serving
from podpool.runtime.logging import get_logger

log = get_logger(__name__)

GRACE = 10.0
"""Seconds for which a stopping ledger completes accepted requests."""
LIMITS = ServerLimits(connections=2048)
HEALTH_LIMITS = ServerLimits(connections=64)
"""Probes and scrapers."""


def serve_ledger(  # noqa: PLR0913  one for each option
    *,
    database: str,
    listen: str,
    health_listen: str,
    tls_client_ca: str,
    tls_cert: str,
    tls_key: str,
    admin_token_file: str,
    cluster_token_file: str,
    history: str,
    refresh: str,
) -> None:
    """Serve until stopped, then complete accepted requests."""
    host, port = parse_listen(listen)
    health_host, health_port = parse_listen(health_listen, option="--health-listen")
    location = parse_database(database)
    clock, rng, tls = SystemClock(), entropy.system_random(), server_tls(tls_cert, tls_key, client_ca=tls_client_ca)
    cluster_token = read_new_token(cluster_token_file) if cluster_token_file else ""
    settings = LedgerSettings(
        history_retention=parse_duration(history, what="--history"),
        utilization_refresh=parse_duration(refresh, what="--refresh"),
    )

    async def run() -> None:
        warn_of_plain_http(host, tls)
        store = await location.open(rng=rng)
        ledger = LedgerService(store, clock=store.clock(clock), rng=rng, settings=settings)
        try:
            await ledger.start()
            secret = admin_token(Path(admin_token_file or f"{location.path_prefix}.admin-token"), rng=rng)
            if not await ledger.admin.accept_admin(secret):
                remedy = "remove its file and restart, and a new one is created"
                log.warning("the admin token of --admin-token-file was revoked", remedy=remedy)
            if cluster_token and not await ledger.admin.accept_cluster(cluster_token):
                log.warning("the token of --cluster-token-file was revoked", remedy="put another token into its file")
            app = build_app(ledger, store, clock=clock)
            await app.status.refresh()
            api = serving(app.api, host=host, port=port, tls=tls, grace=GRACE, limits=LIMITS, read_bodies=False)
            health = serving(app.health, host=health_host, port=health_port, limits=HEALTH_LIMITS)
            async with health as health_chosen, api as chosen:
                addresses = {"url": url("https" if tls else "http", host, chosen)}
                addresses["health"] = url("http", health_host, health_chosen)
                log.info("ledger started", **addresses, database=str(location))
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(ledger.run())
                        group.create_task(app.status.run())
                        if tls:
                            group.create_task(reload_certificate(tls, tls_cert, tls_key))
                finally:
                    ledger.stop()
        finally:
            await store.close()

    process.run(run)


def back_up(*, file: str, database: str) -> None:
    """Copy the database to a file, which is complete or does not exist."""
    path = Path(file)
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        rows = parse_database(database).back_up(copy)
        copy.flush()
        os.fsync(copy.fileno())
    new.rename(path)
    print(f"{path}: {rows} rows")  # noqa: T201  the command's output


def restore(*, file: str, database: str) -> None:
    """Replace the database by a backup. The ledger then recovers from the inventories of the clusters."""
    path = _existing(file)
    verify_backup(path)
    with path.open("rb") as copy:
        head = parse_database(database).restore(copy, rng=entropy.system_random())
    print(f"restored revision {head.revision}: nothing is granted until all clusters have sent their inventory")  # noqa: T201  the command's output


def check_database(*, database: str, file: str, output: str, no_color: bool) -> int:
    """Check the database, or a backup of it."""
    from podpool.cli.output import Printer  # noqa: PLC0415  not for the service

    with tempfile.TemporaryFile() as scratch:
        copy = _existing(file).open("rb") if file else cast("BinaryIO", scratch)
        with copy:
            if not file:
                parse_database(database).back_up(copy)
                copy.seek(0)
            read_header(copy)
            found = check(read_rows(copy))
    counts = f"{found.subnets} subnets, {found.network_containers} network containers, {found.addresses} addresses"
    printer = Printer(output, no_color=no_color)
    printer.result(found, *(found.faults or [f"the database is consistent: {counts}"]))
    return FAILED if found.faults else 0


def _existing(file: str) -> Path:
    if not Path(file).is_file():
        raise InvalidInput("FILE", file, "does not exist")
    return Path(file)
