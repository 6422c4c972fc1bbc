"""Commands of the ledger: the service, its administration, and its database."""

from podpool.cli.spec import options as shared
from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Session, Type, command
from podpool.cli.spec.options import ADDRESS, AT, NODE, POD, PRINTED, REFUSED, SETTINGS, TLS, local, port_option

GROUPS = (
    Group("ledger", "Run the ledger, and manage its subnets, tokens, clusters, history and database.", Section.RUN),
    Group("ledger subnet", "Manage subnets."),
    Group("ledger token", "Manage the tokens with which clusters and administrators call the ledger."),
    Group("ledger cluster", "Manage clusters."),
    Group("ledger history", "Show past owners of addresses, in all clusters."),
    Group(
        "ledger recovery",
        "Show a recovery, and end it by hand: after a restore of its database the ledger grants nothing until each "
        "cluster has reported the addresses that its nodes hold.",
    ),
)

DATABASE = Option(
    "database", "Database, as sqlite://PATH or postgresql://USER@HOST/NAME.", "sqlite:///var/lib/podpool/ledger.db"
)
_SUBNET = Argument("NETWORK.SUBNET", "Network and name of the subnet.", "network_subnet")
_CIDR = Argument("CIDR", "Address range, such as 10.0.0.0/24.", "cidr")
_CLUSTER = Argument("CLUSTER", "ID of the cluster: the UID of its namespace kube-system.", "cluster")
_CLUSTER_ID = "0b5a1c52-30f0-4f6e-9f2e-8e7c6d1f2a3b"
_TOKEN = Argument("NAME", "Name of the token.", "name")
_ALLOW = local(
    "allow",
    "Networks and subnets that it may use, such as vnet.pods,lab. Default: all, or with rotate as before.",
)
_EXPIRES_IN = local("expires-in", "How long it is valid, such as 2160h. Default: until it is revoked.")
_LIMITS = (
    local(
        "max-addresses",
        "How many addresses the cluster may hold in each network, primaries included, or unlimited. "
        "Default: unlimited, or with rotate as before.",
    ),
    local(
        "max-network-containers",
        "How many nodes of the cluster may have addresses in each network, or unlimited. "
        "Default: unlimited, or with rotate as before.",
    ),
    local(
        "priority",
        "Weight of the cluster while a subnet lacks addresses, from 1 to 100. Default: 1, or with rotate as before.",
    ),
)
_FILE = Argument("FILE", "Backup file.", "file")
_EXCLUDE = local(
    "exclude",
    "Addresses that are never granted: addresses, CIDRs and ranges, such as 10.0.0.4,10.0.0.16/28,10.0.0.40-10.0.0.49.",
)
_OF_CLUSTER = local("cluster", "ID of a cluster. Default: all clusters.")


def _admin(name: str, summary: str, *parts: Argument | Option | Example, description: str = "") -> Command:
    """Return a command whose handler in `ledger_admin` has its name."""
    return command(
        f"ledger {name}",
        summary,
        f"ledger_admin:{name.replace(' ', '_').replace('-', '_')}",
        *(*parts, *shared.LEDGER_CONNECTION, *PRINTED),
        description=description,
        session=Session.LEDGER,
        exit_codes=REFUSED,
    )


COMMANDS = (
    command(
        "ledger serve",
        "Serve the ledger, the authority that grants addresses of subnets to the nodes of all clusters, over HTTP.",
        "ledger:serve_ledger",
        Example("Serve from a SQLite file", "--database sqlite:///var/lib/podpool/ledger.db"),
        Example("Serve from PostgreSQL", "--database postgresql://podpool@db/podpool"),
        DATABASE,
        port_option("127.0.0.1:7780", "of the API"),
        Option("health-listen", "Address and port of /healthz, /livez, /readyz and /metrics.", "127.0.0.1:7785"),
        *TLS,
        Option(
            "tls-client-ca",
            "PEM file with the CAs of client certificates: each caller needs one, besides its token. "
            "Default: no client certificates.",
        ),
        Option(
            "admin-token-file",
            "File of the admin token, created if missing. "
            "Default: beside the SQLite file, or with PostgreSQL /var/lib/podpool/ledger.db.admin-token.",
        ),
        Option(
            "cluster-token-file",
            "File with the token of a cluster, which is accepted although the ledger has not created it, so that the "
            "cluster can be installed together with the ledger. Its first use binds it to the cluster.",
        ),
        Option("history", "How long past owners of addresses are kept.", "720h"),
        Option("refresh", "How often utilization is read from the database.", "1s"),
        service=True,
    ),
    _admin(
        "subnet create",
        "Create a subnet: a CIDR whose addresses the ledger grants to nodes, for their Pods.",
        Example("Create a subnet", "vnet.pods 10.0.0.0/22 --gateway 10.0.0.1"),
        Example("Create one with another batch", "vnet.a 10.1.0.0/24 --settings batch=8"),
        *(_SUBNET, _CIDR, local("gateway", "Gateway of the subnet. It is never granted."), _EXCLUDE, SETTINGS),
        description="The network must route the CIDR already; podpool only assigns its addresses. Clusters use the "
        "subnet by its name: `podpool controller run --subnet`, or the label "
        "node-restriction.kubernetes.io/podpool-subnet of a Node.",
    ),
    _admin("subnet list", "List all subnets.", Example("List subnets with all columns", "-o wide")),
    _admin(
        "subnet show",
        "Show a subnet and the clusters that hold its addresses.",
        *(Example("Show a subnet", "vnet.pods"), _SUBNET),
    ),
    _admin(
        "subnet grow",
        "Add addresses to a subnet: by a larger CIDR that contains one of its own, or by another CIDR.",
        *(
            Example("Extend to a larger CIDR", "vnet.pods 10.0.0.0/21"),
            Example("Add a CIDR", "vnet.pods 10.0.8.0/22"),
            _SUBNET,
            _CIDR,
            _EXCLUDE,
        ),
        description="The network must route the CIDR already. Addresses that nodes hold stay where they are, and "
        "waiting Pods are served at once. A subnet cannot shrink.",
    ),
    _admin(
        "subnet drain",
        "Stop granting addresses of a subnet. Existing grants stay until nodes release them.",
        *(Example("Drain a subnet", "vnet.pods"), _SUBNET),
    ),
    _admin(
        "subnet reopen",
        "Resume granting addresses of a drained subnet.",
        *(Example("Reopen a subnet", "vnet.pods"), _SUBNET),
    ),
    _admin(
        "subnet delete",
        "Delete a subnet that has no grants. Drain it first (`subnet drain`), and wait until it is empty.",
        *(Example("Delete a subnet", "vnet.pods"), _SUBNET),
    ),
    _admin(
        "token create",
        "Create a token and print it. It is not shown again.",
        Example("Create the token of a cluster", "production > cluster-token"),
        Example("Create one for a subnet and a network", "staging --allow vnet.pods,lab > cluster-token"),
        Example("Create one with a quota", "staging --max-addresses 500 --max-network-containers 40 > cluster-token"),
        Example("Create an admin token", "alice --admin > admin-token"),
        _TOKEN,
        local("cluster", "ID of the token's cluster. Default: the first cluster that uses it."),
        local("admin", "Create an admin token.", "false", Type.BOOLEAN),
        *(_ALLOW, _EXPIRES_IN, *_LIMITS),
        description="A cluster with this token sees and uses only the networks and subnets of --allow.",
    ),
    _admin(
        "token rotate",
        "Create a new token in place of another one, and print it. Both are valid for a while.",
        Example("Rotate the token of a cluster", "production > cluster-token"),
        Example("Let a cluster use other subnets", "production --allow vnet.pods,vnet.more > cluster-token"),
        _TOKEN,
        local("overlap", "How long the former token stays valid.", "24h"),
        *(_ALLOW, _EXPIRES_IN, *_LIMITS),
        description="The new token has the name, the cluster and, without their options, the subnets and limits of "
        "the former. Write it to the file that the controller reads (--ledger-token-file): it is read for each call.",
    ),
    _admin(
        "token list",
        "List the tokens of clusters and administrators, without their secrets.",
        Example("List tokens", ""),
    ),
    _admin(
        "token revoke",
        "Revoke a token for good: within seconds the ledger rejects every request with it.",
        Example("Revoke all tokens of a name", "production"),
        Example("Revoke one of them by its ID", "8f1b2c3d4e5f"),
        Argument("NAME", "Name of the tokens, or the ID of one.", "name"),
        description="If it is a cluster's token, its nodes get no more addresses until its controller has another one. "
        "Running Pods keep theirs.",
    ),
    _admin(
        "audit-log",
        "List the latest administrative calls: with which token, on which object, with which result.",
        Example("List the last hundred", ""),
        Example("List the last thousand", "--limit 1000"),
        local("limit", "How many, at most 1000.", "100"),
        description="Calls with an admin token that change something are recorded, the last 10,000 of them. Each is "
        "also a line of the ledger's log, with the field audit.",
    ),
    _admin(
        "cluster list",
        "List the clusters that use the ledger: their network containers, tokens, and what is awaited of them.",
        Example("List clusters", ""),
    ),
    _admin(
        "cluster retire",
        "Release everything that a destroyed cluster held.",
        *(Example("Retire a cluster", _CLUSTER_ID), _CLUSTER),
        description="It also revokes the tokens of the cluster. Addresses of Pods that still run may be granted "
        "to others, so its nodes must be gone. `podpool ledger cluster list` shows the clusters.",
    ),
    _admin(
        "cluster confirm-loss",
        "Confirm that the missing nodes of a cluster are lost, so that node GC releases their addresses.",
        *(Example("Confirm a loss", _CLUSTER_ID), _CLUSTER),
        description="Use it when the mass-loss breaker has paused node GC because too many nodes disappeared at once. "
        "Addresses of nodes that still run may be granted to others. `podpool ledger cluster list` shows the clusters.",
    ),
    _admin(
        "history address",
        "Show which nodes held an address, from when to when, and which Pods used it; in all clusters or in one.",
        *(Example("Show an address", "10.0.0.9"), ADDRESS, AT, _OF_CLUSTER),
    ),
    _admin(
        "history node", "Show the past addresses of a node.", *(Example("Show a node", "node-1"), NODE, AT, _OF_CLUSTER)
    ),
    _admin(
        "history pod",
        "Show the past addresses of a Pod, deleted or not.",
        *(Example("Show a Pod", "shop/web-0"), POD, AT, _OF_CLUSTER),
    ),
    _admin(
        "recovery status",
        "Show what the recovery of a restored ledger waits for.",
        Example("Show the recovery", ""),
        description="It lists the clusters that have not yet sent their inventory (which node holds which address), "
        "and the addresses with two owners. Their subnets grant nothing until every inventory has arrived or was "
        "excused (`recovery excuse`), and every such address is decided (`recovery resolve`).",
    ),
    _admin(
        "recovery excuse",
        "Continue a recovery without the inventory of a cluster that no longer exists.",
        *(Example("Excuse a cluster", _CLUSTER_ID), _CLUSTER),
        description="Addresses that its Pods still use may be granted to others. "
        "`podpool ledger recovery status` lists the awaited clusters.",
    ),
    _admin(
        "recovery resolve",
        "Choose which network container keeps an address that has two owners after a restore.",
        Example("Assign an address", "vnet.pods 10.0.0.9 nc-1"),
        *(_SUBNET, ADDRESS, Argument("NC", "ID of the network container that keeps it.", "nc")),
        description="Pods of the other network container that use it must be restarted. "
        "`podpool ledger recovery status` lists such addresses with their network containers.",
    ),
    command(
        "ledger apply",
        "Change the ledger's subnets and tokens to those of a file. A repetition changes nothing.",
        "ledger_file:apply",
        Example("Show what would change", "-f ledger.yaml --dry-run"),
        Example("Apply a file", "-f ledger.yaml"),
        Example("Also drain and delete subnets, and revoke tokens, that are not in it", "-f ledger.yaml --prune"),
        Option("file", "YAML file with `subnets` and `tokens`.", "ledger.yaml", short="-f", env=False),
        local("dry-run", "Print the changes, and make none.", "false", Type.BOOLEAN),
        local("prune", "Also remove what is not in the file.", "false", Type.BOOLEAN),
        *(*shared.LEDGER_CONNECTION, *PRINTED),
        description="Subnets are created, grown, drained and reopened; what else differs is an error that names field "
        "and line. `podpool ledger export` writes the file of a ledger. A list that is absent from the file is left "
        "alone. The secret of a token that is created or changed is written to its `secret_file`. A pruned subnet is "
        "drained first, and deleted by a later run when it is empty.",
        session=Session.LEDGER,
        exit_codes=REFUSED,
    ),
    command(
        "ledger export",
        "Print the ledger's subnets and tokens as a file for `podpool ledger apply`.",
        "ledger_file:export",
        Example("Write a file", "> ledger.yaml"),
        *(*shared.LEDGER_CONNECTION, shared.MANIFEST_OUTPUT),
        description="It has no secrets. For another ledger, add to each token the `secret_file` that gets its secret.",
        session=Session.LEDGER,
        exit_codes=REFUSED,
    ),
    command(
        "ledger backup",
        "Copy the database to a file, which is replaced if it exists. The ledger may keep running.",
        "ledger:back_up",
        *(Example("Back up the default database", "ledger.backup"), _FILE, DATABASE),
    ),
    command(
        "ledger restore",
        "Replace the database by a backup.",
        "ledger:restore",
        Example("Restore the default database", "ledger.backup"),
        Example("Restore PostgreSQL", "ledger.backup --database postgresql://podpool@db/podpool"),
        *(_FILE, DATABASE),
        description="Stop a ledger on SQLite first; on PostgreSQL it may run. Afterwards nothing is granted until "
        "every cluster has sent its inventory: `podpool ledger recovery status` shows which are awaited.",
    ),
    command(
        "ledger check",
        "Check that the rows of the ledger's database, or of a backup, agree with each other. It only reads.",
        "ledger:check_database",
        Example("Check the default database", ""),
        Example("Check a backup", "--file ledger.backup"),
        *(DATABASE, local("file", "Backup file to check instead of the database."), *PRINTED),
        exit_codes=shared.exit_codes("the database is not consistent"),
    ),
)
