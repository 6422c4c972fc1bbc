"""Commands that run and install the components of a cluster: controller, agent, CNI plugin; manifests; migration."""

import socket

from podpool.cli.spec.model import Command, Example, Group, Option, Section, Session, Type
from podpool.cli.spec.options import (
    CONTEXT,
    EXIT_CODES,
    FLAT_FILE,
    KUBECONFIG,
    LEDGER_CA_FILE,
    MANIFEST_OUTPUT,
    NO_COLOR,
    OPTIONAL_LEDGER,
    PRINTED,
    SETTINGS,
    WHEREABOUTS_NAMESPACE,
    port_option,
)
from podpool.cni import paths

GROUPS = (
    Group(
        name="controller",
        summary="Run the controller, which turns Nodes and requests into grants. One leader per cluster.",
        section=Section.RUN,
    ),
    Group(
        name="agent",
        summary="Run the agent, which owns a node's addresses and serves the CNI plugin. One per node.",
        section=Section.RUN,
    ),
    Group(name="agent journal", summary="Read the agent's journal."),
    Group(name="cni", summary="Install or uninstall the CNI plugin on a node.", section=Section.INSTALL),
    Group(name="adopt", summary="Migrate a cluster from another IPAM, and back.", section=Section.INSTALL),
)

AGENT_CONFIG_FILE = "/etc/podpool/agent.toml"
SCARCITY_POLICIES = ("off", "exhaustion", "graded")
MODES = ("reactive", "idempotent", "pods")
_HEALTH = "of /healthz, /readyz and /metrics"
_STATE = Option("state", "Directory of the journal.", "/var/lib/podpool")
_BIN_DIR = Option("bin-dir", "Directory of CNI plugins.", paths.BIN_DIR)
_NAME = Option("name", "Name of the plugin, or several: podpool,whereabouts.", "podpool")
_TEMPLATE = Option("cni-template", "File with the CNI configuration to write. Default: ptp with podpool.")
_SHARED_RANGES = Option("shared-ranges", "Also allow agents to write shared ranges.", "false", Type.BOOLEAN, env=False)

COMMANDS = (
    Command(
        name="controller run",
        summary="Reconcile Nodes, requests and networks of one cluster with the ledger.",
        handler="podpool.cli.commands.controller:run_controller",
        examples=(
            Example("Run with a ledger", "podpool controller run --subnet vnet.pods --ledger-token-file cluster-token"),
            Example("Run for secondary networks only", "podpool controller run --ledger none"),
        ),
        options=(
            Option("subnet", "Subnet of nodes without a label, as NETWORK.SUBNET."),
            OPTIONAL_LEDGER,
            Option("ledger-token-file", "File with this cluster's token for the ledger."),
            LEDGER_CA_FILE,
            port_option("127.0.0.1:7783", _HEALTH),
            Option("scarcity", "Policy for a subnet that runs short.", "graded", choices=SCARCITY_POLICIES),
            WHEREABOUTS_NAMESPACE,
            FLAT_FILE,
            Option("pod-history", "Report Pods and their addresses to the ledger.", "true", Type.BOOLEAN),
            SETTINGS,
            KUBECONFIG,
        ),
        service=True,
    ),
    Command(
        name="controller install-crds",
        summary="Install the CustomResourceDefinitions and wait until they are established.",
        handler="podpool.cli.commands.controller:install_crds",
        examples=(Example("Install into the cluster of the current context", "podpool controller install-crds"),),
        options=(KUBECONFIG,),
    ),
    Command(
        name="agent run",
        summary="Own the node's addresses and serve the CNI plugin.",
        handler="podpool.cli.commands.agent:run_agent",
        examples=(
            Example("Run on this node", "podpool agent run"),
            Example("Run with options from a file", "podpool agent run --config /etc/podpool/agent.toml"),
        ),
        config_file=AGENT_CONFIG_FILE,
        options=(
            Option("node", "Name of the Node.", socket.gethostname()),
            Option("mode", "What the request follows.", "pods", choices=MODES),
            _STATE,
            Option("socket", "Unix socket for the plugin.", paths.SOCKET),
            Option("deferred-deletes", "Directory in which the plugin leaves deferred DELs.", paths.DELETES),
            port_option("127.0.0.1:7784", _HEALTH),
            Option("conf-dir", "Directory for the CNI configuration. Empty: do not write it.", paths.CONF_DIR),
            _TEMPLATE,
            Option("taint", "Taint the node while its subnet is short.", "false", Type.BOOLEAN),
            Option(
                "whereabouts-namespace",
                "Namespace of IPPools and their Leases. Empty: serve no Whereabouts ranges.",
                "kube-system",
            ),
            Option(
                "third-party-plugins",
                "Whereabouts' own plugin may still write shared ranges.",
                "true",
                Type.BOOLEAN,
            ),
            Option("underlay", "URL of the host agent that programs addresses, such as Azure's http://168.63.129.16."),
            SETTINGS,
            KUBECONFIG,
            Option("boot-id", "Boot ID as the kubelet reports it. Default: the kernel's."),
        ),
        service=True,
    ),
    Command(
        name="agent journal show",
        summary="Print the records of an agent's journal and the state they result in.",
        handler="podpool.cli.commands.journal:show_journal",
        examples=(Example("Print the journal of this node", "podpool agent journal show"),),
        options=(_STATE, *PRINTED),
        exit_codes=EXIT_CODES,
    ),
    Command(
        name="cni install",
        summary="Install the CNI plugin.",
        handler="podpool.cli.commands.cni:install_plugin",
        examples=(
            Example("Install the plugin", "podpool cni install"),
            Example("Take the place of Whereabouts too", "podpool cni install --name podpool,whereabouts"),
        ),
        options=(
            _BIN_DIR,
            _NAME,
            Option("conf-dir", "Also write the CNI configuration to this directory. Default: the agent writes it."),
            _TEMPLATE,
        ),
    ),
    Command(
        name="cni uninstall",
        summary="Uninstall the CNI plugin and restore the one it replaced.",
        handler="podpool.cli.commands.cni:uninstall_plugin",
        examples=(Example("Uninstall the plugin", "podpool cni uninstall"),),
        options=(
            _BIN_DIR,
            _NAME,
            Option(
                "conf-dir", "Directory of the CNI configuration to remove. Empty: do not remove it.", paths.CONF_DIR
            ),
        ),
    ),
    Command(
        name="adopt whereabouts",
        summary="Report the Whereabouts objects of a cluster and their inconsistencies; with --apply, repair them.",
        description=(
            "Running Pods keep their addresses. --apply records the addresses of running Pods that no IPPool lists. "
            "--revert prepares the way back to Whereabouts; with --apply it removes podpool's labels and annotations."
        ),
        handler="podpool.cli.commands.adopt:adopt_whereabouts",
        examples=(
            Example("Report", "podpool adopt whereabouts"),
            Example("Record missing addresses", "podpool adopt whereabouts --apply"),
            Example("Return to Whereabouts", "podpool adopt whereabouts --revert --apply"),
        ),
        options=(
            WHEREABOUTS_NAMESPACE,
            FLAT_FILE,
            Option("apply", "Apply the changes. Without it nothing is changed.", "false", Type.BOOLEAN, env=False),
            Option("revert", "Prepare the way back to Whereabouts.", "false", Type.BOOLEAN, env=False),
            KUBECONFIG,
            CONTEXT,
            *PRINTED,
        ),
        session=Session.CLUSTER,
        exit_codes=EXIT_CODES,
    ),
    Command(
        name="crds",
        summary="Print the CustomResourceDefinitions.",
        handler="podpool.cli.commands.manifests:print_crds",
        examples=(Example("Apply them", "podpool crds | kubectl apply -f -"),),
        options=(MANIFEST_OUTPUT, NO_COLOR),
        section=Section.INSTALL,
    ),
    Command(
        name="rbac",
        summary="Print service accounts, roles and admission policies of all components.",
        handler="podpool.cli.commands.manifests:print_rbac",
        examples=(
            Example("Apply them", "podpool rbac | kubectl apply -f -"),
            Example("Include shared ranges", "podpool rbac --shared-ranges | kubectl apply -f -"),
        ),
        options=(WHEREABOUTS_NAMESPACE, _SHARED_RANGES, MANIFEST_OUTPUT, NO_COLOR),
        section=Section.INSTALL,
    ),
)
