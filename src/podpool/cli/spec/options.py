"""Options that several commands share."""

from podpool.cli.spec.model import Argument, Option, Output, Type
from podpool.runtime.logging import FORMATS

LEDGER_URL = "http://127.0.0.1:7780"
NO_LEDGER = "none"
"""The value of --ledger for a cluster without a ledger: slices and shared ranges only."""
ADMIN_TOKEN_FILE = "/var/lib/podpool/ledger.db.admin-token"  # noqa: S105  a path, not a secret


def exit_codes(failed: str = "") -> str:
    """Return the last paragraph of a command's help; `failed` is what exit code 1 means, if the command has it."""
    unreachable = "3 the API server or the ledger is unreachable or failed, so the result is missing or incomplete"
    codes = ("0 success", f"1 {failed}" if failed else "", "2 invalid argument or file", unreachable)
    return f"Exit codes: {'; '.join(filter(None, codes))}."


EXIT_CODES = exit_codes("the check failed, the request was refused, or a named object does not exist")
"""Of all commands."""
REFUSED = exit_codes("the ledger refused the request")

DEBUG = Option("debug", "Print a traceback when the command fails.", "false", Type.BOOLEAN)
CONFIG = Option("config", "TOML file that sets options of this command.")
LOG_LEVEL = Option("log-level", "Lowest level to log.", "info", choices=("debug", "info", "warning", "error"))
LOG_FORMAT = Option("log-format", "Log format. auto is text on a terminal and JSON otherwise.", "auto", choices=FORMATS)

KUBECONFIG = Option(
    "kubeconfig", "Path to the kubeconfig. Default: $KUBECONFIG, the Pod's service account, then ~/.kube/config."
)
CONTEXT = Option("context", "Context of the kubeconfig. Default: the current context.")
_LEDGER = "URL of the ledger, the service that grants the addresses of subnets to nodes"
LEDGER = Option("ledger", f"{_LEDGER} (`podpool ledger serve`).", LEDGER_URL)
OPTIONAL_LEDGER = Option("ledger", f"{_LEDGER}; 'none' for a cluster that has secondary networks only.", LEDGER_URL)
DETECTED_LEDGER = Option(
    "ledger",
    f"{_LEDGER}; 'none' for a cluster without one. If neither this nor --ledger-token-file is set, a cluster that "
    "has secondary networks only counts as one without.",
    LEDGER_URL,
)
LEDGER_TOKEN_FILE = Option(
    "ledger-token-file",
    "File with the token that is sent to the ledger. Default: the admin token that a ledger on this machine creates.",
    ADMIN_TOKEN_FILE,
)
LEDGER_CA_FILE = Option("ledger-ca-file", "PEM file with the CA of the ledger's certificate.")
LEDGER_SERVER_NAME = Option("ledger-server-name", "Name in the ledger's certificate. Default: the host of --ledger.")
LEDGER_CLIENT_CERT = Option(
    "ledger-client-cert",
    "PEM file with a client certificate and its key, for a ledger with --tls-client-ca.",
)
OUTPUT = Option("output", "Output format.", Output.TABLE, choices=tuple(Output), short="-o")
MANIFEST_OUTPUT = Option("output", "Output format.", Output.YAML, choices=(Output.YAML, Output.JSON), short="-o")
NO_COLOR = Option(
    "no-color", "Print without colors. The variable NO_COLOR has the same effect.", "false", Type.BOOLEAN, env=False
)
PRINTED = (OUTPUT, NO_COLOR)
LEDGER_CONNECTION = (LEDGER, LEDGER_TOKEN_FILE, LEDGER_CA_FILE, LEDGER_SERVER_NAME, LEDGER_CLIENT_CERT)
CLUSTER = (KUBECONFIG, CONTEXT, DETECTED_LEDGER, *LEDGER_CONNECTION[1:], *PRINTED)
"""Options of every command that inspects a cluster."""

SETTINGS = Option(
    "settings",
    "Settings that differ from the defaults, such as batch=8,buffer=0.25,shrink_hold=1m; docs/settings.md lists them.",
)
TLS = (
    Option("tls-cert", "Serve HTTPS with this certificate (PEM file)."),
    Option("tls-key", "Private key of the certificate (PEM file)."),
)
WHEREABOUTS_NAMESPACE = Option(
    "whereabouts-namespace", "Namespace of IPPools, NodeSlicePools and their Leases.", "kube-system"
)
FLAT_FILE = Option("flat-file", "Whereabouts' whereabouts.conf, a copy of the file on the nodes.")
AT = Option("at", "Show only what was held at this time, such as 2026-11-16T02:30:00Z. Default: any time.", env=False)
NAMESPACE = Option("namespace", "Namespace of the Pod. Default: the context's.", short="-n", env=False)
WAITING = Option("waiting", "List only Pods that wait for an address.", "false", Type.BOOLEAN, env=False)
ADDRESS = Argument("ADDRESS", "IPv4 or IPv6 address.", "address")
NODE = Argument("NODE", "Name of the Node.", "node")
POD = Argument("POD", "Name of the Pod, or NAMESPACE/NAME.", "pod")


def local(name: str, help_: str, default: str = "", type_: Type = Type.STRING, choices: tuple[str, ...] = ()) -> Option:
    """Return an option that is set on the command line only."""
    return Option(name, help_, default, type_, choices, env=False)


def port_option(default: str, what: str) -> Option:
    """Return the option `--listen`."""
    return Option("listen", f"Address and port {what}.", default)
