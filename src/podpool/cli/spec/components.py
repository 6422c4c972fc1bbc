"""Commands that run and install the components of a cluster: controller, agent, CNI plugin; manifests; migration."""

import socket
from pathlib import PurePath

from podpool.cli.spec import options as shared
from podpool.cli.spec.model import Example, Group, Option, Section, Session, Type, command
from podpool.cli.spec.options import FLAT_FILE, KUBECONFIG, PRINTED, WHEREABOUTS_NAMESPACE, local, port_option
from podpool.cni import paths, profiles

_CONTROLLER = "Run the controller, which turns Nodes and requests into grants. One leader per cluster."
_AGENT = "Run the agent, which owns a node's addresses and serves the CNI plugin. One per node."
GROUPS = (
    Group("controller", _CONTROLLER, Section.RUN),
    Group("agent", _AGENT, Section.RUN),
    Group("agent journal", "Read the agent's journal."),
    Group("cni", "Install or uninstall the CNI plugin on a node.", Section.INSTALL),
    Group("adopt", "Check a cluster before it moves from another IPAM to podpool, or back.", Section.INSTALL),
)

AGENT_CONFIG_FILE = "/etc/podpool/agent.toml"
SYSCTL_DIR = "/proc/sys/net"
SCARCITY_POLICIES = ("off", "exhaustion", "graded")
SCARCITY_HELP = (
    "What happens as a subnet runs out of addresses. graded: its batch and buffer shrink step by step, so that nodes "
    "return idle addresses; exhaustion: nodes request single addresses once it is exhausted; off: nothing."
)
MODES = ("reactive", "idempotent", "pods")
MODE_HELP = (
    "How a node decides how many addresses to request. pods: by the Pods scheduled on it, before they start; "
    "idempotent: by the addresses in use; reactive: one batch more or less when too few or too many are free."
)
_NAMESPACE = "Namespace of IPPools and their Leases."
_HEALTH = "of /healthz, /livez, /readyz and /metrics"
_STATE = Option("state", "Directory of the journal.", "/var/lib/podpool")
_BIN_DIR = Option("bin-dir", "Directory of CNI plugins.", paths.BIN_DIR)
_NAME = Option("name", "Name of the plugin, or several: podpool,whereabouts.", "podpool")
_THIRD_PARTY = Option(
    "third-party-plugins",
    "Whereabouts' own plugin may still write shared ranges. Set it to false when no node has that plugin.",
    "true",
    Type.BOOLEAN,
)
_CNI_CONFIG = (
    Option(
        "cni-profile",
        "CNI configuration to write, by the network that carries the Pods: routed and azure use ptp, the others the "
        "plugin of their name; docs/networks.md compares them.",
        profiles.DEFAULT_PROFILE,
        choices=profiles.PROFILE_NAMES,
    ),
    Option(
        "cni-options",
        "Options of the profile, such as master=eth0,mtu=9000; docs/networks.md lists them.",
    ),
    Option("cni-template", "File with the CNI configuration to write, in place of a profile."),
)
_KEEP_JOURNAL = Option("keep-state", "Keep the journal for a later installation.", "false", Type.BOOLEAN)
_KEEP_OBJECTS = Option("keep-state", "Keep objects and CRDs for a later installation.", "false", Type.BOOLEAN)
_SHARED_RANGES = local(
    "shared-ranges",
    "Also allow agents to write IPPools of ranges that all nodes share (Whereabouts without slices).",
    "false",
    Type.BOOLEAN,
)

COMMANDS = (
    command(
        "preflight",
        "Check before an installation whether podpool will work in a cluster. It only reads.",
        "preflight:preflight",
        Example("Check the cluster of the current context", "--subnet vnet.pods"),
        Example("Check a cluster for secondary networks only", "--ledger none"),
        Option("subnet", "Subnet of Nodes without a subnet label, as the controller's option."),
        Option("namespace", "Namespace of podpool's service accounts.", "kube-system", short="-n", env=False),
        *(_STATE, _BIN_DIR, Option("conf-dir", "Directory of the CNI configuration.", paths.CONF_DIR)),
        *shared.CLUSTER,
        description=(
            "It checks the version of Kubernetes, CRDs, permissions of the caller and of the service accounts, the "
            "ledger and its token, the size of subnets for the Nodes and Pods there are, Nodes and their boot IDs, "
            "clocks, ranges that overlap with Services, Nodes or other networks, and other CNI plugins; on a node also "
            "the runtime and its directories. Each finding has a remedy. Access reviews ask the API server what an "
            "account may do, and store nothing."
        ),
        session=Session.CLUSTER,
        section=Section.INSTALL,
        exit_codes=shared.exit_codes("podpool will not work before an error is corrected"),
    ),
    command(
        "controller run",
        "Run the controller of a cluster: it gives nodes addresses from the ledger, and slices of secondary networks.",
        "controller:run_controller",
        Example("Run with a ledger", "--subnet vnet.pods --ledger-token-file cluster-token"),
        Example("Run for secondary networks only", "--ledger none"),
        Option(
            "subnet",
            "Subnet of Nodes without the label node-restriction.kubernetes.io/podpool-subnet, as NETWORK.SUBNET. "
            "Required unless --ledger none.",
        ),
        shared.OPTIONAL_LEDGER,
        Option("ledger-token-file", "File with this cluster's token for the ledger (`podpool ledger token create`)."),
        shared.LEDGER_CA_FILE,
        shared.LEDGER_SERVER_NAME,
        shared.LEDGER_CLIENT_CERT,
        port_option("127.0.0.1:7783", _HEALTH),
        Option("scarcity", SCARCITY_HELP, "graded", choices=SCARCITY_POLICIES),
        *(WHEREABOUTS_NAMESPACE, FLAT_FILE),
        Option("pod-history", "Report Pods and their addresses to the ledger.", "true", Type.BOOLEAN),
        *(shared.SETTINGS, KUBECONFIG),
        service=True,
    ),
    command(
        "controller install-crds",
        "Install or update the CustomResourceDefinitions (`podpool crds`), and wait until they are established.",
        "controller:install_crds",
        *(Example("Install into the cluster of the current context", ""), KUBECONFIG),
    ),
    command(
        "agent run",
        "Own the node's addresses and serve the CNI plugin.",
        "agent:run_agent",
        Example("Run on this node", ""),
        Example("Run with options from a file", "--config /etc/podpool/agent.toml"),
        Option("node", "Name of the Node.", socket.gethostname()),
        Option("mode", MODE_HELP, "pods", choices=MODES),
        _STATE,
        Option("socket", "Unix socket for the plugin.", paths.SOCKET),
        Option("deferred-deletes", "Directory in which the plugin leaves deferred DELs.", paths.DELETES),
        port_option("127.0.0.1:7784", _HEALTH),
        Option("conf-dir", "Directory for the CNI configuration. Empty: do not write it.", paths.CONF_DIR),
        *(*_CNI_CONFIG, _BIN_DIR),
        Option(
            "proxy-uplink",
            "Interface on which the kernel answers ARP and NDP for the node's Pods, with ptp. "
            "Default: none, the network has routes to them.",
        ),
        Option("sysctl-dir", "Directory of the kernel's network settings, written with --proxy-uplink.", SYSCTL_DIR),
        Option(
            "cri-socket",
            "CRI socket of the runtime, to find lost DELs. auto: containerd's or CRI-O's, if any; none: by Pods only.",
            "auto",
        ),
        Option("taint", "Taint the node while Pods on it wait for addresses of the subnet.", "false", Type.BOOLEAN),
        Option("whereabouts-namespace", f"{_NAMESPACE} Empty: serve no Whereabouts ranges.", "kube-system"),
        Option(
            "flat-file-dir",
            "Directory of Whereabouts' flat files. Default: whereabouts.d below /etc/kubernetes/cni/net.d, "
            "/etc/cni/net.d and /host/etc/cni/net.d.",
        ),
        _THIRD_PARTY,
        Option("underlay", "URL of the host agent that programs addresses, such as Azure's http://168.63.129.16."),
        *(shared.SETTINGS, KUBECONFIG),
        Option("boot-id", "Boot ID as the kubelet reports it. Default: the kernel's."),
        config_file=AGENT_CONFIG_FILE,
        service=True,
    ),
    command(
        "agent uninstall",
        "Remove plugin, CNI configuration and journal from this node, after its agent has stopped.",
        "uninstall:uninstall_agent",
        Example("Uninstall from this node", ""),
        Example("Keep the journal", "--keep-state"),
        *(_BIN_DIR, _NAME),
        Option("conf-dir", "Directory of the CNI configuration to remove. Empty: do not remove it.", paths.CONF_DIR),
        _STATE,
        Option("empty-dirs", "Directories to empty, separated by commas.", str(PurePath(paths.SOCKET).parent)),
        _KEEP_JOURNAL,
        Option(
            "installed-file", "For a DaemonSet: a file that exists while podpool is installed; then nothing is removed."
        ),
        Option("listen", "Address and port of /livez and /readyz, then served until stopped. Empty: exit when done."),
        service=True,
        description="It waits up to 120 s for the agent to stop. Running Pods keep their network; their DELs fail "
        "without the plugin, so delete them first, or install another plugin.",
    ),
    command(
        "controller uninstall",
        "Delete podpool's objects and CRDs from the cluster, after controllers and agents have stopped.",
        "uninstall:uninstall_cluster",
        Example("Uninstall from the cluster of the current context", ""),
        Option("daemon-set", "DaemonSet in kube-system that runs `podpool agent uninstall`; it is awaited first."),
        Option("timeout", "How long to wait for the nodes, and for the objects.", "5m"),
        _KEEP_OBJECTS,
        *(WHEREABOUTS_NAMESPACE, KUBECONFIG),
        description="CRDs of another installation stay, and those of Whereabouts while shared ranges are in use.",
    ),
    command(
        "agent journal show",
        "Print the records of an agent's journal and the state they result in. The agent may keep running.",
        "journal:show_journal",
        *(Example("Print the journal of this node", ""), _STATE, *PRINTED),
    ),
    command(
        "cni install",
        "Install the CNI plugin on this machine.",
        "cni:install_plugin",
        Example("Install the plugin", ""),
        Example("Also replace the plugin of Whereabouts", "--name podpool,whereabouts"),
        *(_BIN_DIR, _NAME),
        Option("conf-dir", "Also write the CNI configuration to this directory. Default: the agent writes it."),
        *_CNI_CONFIG,
    ),
    command(
        "cni uninstall",
        "Uninstall the CNI plugin and restore the one it replaced.",
        "cni:uninstall_plugin",
        *(Example("Uninstall the plugin", ""), _BIN_DIR, _NAME),
        Option("conf-dir", "Directory of the CNI configuration to remove. Empty: do not remove it.", paths.CONF_DIR),
        description="Drain the node first: without the plugin, DELs of running Pods fail. The journal stays; "
        "`podpool agent uninstall` removes that too.",
    ),
    command(
        "adopt whereabouts",
        "Check whether a cluster with Whereabouts can move to podpool, or back. Changes nothing without --apply.",
        "adopt:adopt_whereabouts",
        Example("Report", ""),
        Example("Record missing addresses", "--apply"),
        Example("Return to Whereabouts", "--revert --apply"),
        *(WHEREABOUTS_NAMESPACE, FLAT_FILE),
        local("apply", "Apply the changes. Without it nothing is changed.", "false", Type.BOOLEAN),
        local("revert", "Prepare the way back to Whereabouts.", "false", Type.BOOLEAN),
        *(KUBECONFIG, shared.CONTEXT, *PRINTED),
        description=(
            "It counts the networks, IPPools and allocations, and lists what is wrong with them, such as an address "
            "with two owners. Running Pods keep their addresses. --apply adds those that no IPPool lists to their "
            "IPPools. --revert shows the way back; with --apply it removes podpool's objects, labels and annotations."
        ),
        session=Session.CLUSTER,
        exit_codes=shared.exit_codes("inconsistencies were found"),
    ),
    command(
        "crds",
        "Print the CustomResourceDefinitions.",
        "manifests:print_crds",
        *(Example("Apply them", "| kubectl apply -f -"), shared.MANIFEST_OUTPUT),
        section=Section.INSTALL,
    ),
    command(
        "rbac",
        "Print service accounts, roles and admission policies of all components.",
        "manifests:print_rbac",
        Example("Apply them", "| kubectl apply -f -"),
        Example("Include shared ranges", "--shared-ranges | kubectl apply -f -"),
        *(WHEREABOUTS_NAMESPACE, _SHARED_RANGES, shared.MANIFEST_OUTPUT),
        section=Section.INSTALL,
    ),
)
