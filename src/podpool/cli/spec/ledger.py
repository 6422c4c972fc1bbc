"""Commands of the ledger: the service, its administration, and its database."""

from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Session, Type
from podpool.cli.spec.options import (
    ADDRESS,
    AT,
    EXIT_CODES,
    LEDGER_CONNECTION,
    NODE,
    POD,
    PRINTED,
    SETTINGS,
    TLS,
    port_option,
)

GROUPS = (
    Group(
        name="ledger",
        summary="Run the ledger, and manage its subnets, tokens, clusters, history and database.",
        section=Section.RUN,
    ),
    Group(name="ledger subnet", summary="Manage subnets."),
    Group(name="ledger token", summary="Manage tokens."),
    Group(name="ledger cluster", summary="Manage clusters."),
    Group(name="ledger history", summary="Show past owners of addresses, in all clusters."),
    Group(name="ledger recovery", summary="Show and complete a recovery."),
)

DATABASE = Option(
    "database", "Database, as sqlite://PATH or postgresql://USER@HOST/NAME.", "sqlite:///var/lib/podpool/ledger.db"
)
_SUBNET = Argument("NETWORK.SUBNET", "Network and name of the subnet.", "network_subnet")
_CIDR = Argument("CIDR", "Address range, such as 10.0.0.0/24.", "cidr")
_CLUSTER = Argument("CLUSTER", "ID of the cluster: the UID of its namespace kube-system.", "cluster")
_TOKEN = Argument("NAME", "Name of the token.", "name")
_FILE = Argument("FILE", "Backup file.", "file")
_EXCLUDE = Option(
    "exclude",
    "Addresses that are never granted: addresses, CIDRs and ranges, such as 10.0.0.4,10.0.0.16/28,10.0.0.40-10.0.0.49.",
    env=False,
)
_OF_CLUSTER = Option("cluster", "ID of a cluster. Default: all clusters.", env=False)


def _admin(
    name: str,
    summary: str,
    handler: str,
    *examples: Example,
    arguments: tuple[Argument, ...] = (),
    options: tuple[Option, ...] = (),
) -> Command:
    return Command(
        name=f"ledger {name}",
        summary=summary,
        handler=f"podpool.cli.commands.ledger_admin:{handler}",
        examples=examples,
        arguments=arguments,
        options=(*options, *LEDGER_CONNECTION, *PRINTED),
        session=Session.LEDGER,
        exit_codes=EXIT_CODES,
    )


COMMANDS = (
    Command(
        name="ledger serve",
        summary="Serve the ledger over HTTP, with its data in SQLite or PostgreSQL.",
        handler="podpool.cli.commands.ledger:serve_ledger",
        examples=(
            Example("Serve from a SQLite file", "podpool ledger serve --database sqlite:///var/lib/podpool/ledger.db"),
            Example("Serve from PostgreSQL", "podpool ledger serve --database postgresql://podpool@db/podpool"),
        ),
        options=(
            DATABASE,
            port_option("127.0.0.1:7780", "of the API"),
            *TLS,
            Option("admin-token-file", "File of the admin token, created if missing. Default: beside the database."),
            Option("history", "How long past owners of addresses are kept.", "720h"),
            Option("refresh", "How often utilization is read from the database.", "1s"),
        ),
        service=True,
    ),
    _admin(
        "subnet create",
        "Create a subnet.",
        "create_subnet",
        Example("Create a subnet", "podpool ledger subnet create vnet.pods 10.0.0.0/22 --gateway 10.0.0.1"),
        Example("Create one with another batch", "podpool ledger subnet create vnet.a 10.1.0.0/24 --settings batch=8"),
        arguments=(_SUBNET, _CIDR),
        options=(Option("gateway", "Gateway of the subnet. It is never granted.", env=False), _EXCLUDE, SETTINGS),
    ),
    _admin(
        "subnet list",
        "List all subnets.",
        "list_subnets",
        Example("List subnets with all columns", "podpool ledger subnet list -o wide"),
    ),
    _admin(
        "subnet show",
        "Show a subnet and the clusters that hold its addresses.",
        "show_subnet",
        Example("Show a subnet", "podpool ledger subnet show vnet.pods"),
        arguments=(_SUBNET,),
    ),
    _admin(
        "subnet grow",
        "Extend a subnet: to a larger CIDR, or by another CIDR.",
        "grow_subnet",
        Example("Add a CIDR", "podpool ledger subnet grow vnet.pods 10.0.8.0/22"),
        arguments=(_SUBNET, _CIDR),
        options=(_EXCLUDE,),
    ),
    _admin(
        "subnet drain",
        "Stop granting addresses of a subnet.",
        "drain_subnet",
        Example("Drain a subnet", "podpool ledger subnet drain vnet.pods"),
        arguments=(_SUBNET,),
    ),
    _admin(
        "subnet reopen",
        "Resume granting addresses of a drained subnet.",
        "reopen_subnet",
        Example("Reopen a subnet", "podpool ledger subnet reopen vnet.pods"),
        arguments=(_SUBNET,),
    ),
    _admin(
        "subnet delete",
        "Delete a subnet that holds no grants.",
        "delete_subnet",
        Example("Delete a subnet", "podpool ledger subnet delete vnet.pods"),
        arguments=(_SUBNET,),
    ),
    _admin(
        "token create",
        "Create a token and print it. It is not shown again.",
        "create_token",
        Example("Create the token of a cluster", "podpool ledger token create production > cluster-token"),
        Example("Create an admin token", "podpool ledger token create alice --admin > admin-token"),
        arguments=(_TOKEN,),
        options=(
            Option("cluster", "ID of the token's cluster. Default: the first cluster that uses it.", env=False),
            Option("admin", "Create an admin token.", "false", Type.BOOLEAN, env=False),
        ),
    ),
    _admin("token list", "List all tokens.", "list_tokens", Example("List tokens", "podpool ledger token list")),
    _admin(
        "token revoke",
        "Revoke a token.",
        "revoke_token",
        Example("Revoke a token", "podpool ledger token revoke production"),
        arguments=(_TOKEN,),
    ),
    _admin(
        "cluster list", "List all clusters.", "list_clusters", Example("List clusters", "podpool ledger cluster list")
    ),
    _admin(
        "cluster retire",
        "Release everything that a destroyed cluster held.",
        "retire_cluster",
        Example("Retire a cluster", "podpool ledger cluster retire 0b5a1c52-30f0-4f6e-9f2e-8e7c6d1f2a3b"),
        arguments=(_CLUSTER,),
    ),
    _admin(
        "cluster confirm-loss",
        "Confirm a mass loss of nodes, so that their addresses are released.",
        "confirm_loss",
        Example("Confirm a loss", "podpool ledger cluster confirm-loss 0b5a1c52-30f0-4f6e-9f2e-8e7c6d1f2a3b"),
        arguments=(_CLUSTER,),
    ),
    _admin(
        "history address",
        "Show the past owners of an address, with their Pods.",
        "address_history",
        Example("Show an address", "podpool ledger history address 10.0.0.9"),
        arguments=(ADDRESS,),
        options=(AT, _OF_CLUSTER),
    ),
    _admin(
        "history node",
        "Show the past addresses of a node.",
        "node_history",
        Example("Show a node", "podpool ledger history node node-1"),
        arguments=(NODE,),
        options=(AT, _OF_CLUSTER),
    ),
    _admin(
        "history pod",
        "Show the past addresses of a Pod, deleted or not.",
        "pod_history",
        Example("Show a Pod", "podpool ledger history pod shop/web-0"),
        arguments=(POD,),
        options=(AT, _OF_CLUSTER),
    ),
    _admin(
        "recovery status",
        "Show the clusters whose inventory is awaited, and addresses with two owners.",
        "recovery_status",
        Example("Show the recovery", "podpool ledger recovery status"),
    ),
    _admin(
        "recovery excuse",
        "Stop waiting for a cluster's inventory.",
        "excuse",
        Example("Excuse a cluster", "podpool ledger recovery excuse 0b5a1c52-30f0-4f6e-9f2e-8e7c6d1f2a3b"),
        arguments=(_CLUSTER,),
    ),
    _admin(
        "recovery resolve",
        "Assign an address with two owners to one of them.",
        "resolve",
        Example("Assign an address", "podpool ledger recovery resolve vnet.pods 10.0.0.9 nc-1"),
        arguments=(_SUBNET, ADDRESS, Argument("NC", "ID of the network container that keeps it.", "nc")),
    ),
    Command(
        name="ledger backup",
        summary="Copy the database to a file. The ledger may run.",
        handler="podpool.cli.commands.ledger:back_up",
        examples=(Example("Back up the default database", "podpool ledger backup ledger.backup"),),
        arguments=(_FILE,),
        options=(DATABASE,),
    ),
    Command(
        name="ledger restore",
        summary="Replace the database by a backup. The ledger recovers when it starts.",
        handler="podpool.cli.commands.ledger:restore",
        examples=(Example("Restore the default database", "podpool ledger restore ledger.backup"),),
        arguments=(_FILE,),
        options=(DATABASE,),
    ),
    Command(
        name="ledger check",
        summary="Check the consistency of the database or of a backup.",
        handler="podpool.cli.commands.ledger:check_database",
        examples=(
            Example("Check the default database", "podpool ledger check"),
            Example("Check a backup", "podpool ledger check --file ledger.backup"),
        ),
        options=(DATABASE, Option("file", "Backup file to check instead of the database.", env=False), *PRINTED),
        exit_codes=EXIT_CODES,
    ),
)
