"""Commands that inspect a cluster. Most of them only read; others, as `audit --repair`, write after a confirmation."""

from typing import Any

import msgspec

from podpool.cli.spec import options as shared
from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Session, Type, command
from podpool.cli.spec.options import ADDRESS, AT, NAMESPACE, NODE, POD, REFUSED, WAITING, exit_codes, local

GROUPS = (Group("history", "Show the past addresses of a Pod, a node or an address.", Section.INSPECT),)


def _inspect(name: str, summary: str, handler: str, *parts: Argument | Option | Example, **more: Any) -> Command:  # noqa: ANN401  other fields of Command
    fields = {"session": Session.CLUSTER, "section": Section.INSPECT, "exit_codes": exit_codes(), **more}
    return command(name, summary, handler, *parts, *shared.CLUSTER, **fields)


def _slice_admin(name: str, summary: str, handler: str, *parts: Option | Example, description: str) -> Command:
    options = (shared.WHEREABOUTS_NAMESPACE, shared.KUBECONFIG, shared.CONTEXT, *shared.PRINTED)
    return command(
        f"slices {name}",
        summary,
        f"slice_admin:{handler}",
        *(*parts, *options),
        description=description,
        session=Session.CLUSTER,
        section=Section.INSPECT,
        exit_codes=exit_codes("it was not confirmed"),
    )


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
        Example("Wait until the cluster is healthy, at most ten minutes", "--wait=10m"),
        Option(
            "wait",
            "Wait until the cluster is healthy, at most so long, and print what is missing. Without a value: 5m.",
            implied="5m",
            env=False,
        ),
        description=(
            "A cluster is healthy if API server and ledger are reachable, a controller leads, every Node is ready and "
            "has a network container and an agent that has reported since the machine was booted, and no Pod waits for "
            "an address and no node for a slice. With --wait the exit code is 1 if it is not healthy in time."
        ),
        exit_codes=exit_codes("with --wait, the cluster was not healthy in time"),
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
        "Show secondary networks and nodes without a slice, or the slices of one network.",
        "status:slices",
        Example("List all secondary networks", ""),
        Example("List the slices of one network, the fullest first, and the nodes that wait for one", "storage"),
        Argument(
            "NETWORK", "Secondary network whose slices to list. Default: list networks.", "network", required=False
        ),
        description=(
            "ASSIGNED are slices that belong to nodes, IN-USE those with addresses of Pods, RETURNING those that nodes "
            "return when nothing in them is in use, WAITING are nodes without a slice."
        ),
        exit_codes=_NAMED,
    ),
    _slice_admin(
        "declare-complete",
        "Excuse all nodes that have not answered the controller's slice inventory.",
        "declare_complete",
        Example("List the silent nodes, and excuse them after a confirmation", ""),
        Example("Excuse them without a confirmation", "--yes"),
        Option("yes", "Excuse them without asking.", "false", Type.BOOLEAN, short="-y", env=False),
        description=(
            "After a restore of the API server the controller asks every agent which slices it holds, and assigns "
            "nothing before all have answered or are gone. Excuse nodes only if their machines are off, or hold no "
            "slices that the API server does not show: a slice that only an excused node knows may be assigned to "
            "another, and its addresses used twice."
        ),
    ),
    _slice_admin(
        "confirm-loss",
        "Confirm that missing nodes are lost, so that node GC releases their slices.",
        "confirm_loss",
        Example("List the missing nodes, and confirm their loss after a question", ""),
        Example("Confirm it without a question", "--yes"),
        Option("yes", "Confirm the loss without asking.", "false", Type.BOOLEAN, short="-y", env=False),
        description=(
            "If many nodes with slices disappear at once, node GC releases nothing: an API server that lost its data "
            "looks the same while the Pods run. After a day, if there is any Node, it releases them all the same. "
            "Confirm only if the machines of all listed nodes are off: slices of one that still runs would be "
            "assigned to others, and its addresses used twice."
        ),
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
        "Explain why a Pod has no address, or a node none for its Pods, and what to do. Name a Pod or --node.",
        "history:explain",
        Example("Explain a Pod of the context's namespace", "web-0"),
        Example("Explain a Pod of another namespace", "web-0 -n shop"),
        Example("Explain a node: its slices and its grants", "--node node-1"),
        msgspec.structs.replace(POD, required=False),
        NAMESPACE,
        local("node", "Name of the Node to explain; leave out POD then."),
        exit_codes=exit_codes("the Pod or node waits for an address or does not exist"),
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
        "Show which nodes held an address, from when to when, and which Pods used it.",
        "history:address_history",
        Example("Show an address", "10.77.0.9"),
        *(ADDRESS, AT),
        exit_codes=REFUSED,
    ),
    _inspect(
        "audit",
        "Check that ledger, Kubernetes objects and Pods agree on who has which address.",
        "audit:run_audit",
        Example("Check the cluster of the current context", ""),
        Example("Repair what is safe to repair, without a confirmation", "--repair --yes"),
        local("settle", "Time between the two checks, such as 5s or 1m; at least a minute with --repair.", "5s"),
        local("repair", "Show a repair plan, and apply it after a confirmation.", "false", Type.BOOLEAN),
        Option("yes", "Apply the repair plan without asking.", "false", Type.BOOLEAN, short="-y", env=False),
        description=(
            "It reports addresses with two owners, addresses in use that were not granted, addresses taken from a node "
            "that did not release them, and nodes that do not hold whole batches: if a second check confirms it. "
            "Nothing is changed without --repair."
        ),
        exit_codes=exit_codes("an invariant is violated"),
    ),
    _inspect(
        "verify",
        "Test a cluster with short-lived Pods: their addresses, and connections between them.",
        "verify:verify",
        Example("Test all nodes", "--image registry.example/podpool:1.0"),
        Example("Test two nodes with any image", "--nodes a,b --image pause:1 --reachability=false"),
        Option("image", "Image of podpool, which the nodes have or can pull; without connections any image that runs."),
        local("nodes", "Nodes to test, such as a,b. Default: all that are ready and schedulable."),
        local("pods-per-node", "Pods on each node, at most 50.", "2", Type.INTEGER),
        local("start-timeout", "How long to wait until the Pods run, and until they are gone.", "2m"),
        local("reachability", "Also connect Pods with each other.", "true", Type.BOOLEAN),
        description=(
            "It creates a namespace with Pods on each node, and checks that each gets an address that was granted to "
            "its node and that no other Pod has, that Pods reach each other within a node and across nodes, that they "
            "are gone after their deletion and their addresses cool down, and that the audit finds nothing. The "
            "namespace is deleted at the end, also after an interrupt."
        ),
        exit_codes=exit_codes("a check failed"),
    ),
    _inspect(
        "support-bundle",
        "Write an archive of a cluster's state and logs, for those who help. It only reads.",
        "support_bundle:support_bundle",
        Example("Write podpool-support-TIME.tar.gz", ""),
        Example("Write a named file, with the logs of the last two hours", "-f bundle.tar.gz --since 2h"),
        Option("file", "File to write. Default: podpool-support-TIME.tar.gz.", short="-f", env=False),
        local("since", "Age of the oldest lines of logs.", "24h"),
        Option("namespace", "Namespace of podpool's components.", "kube-system", short="-n", env=False),
        Option("state", "Directory of the journal, if run on a node.", "/var/lib/podpool"),
        description=(
            "It has the objects of podpool's kinds, Nodes, Pods without environment and volumes, Events, logs, metrics "
            "and readiness of the components, the state of the ledger, the findings of preflight, and a summary of the "
            "journal on a node. It reads no Secrets, removes what looks like a token or password, and is limited to "
            "64 MiB. manifest.json lists what could not be read."
        ),
        exit_codes=exit_codes("nothing could be read"),
    ),
    command(
        "dashboard",
        "Serve a web page that shows a cluster's addresses live. It only reads.",
        "dashboard:serve_dashboard",
        Example("Serve the cluster of the current context on loopback", ""),
        Example("Serve on another port", "--listen 127.0.0.1:8080"),
        *(shared.KUBECONFIG, shared.DETECTED_LEDGER),
        Option("ledger-token-file", "File with the token for the ledger."),
        shared.LEDGER_CA_FILE,
        shared.LEDGER_SERVER_NAME,
        shared.LEDGER_CLIENT_CERT,
        shared.port_option("127.0.0.1:7781", "of the page; port 0 is any free port"),
        section=Section.INSPECT,
        service=True,
    ),
)
