"""What is typed on a node: the agent, its journal, and the plugin's place."""

import socket
from collections.abc import Mapping

from podpool.cli.ledger_spec import NUMBERS
from podpool.cli.spec import OUTPUT, Command, Option
from podpool.cni import paths

AGENT_FILE = "/etc/podpool/agent.toml"
MODES = ("reactive", "idempotent", "pods")
YES_NO = ("true", "false")
STATE = Option("/var/lib/podpool", "where the journal is kept")
BIN_DIR = Option(paths.BIN_DIR, "the runtime's plugins")
NAME = Option("podpool", "the plugin's name, or several: podpool,whereabouts")

AGENT_COMMANDS: Mapping[str, Command] = {
    "run": Command(
        sentence="own the node's pool, and answer the plugin",
        does="podpool.cli.commands.agent:run_agent",
        file=AGENT_FILE,
        options={
            "node": Option(socket.gethostname(), "the Node's name"),
            "mode": Option("pods", "what the request follows", MODES),
            "state": STATE,
            "socket": Option(paths.SOCKET, "where the plugin knocks"),
            "deletes": Option(paths.DELETES, "where the plugin leaves DELs for later"),
            "listen": Option("127.0.0.1:7784", "address and port of /healthz, /readyz and /metrics"),
            "conf-dir": Option(paths.CONF_DIR, "where the runtime's configuration appears when it can serve; or none"),
            "cni-template": Option("", "a file with that configuration; else ptp"),
            "taint": Option("false", "keep Pods away from the node while its subnet is short", YES_NO),
            "whereabouts-namespace": Option(
                "kube-system", "where IPPools and their Leases are; or none, to serve no ranges of Whereabouts"
            ),
            "foreign-plugins": Option(
                "true", "plugins of Whereabouts itself may still write the ranges that nodes share", YES_NO
            ),
            "underlay": Option(
                "", "the host that must know of an address before it works, as Azure's: http://168.63.129.16"
            ),
            "numbers": Option("", NUMBERS),
            "kubeconfig": Option("", "else the variable KUBECONFIG, the Pod's own account, or ~/.kube/config"),
            "boot-id": Option("", "else the kernel's; must be what the kubelet reports"),
        },
    ),
    "journal show": Command(
        sentence="print what an agent has written down, and what it comes to",
        does="podpool.cli.commands.journal:show_journal",
        options={"state": STATE, "output": OUTPUT},
    ),
}
CNI_COMMANDS: Mapping[str, Command] = {
    "install": Command(
        sentence="put the plugin where the container runtime looks for it",
        does="podpool.cli.commands.cni:install_plugin",
        options={
            "bin-dir": BIN_DIR,
            "name": NAME,
            "conf-dir": Option("", "put the runtime's configuration there, too, at once: else the agent does, in time"),
            "cni-template": Option("", "a file with that configuration; else ptp"),
        },
    ),
    "uninstall": Command(
        sentence="take the plugin away, and put back what stood there",
        does="podpool.cli.commands.cni:uninstall_plugin",
        options={
            "bin-dir": BIN_DIR,
            "name": NAME,
            "conf-dir": Option(paths.CONF_DIR, "where the runtime's configuration is, which goes too; or none"),
        },
    ),
}
