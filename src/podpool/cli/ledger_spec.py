"""What can be typed after `podpool ledger`, beside `serve`: to a ledger that runs, and about its books."""

from collections.abc import Mapping

from podpool.cli.spec import OUTPUT, Command, Option

LEDGER = "http://127.0.0.1:7780"
DATABASE = Option("sqlite:///var/lib/podpool/ledger.db", "where the books are; or postgresql://user@host/name")
NUMBERS = "numbers that are not the usual ones, as batch=8,buffer=0.25,shrink_hold=1m"
TLS = {
    "tls-cert": Option("", "serve TLS with this certificate, a file"),
    "tls-key": Option("", "and this key"),
}

_SUBNET = "NETWORK.SUBNET"
_KEEP_BACK = Option("", "never given: addresses, CIDRs and stretches, as 10.0.0.4,10.0.0.16/28,10.0.0.40-10.0.0.49")
_AT = Option("", "at this moment, as 2026-11-16T02:30:00Z; else ever")
_CLUSTER = Option("", "of this cluster; else of all")
_DESK = {
    "ledger": Option(LEDGER, "where the ledger is"),
    "token-file": Option("/var/lib/podpool/ledger.db.admin-token", "the file with your token"),
    "ca-file": Option("", "trust the ledger's certificate because of this authority, a file"),
    "output": OUTPUT,
}


def _command(sentence: str, does: str, *takes: str, options: Mapping[str, Option] | None = None) -> Command:
    return Command(
        sentence=sentence, does=f"podpool.cli.commands.ledger_admin:{does}", takes=takes, options={**(options or {}), **_DESK}
    )


LEDGER_COMMANDS: Mapping[str, Command] = {
    "subnet create": _command(
        "make a subnet",
        "create_subnet",
        _SUBNET,
        "CIDR",
        options={
            "gateway": Option("", "its gateway, which is never given"),
            "keep-back": _KEEP_BACK,
            "numbers": Option("", "its numbers that are not the usual ones, as batch=8,buffer=0.25,upper_threshold=0.95"),
        },
    ),
    "subnet list": _command("show all subnets", "list_subnets"),
    "subnet show": _command("show a subnet, and who holds it", "show_subnet", _SUBNET),
    "subnet grow": _command(
        "give a subnet a larger CIDR, or a further one",
        "grow_subnet",
        _SUBNET,
        "CIDR",
        options={"keep-back": _KEEP_BACK},
    ),
    "subnet drain": _command("grant nothing in a subnet any more", "drain_subnet", _SUBNET),
    "subnet reopen": _command("grant in a subnet again", "reopen_subnet", _SUBNET),
    "subnet delete": _command("forget a subnet that is empty", "delete_subnet", _SUBNET),
    "token create": _command(
        "make a token, and print it: nobody is told again",
        "create_token",
        "NAME",
        options={
            "cluster": Option("", "the cluster that it speaks for; else the one that it first speaks for"),
            "admin": Option("no", "let it manage the ledger instead", ("yes", "no")),
        },
    ),
    "token list": _command("show all tokens", "list_tokens"),
    "token revoke": _command("end a token", "revoke_token", "NAME"),
    "cluster list": _command("show all clusters", "list_clusters"),
    "cluster retire": _command("take back what a destroyed cluster held", "retire_cluster", "CLUSTER"),
    "cluster confirm-loss": _command("agree that the nodes which a cluster lost are lost", "confirm_loss", "CLUSTER"),
    "history address": _command(
        "tell who held an address, down to the Pod",
        "address_history",
        "ADDRESS",
        options={"at": _AT, "cluster": _CLUSTER},
    ),
    "history node": _command("tell what a node held", "node_history", "NODE", options={"at": _AT, "cluster": _CLUSTER}),
    "history pod": _command(
        "tell what a Pod had, by its name or as NAMESPACE/NAME, also one that is gone",
        "pod_history",
        "POD",
        options={"at": _AT, "cluster": _CLUSTER},
    ),
    "backup": Command(
        sentence="copy the books into a file, also while the ledger runs",
        does="podpool.cli.commands.ledger:back_up",
        takes=("FILE",),
        options={"database": DATABASE},
    ),
    "restore": Command(
        sentence="exchange the books for a copy; the ledger recovers when it starts",
        does="podpool.cli.commands.ledger:restore",
        takes=("FILE",),
        options={"database": DATABASE},
    ),
    "check": Command(
        sentence="count everything in the books again, and tell what does not agree",
        does="podpool.cli.commands.ledger:check_books",
        options={"database": DATABASE, "file": Option("", "a copy, instead of the books themselves"), "output": OUTPUT},
    ),
    "recovery status": _command("tell whom the ledger waits for, and what must be settled", "recovery_status"),
    "recovery excuse": _command("wait for a cluster's list no longer", "excuse", "CLUSTER"),
    "recovery settle": _command(
        "give an address with two owners to one of them", "settle", _SUBNET, "ADDRESS", "CONTAINER"
    ),
}
