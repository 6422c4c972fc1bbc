"""Network namespaces that leave no trace: one process holds them, and its end removes them.

The holder has its own network and mount namespace: host ends of interfaces are there, and `/run`, where `ip netns`
keeps names, is private. A plain user also gets a user namespace. Where the kernel forbids both, tests fail with its
error.
"""

from __future__ import annotations

import subprocess
from itertools import count
from typing import TYPE_CHECKING

from parts.daemon import Daemon, StartFailed
from parts.debian import command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STATE = "/run/podpool-parts"
"""Directory for state of plugins; it is removed with the holder."""

READY = "the namespaces are there"
SET_UP = f"""set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/netns {STATE}
{{ip}} link set lo up
echo {READY}
exec sleep infinity
"""


class Namespaces:
    """Fixture: `namespaces`. `run` runs a command on the "host" side, `add` makes a Pod's namespace."""

    def __init__(self, home: Path) -> None:
        self.log = home / "namespaces.log"
        self.numbers = count()
        self.own_user = False
        self.holder = self.make_holder()

    def make_holder(self) -> Daemon:
        """Return the process that holds the namespaces, not started."""
        user = ["--user", "--map-root-user"] if self.own_user else []
        set_up = SET_UP.format(ip=command("ip"))
        return Daemon(
            [command("unshare"), *user, "--net", "--mount", "--", "sh", "-c", set_up],
            log=self.log,
            ready=lambda: READY in self.log.read_text(),
        )

    def start(self) -> None:
        """Start the holder as we are, else as root of a user namespace; raises with the kernel's error."""
        refused = []
        for self.own_user in (False, True):
            self.holder = self.make_holder()
            try:
                return self.holder.start()
            except StartFailed as error:
                refused.append(str(error))
        raise StartFailed(f"these tests need namespaces, which the kernel refuses here: {'; '.join(refused)}")

    def stop(self) -> None:
        """Stop the holder, which removes everything inside."""
        self.holder.kill()

    def add(self) -> str:
        """Create a Pod's namespace with only `lo`; return its path inside."""
        name = f"pod{next(self.numbers)}"
        self.run("ip", "netns", "add", name)
        return f"/run/netns/{name}"

    def delete(self, netns: str) -> None:
        """Remove a Pod's namespace, and the interfaces in it."""
        self.run("ip", "netns", "delete", netns.rpartition("/")[2])

    def run(self, *argv: str | Path, netns: str | None = None) -> str:
        """Run a command on the host side or in a Pod's namespace; return its output, raise if it fails."""
        return subprocess.run(self.inside(argv, netns=netns), check=True, stdout=subprocess.PIPE, text=True).stdout

    def inside(self, argv: Sequence[str | Path], *, netns: str | None = None) -> list[str | Path]:
        """Return the command line that runs a command inside."""
        user = ["--user", "--preserve-credentials"] if self.own_user else []
        enter = [command("nsenter"), "--target", str(self.holder.pid), *user, "--net", "--mount", "--"]
        if netns:
            # A second nsenter, because the path of a Pod's namespace is known only inside the first.
            enter += [command("nsenter"), f"--net={netns}", "--"]
        program, *arguments = argv
        found = program if "/" in str(program) else command(str(program))
        return [*enter, found, *arguments]
