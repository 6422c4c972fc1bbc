"""A pair of PostgreSQL servers that Patroni manages: the standby is promoted when the primary fails.

Each member has a PID namespace of its own: killing its first process kills all of them at once, like a machine.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from parts.control_plane import etcd_argv
from parts.daemon import Daemon, dying_with_us
from parts.debian import command
from parts.loopback import answers, free_port
from parts.polling import until
from parts.postgres import SUPERUSER, Postgres

REPLICATOR = "replicator"
TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 1, 3
"""Seconds; the least that Patroni accepts. A dead member's lock expires after the first."""

STREAMING = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"


class Member(Postgres):
    """One server with its Patroni."""

    def __init__(self, name: str, *, etcd_port: int, synchronous: bool) -> None:
        super().__init__()
        self.name = name
        self.port, self.api_port = free_port(), free_port()
        config = self.home / "patroni.json"  # JSON is YAML
        config.write_text(json.dumps(self._config(etcd_port, synchronous=synchronous)))
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(config, owner.pw_uid, owner.pw_gid)
        alone = ["--user", "--map-current-user"] if self.user is None else []
        alone += ["--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        self.server = Daemon(
            [command("unshare"), *alone, *dying_with_us(self.user), command("patroni"), config],
            log=self.home / "patroni.log",
            ready=lambda: self.has_role("health"),
        )

    def start(self) -> None:
        """Start Patroni, which creates the data, and wait until the server accepts connections."""
        self.server.start()

    def kill(self) -> None:
        """Kill Patroni and the server at once."""
        self.server.kill()

    def has_role(self, role: str) -> bool:
        """Return whether Patroni reports a role: primary, sync, replica; or health."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api_port}/{role}", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self, etcd_port: int, *, synchronous: bool) -> dict[str, object]:
        here = "127.0.0.1"
        trust = ["local all all trust", f"host all all {here}/32 trust", f"host replication all {here}/32 trust"]
        settings = {"ttl": TTL, "loop_wait": LOOP_WAIT, "retry_timeout": RETRY_TIMEOUT, "synchronous_mode": synchronous}
        return {
            "scope": "podpool",
            "name": self.name,
            "restapi": {"listen": f"{here}:{self.api_port}", "connect_address": f"{here}:{self.api_port}"},
            "etcd3": {"host": f"{here}:{etcd_port}"},
            "bootstrap": {"dcs": settings, "initdb": [{"auth": "trust"}, {"encoding": "UTF8"}, {"locale": "C"}]},
            "postgresql": {
                "listen": f"{here}:{self.port}",
                "connect_address": f"{here}:{self.port}",
                "data_dir": str(self.home / "data"),
                "bin_dir": str(self.bin),
                "authentication": {"superuser": {"username": SUPERUSER}, "replication": {"username": REPLICATOR}},
                "parameters": {"unix_socket_directories": str(self.home)},
                "pg_hba": trust,
                "pgpass": str(self.home / "pgpass"),
            },
        }

    def dsn(self, database: str = "postgres") -> str:
        """Return the connection string in libpq's keyword format."""
        return f"{super().dsn(database)} port={self.port}"


class PatroniPair:
    """Two members and the etcd that they elect a leader in."""

    def __init__(self, *, synchronous: bool) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="podpool-patroni-"))
        port = free_port()
        self.etcd = Daemon(
            etcd_argv(self.home, port, peer_port=free_port()),
            log=self.home / "etcd.log",
            ready=lambda: answers(port, "/readyz"),
        )
        self.members = [Member(name, etcd_port=port, synchronous=synchronous) for name in ("a", "b")]
        self._standby_role = "sync" if synchronous else "replica"

    def start(self) -> tuple[Member, Member]:
        """Start all; return the primary and the standby when that streams."""
        self.etcd.start()
        for member in self.members:
            member.start()
        first, second = self.members
        until(lambda: first.has_role("primary"), "the first member is the primary", timeout=60)
        until(lambda: second.has_role(self._standby_role), f"the second one is {self._standby_role}", timeout=60)
        until(lambda: second.psql(STREAMING) == "1", "the standby streams")
        return first, second

    def disconnect(self, primary: Member, standby: Member) -> None:
        """Let the standby receive nothing more."""
        primary.psql(f"ALTER ROLE {REPLICATOR} NOLOGIN")
        primary.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        until(lambda: standby.psql(STREAMING) == "0", "the standby is disconnected")

    def url(self) -> str:
        """Return the URL of both."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://{SUPERUSER}@{hosts}/postgres"

    def remove(self) -> None:
        """Kill all and delete their data."""
        for member in self.members:
            member.kill()
            shutil.rmtree(member.home)
        self.etcd.kill()
        shutil.rmtree(self.home)
