"""Commands that need no cluster: demo, tour, simulator, lite API server; and those about podpool itself."""

from podpool.cli.spec.components import MODES, SCARCITY_POLICIES
from podpool.cli.spec.model import Argument, Command, Example, Group, Option, Section, Type
from podpool.cli.spec.options import PRINTED, TLS, port_option

GROUPS = (
    Group(
        name="apiserver",
        summary="Run the lite API server: the Kubernetes API in one process, without a cluster.",
        section=Section.TRY,
    ),
)
SHELLS = ("bash", "zsh", "fish")


def _local(
    name: str, help_: str, default: str = "", type_: Type = Type.STRING, choices: tuple[str, ...] = ()
) -> Option:
    return Option(name, help_, default, type_, choices, env=False)


COMMANDS = (
    Command(
        name="up",
        summary="Run a demo cluster on this machine: API server, ledger, controller, nodes, Pods and dashboard.",
        description="A scenario shows how the subnet runs short, idle addresses return and more Pods fit.",
        handler="podpool.cli.commands.demo:run_demo",
        examples=(
            Example("Run the scenario", "podpool up"),
            Example("Run an empty cluster for your own Pods", "podpool up --scenario none"),
            Example("Compare with a fixed batch", "podpool up --fresh --scarcity off --mode reactive"),
        ),
        options=(
            _local("nodes", "Number of nodes.", "8", Type.INTEGER),
            _local("subnet", "CIDR of the Pods' subnet.", "10.77.0.0/24"),
            _local("batch", "Batch size B.", "16", Type.INTEGER),
            _local("mode", "What a node's request follows.", "pods", choices=MODES),
            _local("scarcity", "Policy for a subnet that runs short.", "graded", choices=SCARCITY_POLICIES),
            _local("scenario", "Scenario to run.", "full", choices=("full", "short", "none")),
            _local(
                "api",
                "API server: lite, or kube-apiserver and etcd built by 'make parts'.",
                "lite",
                choices=("lite", "real"),
            ),
            _local("database", "The ledger's database, as postgresql://USER@HOST/NAME. Default: SQLite."),
            _local("port", "First of four loopback ports.", "7780", Type.INTEGER),
            _local("home", "State directory. Default: $XDG_STATE_HOME/podpool/up."),
            _local("fresh", "Delete the state of earlier runs.", "false", Type.BOOLEAN),
            _local("once", "Exit after the scenario, with code 1 if a step failed.", "false", Type.BOOLEAN),
            _local("step", "Wait for Enter after each step.", "false", Type.BOOLEAN),
        ),
        section=Section.TRY,
    ),
    Command(
        name="tour",
        summary="Show the scaling mathematics in the terminal.",
        handler="podpool.cli.commands.demo:show_tour",
        examples=(Example("Show the tour", "podpool tour"),),
        section=Section.TRY,
    ),
    Command(
        name="sim",
        summary="Run controller, agents and ledger in the simulator, with faults, on virtual time.",
        handler="podpool.cli.commands.sim:simulate",
        examples=(
            Example("Run 200 seeds on all cores", "podpool sim --seeds 1-200"),
            Example("Run one seed and print every log line", "podpool sim --seed 7 --trace"),
        ),
        options=(
            _local("seed", "Run one seed. A failure prints its shortest scenario."),
            _local("seeds", "Run a range of seeds.", "1-100"),
            _local("profile", "Scenario profile. An unknown one lists all.", "storm"),
            _local("trace", "With --seed: print the scenario and every log line.", "false", Type.BOOLEAN),
        ),
        section=Section.TRY,
    ),
    Command(
        name="apiserver serve",
        summary="Serve the lite API server for kubectl and podpool.",
        handler="podpool.cli.commands.apiserver:serve_apiserver",
        examples=(
            Example(
                "Serve from a file and write a kubeconfig",
                "podpool apiserver serve --file cluster.db --write-kubeconfig lite.kubeconfig",
            ),
        ),
        options=(
            port_option("127.0.0.1:7782", "of the API"),
            Option("file", "SQLite file of the objects. Default: memory."),
            Option("tls", "Serve HTTPS with a self-signed certificate.", "false", Type.BOOLEAN),
            *TLS,
            Option("write-kubeconfig", "File to write the kubeconfig to. Default: print it."),
        ),
        service=True,
    ),
    Command(
        name="version",
        summary="Print the version.",
        handler="podpool.cli.commands.version:print_version",
        examples=(
            Example("Print the version", "podpool version"),
            Example("Include Python and machine", "podpool version -o wide"),
        ),
        options=PRINTED,
    ),
    Command(
        name="completion",
        summary="Print a completion script for a shell.",
        handler="podpool.cli.completion:print_script",
        examples=(
            Example("Load completion into this bash", "source <(podpool completion bash)"),
            Example("Install it for fish", "podpool completion fish > ~/.config/fish/completions/podpool.fish"),
        ),
        arguments=(Argument("SHELL", "bash, zsh or fish.", "shell", choices=SHELLS),),
    ),
)
