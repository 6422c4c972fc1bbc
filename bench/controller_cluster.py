"""One cluster under measurement: a real API server, a ledger on PostgreSQL and a controller, each in its own process.

Nodes are objects only: no agent runs on them. Results are read from the API server's audit log, which has the times of
all calls of all callers; so measuring adds no load.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.load_generator import CONFIGS, Crowd, node
from parts.control_plane import ControlPlane
from parts.daemon import Daemon
from parts.loopback import answers, free_port
from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.audit import Call
    from parts.postgres import Postgres

CONTROLLER = "system:serviceaccount:kube-system:podpool-controller"
WRITES = frozenset({"create", "update", "patch", "delete"})
STATUS = "nodenetworkconfigs/status"
SUBNET, CIDR = "vnet.pods", "10.0.0.0/12"
TIMEOUT = 900.0
INTERVAL = 2.0
"""Seconds between two reads of the log: reading it takes CPU from the measured processes."""

_databases = count()


class Site:
    """The measured processes."""

    def __init__(self, home: Path, server: Postgres, *, cidr: str, scarcity: str) -> None:
        self.home = home
        self._cidr = cidr
        self.plane = ControlPlane(home)
        self.crowd = Crowd(self.plane)
        database = f"site{next(_databases)}"
        server.psql(f"CREATE DATABASE {database}")
        self._admin_token, self._token = home / "admin-token", home / "token"
        port, health = free_port(), free_port()
        self._ledger_url = f"http://127.0.0.1:{port}"
        self.ledger = self._daemon(
            *("ledger", "serve", "--database", server.url(database), "--listen", f"127.0.0.1:{port}"),
            *("--health-listen", f"127.0.0.1:{health}", "--admin-token-file", str(self._admin_token)),
            port=health,
        )
        port = free_port()
        self.controller = self._daemon(
            *("controller", "run", "--kubeconfig", str(home / "podpool-controller.kubeconfig")),
            *("--subnet", SUBNET, "--ledger", self._ledger_url, "--ledger-token-file", str(self._token)),
            *("--listen", f"127.0.0.1:{port}", "--scarcity", scarcity),
            port=port,
        )

    def start(self, nodes: int) -> None:
        """Start everything except the controller, and register Nodes."""
        self.plane.start()
        self.ledger.start()
        self._podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=self._podpool("rbac"))
        token = self.plane.accounts.token("podpool-controller", namespace="kube-system")
        self.plane.kubeconfig_for(token, name="podpool-controller")
        self._ask_ledger("subnet", "create", SUBNET, self._cidr, "--gateway", "10.0.0.1")
        self._token.write_text(self._ask_ledger("token", "create", "site"))
        self.crowd.run(self.crowd.register(range(nodes)))

    def stop(self) -> None:
        """Stop everything."""
        self.crowd.close()
        self.controller.kill()
        self.ledger.kill()
        self.plane.stop()

    def join(self, nodes: int) -> list[Call]:
        """Start the controller, and wait until every Node has its network container; return all its calls."""
        mark = self.plane.audit.mark()
        self.controller.start()
        what = f"{nodes} nodes have joined"
        until(lambda: self._statuses(mark) >= nodes, what, timeout=TIMEOUT, interval=INTERVAL)
        without = [each for each in self.plane.admin.get(CONFIGS)["items"] if not _containers(each)]
        if without:
            raise AssertionError(f"{len(without)} NNCs have no container, such as {without[0]}")
        return self.plane.audit.calls(since=mark, user=CONTROLLER)

    def template(self) -> dict[str, Any]:
        """Return an NNC as the controller wrote it, without fields that the API server added."""
        made = self.plane.admin.get(f"{CONFIGS}/{node(0)}")
        kept = ("namespace", "labels", "annotations", "finalizers", "ownerReferences")
        meta = {key: value for key, value in made["metadata"].items() if key in kept}
        return {key: made[key] for key in ("apiVersion", "kind", "spec", "status")} | {"metadata": meta}

    def cpu(self) -> float:
        """Return the CPU seconds that controller and ledger have used."""
        return sum(map(cpu_of, (self.controller.pid, self.ledger.pid)))

    def memory(self) -> float:
        """Return the memory of the controller, in MiB."""
        status = Path(f"/proc/{self.controller.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def _statuses(self, mark: int) -> int:
        done = {each.name for each in self.plane.audit.calls(since=mark, user=CONTROLLER) if is_status(each)}
        return len(done)

    def _ask_ledger(self, *words: str) -> str:
        return self._podpool(
            "ledger", *words, "--ledger", self._ledger_url, "--ledger-token-file", str(self._admin_token)
        )

    def _podpool(self, *words: str) -> str:
        return subprocess.run([*_PODPOOL, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    def _daemon(self, *words: str, port: int) -> Daemon:
        log = self.home / f"{words[0]}.log"
        return Daemon([*_PODPOOL, *words], log=log, ready=lambda: answers(port, "/healthz"))


_PODPOOL = (sys.executable, "-m", "podpool")


@contextmanager
def site(server: Postgres, nodes: int, *, cidr: str = CIDR, scarcity: str = "graded") -> Iterator[Site]:
    """Yield a site with Nodes, with the controller not started."""
    with tempfile.TemporaryDirectory() as home:
        made = Site(Path(home), server, cidr=cidr, scarcity=scarcity)
        try:
            made.start(nodes)
            yield made
        finally:
            made.stop()


def is_status(call: Call) -> bool:
    """Return whether a call has written an NNC's status."""
    return call.verb == "patch" and call.resource == STATUS and call.status < 300


def _containers(config: dict[str, Any]) -> list[object]:
    return list(config.get("status", {}).get("networkContainers", []))


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9
