"""podpool installed in a control plane: ledger, controller and agents as processes.

Each has exactly the rights of the printed roles. An agent's token is bound to its Node, as for an agent in a Pod: a
recreated Node needs a new one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.api import ApiError
from parts.daemon import Daemon
from parts.loopback import answers, free_port, read
from parts.node_config import BRIDGE
from parts.polling import until
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parts.api import Api
    from parts.control_plane import ControlPlane
    from parts.node import Node

PODPOOL = Path(sys.executable).parent / "podpool"
CONFIGS = "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs"
AGENT_PORT = 7784
ADMIN_TOKEN, CLUSTER_TOKEN = "ledger.db.admin-token", "cluster-token"


class Installation:
    """The processes of one cluster; call `stop` even if `install` failed."""

    def __init__(self, plane: ControlPlane, home: Path, *, subnet: str, cidr: str, gateway: str, settings: str) -> None:
        self.plane = plane
        self.home = home
        self.subnet, self.cidr, self.gateway = subnet, cidr, gateway
        self.settings = settings
        self.controller_options: Sequence[str] = ()
        self.agents: dict[str, Daemon] = {}
        self.ledger_port, self.controller_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.ledger_port}"
        self.running: list[Daemon] = []

    def install(self) -> None:
        """Start everything except the agents."""
        health, argv = free_port(), ["ledger", "serve", "--database", f"sqlite://{self.home / 'ledger.db'}"]
        listen = ["--listen", f"127.0.0.1:{self.ledger_port}", "--health-listen", f"127.0.0.1:{health}"]
        self.start("ledger", [*argv, *listen], port=health)
        podpool("controller", "install-crds", "--kubeconfig", str(self.plane.kubeconfig))
        self.plane.kubectl("apply", "-f", "-", manifest=podpool("rbac"))
        subnet = [self.subnet, self.cidr, "--gateway", self.gateway, "--settings", self.settings]
        self.ask_ledger("subnet", "create", *subnet)
        self.controller = self.start_controller()

    def start_controller(self) -> Daemon:
        """Start the controller, with its own token for the ledger."""
        token = self.home / CLUSTER_TOKEN
        token.write_text(self.ask_ledger("token", "create", "cluster"))
        argv = [
            *("controller", "run", "--kubeconfig", self.account("podpool-controller"), "--subnet", self.subnet),
            *("--ledger", self.url, "--ledger-token-file", str(token)),
            *("--listen", f"127.0.0.1:{self.controller_port}", "--settings", self.settings),
            *self.controller_options,
        ]
        return self.start("controller", argv, port=self.controller_port)

    def start_agent(self, node: str, *options: str) -> Daemon:
        """Start an agent for a Node object without a machine, in the namespaces of this machine."""
        port = free_port()
        listen = ["--listen", f"127.0.0.1:{port}", "--conf-dir", ""]
        argv = [*self.agent_argv(node, self.home / node), *listen, *options]
        return self.start(node, argv, port=port)

    def join(self, node: Node) -> None:
        """Install podpool on a real node; the agent writes the CNI configuration when it can serve."""
        podpool("cni", "install", "--bin-dir", str(node.plugins), "--name", "podpool,whereabouts")
        for name in ("bridge", "loopback"):
            (node.plugins / name).unlink(missing_ok=True)  # a runtime may be running it
            shutil.copy(program(name), node.plugins)
        template = node.home / "template.conflist"
        template.write_text(json.dumps(bridged({"type": "podpool"})))
        configured = ["--conf-dir", str(node.configs), "--cni-template", str(template)]
        agent = node.daemon(
            "agent",
            node.inside([PODPOOL, *self.agent_argv(node.name, state(node)), *configured]),
            ready=lambda: node.answers(AGENT_PORT, "/healthz"),
        )
        agent.start()
        self.agents[node.name] = agent

    def agent_argv(self, node: str, state: Path) -> list[str]:
        """Return the command line of an agent."""
        return [
            *("agent", "run", "--node", node, "--kubeconfig", self.account("podpool-agent", node=node)),
            *("--state", str(state), "--settings", self.settings),
            *("--flat-file-dir", str(self.home)),  # where `Whereabouts` has its own
        ]

    def start(self, name: str, argv: Sequence[str | Path], *, port: int) -> Daemon:
        """Start a podpool daemon."""
        daemon = Daemon([PODPOOL, *argv], log=self.home / f"{name}.log", ready=lambda: answers(port, "/healthz"))
        daemon.start()
        self.running.append(daemon)
        return daemon

    def stop(self) -> None:
        """Stop all of them; agents of real nodes end with their nodes."""
        for daemon in reversed(self.running):
            daemon.stop()

    # Permissions

    def account(self, name: str, node: str | None = None) -> str:
        """Return a kubeconfig with the permissions of a component; an existing one gets a new token."""
        token = self.plane.accounts.token(name, namespace="kube-system", node=node)
        until(lambda: allowed(self.plane.api(token)), f"the rights of {name} are in force")
        return str(self.plane.kubeconfig_for(token, name=f"{name}-{node}"))

    # State

    def ask_ledger(self, *argv: str) -> str:
        """Run a ledger command as admin."""
        return podpool("ledger", *argv, "--ledger", self.url, "--ledger-token-file", str(self.home / ADMIN_TOKEN))

    def ledger_ncs(self) -> list[dict[str, Any]]:
        """Return the ledger's network containers of this cluster."""
        uid = self.plane.admin.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
        return list(self.read_ledger(f"/v1/network-containers?cluster={uid}").get("network_containers", []))

    def ledger_subnet(self) -> dict[str, Any]:
        """Return the subnet from the ledger."""
        network, _, name = self.subnet.partition(".")
        return self.read_ledger(f"/v1/networks/{network}/subnets/{name}")

    def read_ledger(self, path: str) -> dict[str, Any]:
        """Return the ledger's response to a GET with this cluster's token."""
        token = (self.home / CLUSTER_TOKEN).read_text().strip()
        return dict(json.loads(read(self.ledger_port, path, token=token)))

    def nncs(self) -> dict[str, dict[str, Any]]:
        """Return the NodeNetworkConfigs, by node."""
        return {each["metadata"]["name"]: each for each in self.plane.admin.get(CONFIGS)["items"]}


def state(node: Node) -> Path:
    """Return the state directory of a node's agent, on the node's own disk."""
    return node.home / "agent"


def bridged(ipam: dict[str, Any]) -> dict[str, Any]:
    """Return the conflist of the segment that all nodes share, with the given IPAM."""
    plugin = {"type": "bridge", "bridge": BRIDGE, "ipam": ipam}
    return {"cniVersion": "1.1.0", "name": "pods", "plugins": [plugin]}


def podpool(*argv: str) -> str:
    """Run a podpool command and return its output."""
    return subprocess.run([PODPOOL, *argv], check=True, stdout=subprocess.PIPE, text=True).stdout


def allowed(api: Api) -> bool:
    """Return whether the permissions of an account are in force."""
    try:
        api.get("/api/v1/pods?limit=1")
        return bool(api.get(CONFIGS))
    except ApiError:
        return False
