"""Commands that inspect a cluster. All of them read; `audit --repair` writes after a confirmation."""

from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Session, Type
from podpool.cli.spec.options import (
    ADDRESS,
    AT,
    CLUSTER,
    EXIT_CODES,
    KUBECONFIG,
    LEDGER_CA_FILE,
    NAMESPACE,
    NODE,
    OPTIONAL_LEDGER,
    POD,
    WAITING,
    port_option,
)

GROUPS = (
    Group(
        name="history",
        summary="Show the past addresses of a Pod, a node or an address.",
        section=Section.INSPECT,
    ),
)


def _command(
    name: str,
    summary: str,
    handler: str,
    *examples: Example,
    description: str = "",
    arguments: tuple[Argument, ...] = (),
    options: tuple[Option, ...] = (),
    exit_codes: str = EXIT_CODES,
) -> Command:
    return Command(
        name=name,
        summary=summary,
        description=description,
        handler=f"podpool.cli.commands.{handler}",
        examples=examples,
        arguments=arguments,
        options=(*options, *CLUSTER),
        session=Session.CLUSTER,
        section=Section.INSPECT,
        exit_codes=exit_codes,
    )


COMMANDS = (
    _command(
        "status",
        "Show address usage, waiting Pods and unreachable components.",
        "status:status",
        Example("Show the cluster of the current context", "podpool status"),
        Example("Print every field for a program", "podpool status -o json"),
    ),
    _command(
        "subnets",
        "Show address usage per subnet.",
        "status:subnets",
        Example("List all subnets with all columns", "podpool subnets -o wide"),
        Example("Show one subnet", "podpool subnets vnet.pods"),
        arguments=(Argument("NETWORK.SUBNET", "Subnets to list. Default: all.", "names", False, True),),  # noqa: FBT003  required, repeated
    ),
    _command(
        "nodes",
        "Show the addresses that each node holds, requests and releases.",
        "status:nodes",
        Example("List all nodes", "podpool nodes"),
        Example("List nodes with Pods that wait for an address", "podpool nodes --waiting"),
        arguments=(Argument("NODE", "Nodes to list. Default: all.", "names", False, True),),  # noqa: FBT003  required, repeated
        options=(WAITING,),
    ),
    _command(
        "pods",
        "Show the addresses of Pods.",
        "status:pods",
        Example("List the Pods of all namespaces", "podpool pods"),
        Example("List the Pods on a node that wait for an address", "podpool pods --node node-1 --waiting"),
        arguments=(Argument("POD", "Pods to list, as NAME or NAMESPACE/NAME. Default: all.", "names", False, True),),  # noqa: FBT003  required, repeated
        options=(
            Option("namespace", "Namespace to list. Default: all.", short="-n", env=False),
            Option("node", "Node to list. Default: all.", env=False),
            WAITING,
        ),
    ),
    _command(
        "slices",
        "Show secondary networks and the slices of their ranges.",
        "status:slices",
        Example("List all secondary networks", "podpool slices"),
        Example("List the fullest slices of one network", "podpool slices storage"),
        arguments=(Argument("NETWORK", "Network whose slices to list. Default: list networks.", "network", False),),  # noqa: FBT003  required
    ),
    _command(
        "who",
        "Show which Pod or node has an address, and which had it before.",
        "history:who",
        Example("Show the present and past owners of an address", "podpool who 10.77.0.9"),
        Example("Show the owner at a time", "podpool who 10.77.0.9 --at 2026-11-16T02:30:00Z"),
        arguments=(ADDRESS,),
        options=(Option("at", "Time, such as 2026-11-16T02:30:00Z. Default: now and before.", env=False),),
    ),
    _command(
        "why",
        "Explain why a Pod has no address, and what to do.",
        "history:explain",
        Example("Explain a Pod of the context's namespace", "podpool why web-0"),
        Example("Explain a Pod of another namespace", "podpool why web-0 -n shop"),
        arguments=(POD,),
        options=(NAMESPACE,),
        exit_codes=EXIT_CODES.replace(
            "1 the check failed or the request was refused", "1 the Pod waits for an address or does not exist"
        ),
    ),
    _command(
        "watch",
        "Print changes of Pods, nodes and subnets, and podpool Events, as they happen.",
        "status:watch",
        Example("Watch until interrupted", "podpool watch"),
        Example("Watch for a minute, one JSON object per line", "podpool watch --duration 1m -o json"),
        options=(Option("duration", "How long to watch, such as 30s or 5m. Default: until interrupted.", env=False),),
    ),
    _command(
        "history pod",
        "Show the past addresses of a Pod, with node and network.",
        "history:pod_history",
        Example("Show a Pod of the context's namespace, deleted or not", "podpool history pod web-0"),
        arguments=(POD,),
        options=(NAMESPACE, AT),
    ),
    _command(
        "history node",
        "Show the past addresses of a node, with their Pods.",
        "history:node_history",
        Example("Show a node, deleted or not", "podpool history node node-1"),
        arguments=(NODE,),
        options=(AT,),
    ),
    _command(
        "history address",
        "Show the past owners of an address, with their Pods.",
        "history:address_history",
        Example("Show an address", "podpool history address 10.77.0.9"),
        arguments=(ADDRESS,),
        options=(AT,),
    ),
    _command(
        "audit",
        "Check the invariants across ledger, Kubernetes objects and Pods.",
        "audit:run_audit",
        Example("Check the cluster of the current context", "podpool audit"),
        Example("Repair what is safe to repair, without a confirmation", "podpool audit --repair --yes"),
        description=(
            "Every address has one owner, belongs to its node's grants and subnet, and was not taken from a node "
            "without a release; nodes hold whole batches. A violation counts when a second check confirms it."
        ),
        options=(
            Option("settle", "Time between the two checks.", "5s", env=False),
            Option(
                "repair", "Show a repair plan, and apply it after a confirmation.", "false", Type.BOOLEAN, env=False
            ),
            Option("yes", "Apply the repair plan without asking.", "false", Type.BOOLEAN, short="-y", env=False),
        ),
    ),
    Command(
        name="dashboard",
        summary="Serve a web page that shows a cluster's addresses live. It only reads.",
        handler="podpool.cli.commands.dashboard:serve_dashboard",
        examples=(
            Example("Serve the cluster of the current context on loopback", "podpool dashboard"),
            Example("Serve on another port", "podpool dashboard --listen 127.0.0.1:8080"),
        ),
        options=(
            KUBECONFIG,
            OPTIONAL_LEDGER,
            Option("ledger-token-file", "File with the token for the ledger."),
            LEDGER_CA_FILE,
            port_option("127.0.0.1:7781", "of the page; port 0 is any free port"),
        ),
        section=Section.INSPECT,
        service=True,
    ),
)
