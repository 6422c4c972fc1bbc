"""Commands that inspect a cluster. All of them read; `audit --repair` writes after a confirmation."""

from typing import Any

from podpool.cli.spec import options as shared
from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Session, Type, command
from podpool.cli.spec.options import ADDRESS, AT, NAMESPACE, NODE, POD, REFUSED, WAITING, exit_codes, local

GROUPS = (Group("history", "Show the past addresses of a Pod, a node or an address.", Section.INSPECT),)


def _inspect(name: str, summary: str, handler: str, *parts: Argument | Option | Example, **more: Any) -> Command:  # noqa: ANN401  other fields of Command
    fields = {"session": Session.CLUSTER, "section": Section.INSPECT, "exit_codes": exit_codes(), **more}
    return command(name, summary, handler, *parts, *shared.CLUSTER, **fields)


_NAMED = exit_codes("a named object does not exist")


def _names(name: str, help_: str) -> Argument:
    return Argument(name, f"{help_} Default: all.", "names", required=False, repeated=True)


COMMANDS = (
    _inspect(
        "status",
        "Show address usage, waiting Pods and unreachable components.",
        "status:status",
        Example("Show the cluster of the current context", ""),
        Example("Print every field for a program", "-o json"),
    ),
    _inspect(
        "subnets",
        "Show address usage per subnet.",
        "status:subnets",
        Example("List all subnets with all columns", "-o wide"),
        Example("Show one subnet", "vnet.pods"),
        _names("NETWORK.SUBNET", "Subnets to list."),
        exit_codes=_NAMED,
    ),
    _inspect(
        "nodes",
        "Show the addresses that each node holds, requests and releases.",
        "status:nodes",
        Example("List all nodes", ""),
        Example("List nodes with Pods that wait for an address", "--waiting"),
        _names("NODE", "Nodes to list."),
        local("waiting", "List only nodes with Pods that wait for an address.", "false", Type.BOOLEAN),
        exit_codes=_NAMED,
    ),
    _inspect(
        "pods",
        "Show the addresses of Pods.",
        "status:pods",
        Example("List the Pods of all namespaces", ""),
        Example("List the Pods on a node that wait for an address", "--node node-1 --waiting"),
        _names("POD", "Pods to list, as NAME or NAMESPACE/NAME."),
        Option("namespace", "Namespace to list. Default: all.", short="-n", env=False),
        local("node", "Node to list. Default: all."),
        WAITING,
        exit_codes=_NAMED,
    ),
    _inspect(
        "slices",
        "Show secondary networks, or the fullest slices of one.",
        "status:slices",
        Example("List all secondary networks", ""),
        Example("List the fullest slices of one network", "storage"),
        Argument(
            "NETWORK", "Secondary network whose slices to list. Default: list networks.", "network", required=False
        ),
        exit_codes=_NAMED,
    ),
    _inspect(
        "who",
        "Show which Pod or node has an address, and which had it before.",
        "history:who",
        Example("Show the present and past owners of an address", "10.77.0.9"),
        Example("Show the owner at a time", "10.77.0.9 --at 2026-11-16T02:30:00Z"),
        ADDRESS,
        local("at", "Time, such as 2026-11-16T02:30:00Z. Default: now and before."),
        exit_codes=REFUSED,
    ),
    _inspect(
        "why",
        "Explain why a Pod has no address, and what to do.",
        "history:explain",
        Example("Explain a Pod of the context's namespace", "web-0"),
        Example("Explain a Pod of another namespace", "web-0 -n shop"),
        POD,
        NAMESPACE,
        exit_codes=exit_codes("the Pod waits for an address or does not exist"),
    ),
    _inspect(
        "watch",
        "Print changes of Pods, nodes and subnets, and podpool Events, as they happen.",
        "status:watch",
        Example("Watch until interrupted", ""),
        Example("Watch for a minute, one JSON object per line", "--duration 1m -o json"),
        local("duration", "How long to watch, such as 30s or 5m. Default: until interrupted."),
    ),
    _inspect(
        "history pod",
        "Show the past addresses of a Pod, with node and network.",
        "history:pod_history",
        Example("Show a Pod of the context's namespace, deleted or not", "web-0"),
        *(POD, NAMESPACE, AT),
        exit_codes=REFUSED,
    ),
    _inspect(
        "history node",
        "Show the past addresses of a node, with their Pods.",
        "history:node_history",
        Example("Show a node, deleted or not", "node-1"),
        *(NODE, AT),
        exit_codes=REFUSED,
    ),
    _inspect(
        "history address",
        "Show the past owners of an address, with their Pods.",
        "history:address_history",
        Example("Show an address", "10.77.0.9"),
        *(ADDRESS, AT),
        exit_codes=REFUSED,
    ),
    _inspect(
        "audit",
        "Check the invariants across ledger, Kubernetes objects and Pods.",
        "audit:run_audit",
        Example("Check the cluster of the current context", ""),
        Example("Repair what is safe to repair, without a confirmation", "--repair --yes"),
        local("settle", "Time between the two checks.", "5s"),
        local("repair", "Show a repair plan, and apply it after a confirmation.", "false", Type.BOOLEAN),
        Option("yes", "Apply the repair plan without asking.", "false", Type.BOOLEAN, short="-y", env=False),
        description=(
            "Every address has one owner, belongs to its node's grants and subnet, and was not taken from a node "
            "without a release; nodes hold whole batches. A violation counts when a second check confirms it."
        ),
        exit_codes=exit_codes("an invariant is violated"),
    ),
    command(
        "dashboard",
        "Serve a web page that shows a cluster's addresses live. It only reads.",
        "dashboard:serve_dashboard",
        Example("Serve the cluster of the current context on loopback", ""),
        Example("Serve on another port", "--listen 127.0.0.1:8080"),
        *(shared.KUBECONFIG, shared.OPTIONAL_LEDGER),
        Option("ledger-token-file", "File with the token for the ledger."),
        shared.LEDGER_CA_FILE,
        shared.port_option("127.0.0.1:7781", "of the page; port 0 is any free port"),
        section=Section.INSPECT,
        service=True,
    ),
)
