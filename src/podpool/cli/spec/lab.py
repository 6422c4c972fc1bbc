"""Commands that need no cluster: demo, tour, simulator, lite API server; and those about podpool itself."""

from podpool.cli.spec.components import MODE_HELP, MODES, SCARCITY_HELP, SCARCITY_POLICIES
from podpool.cli.spec.model import Argument, Example, Group, Option, Section, Type, command
from podpool.cli.spec.options import PRINTED, TLS, local, port_option

_LITE = "Run the lite API server: the Kubernetes API in one process, without a cluster."
GROUPS = (Group("apiserver", _LITE, Section.TRY),)
SHELLS = ("bash", "zsh", "fish")

COMMANDS = (
    command(
        "up",
        "Run a demo cluster on this machine: API server, ledger, controller, nodes, Pods and dashboard.",
        "demo:run_demo",
        Example("Run the scenario", ""),
        Example("Run an empty cluster for your own Pods", "--scenario none"),
        Example("Compare with a fixed batch", "--fresh --scarcity off --mode reactive"),
        local("nodes", "Number of nodes.", "8", Type.INTEGER),
        local("subnet", "CIDR of the Pods' subnet.", "10.77.0.0/24"),
        local("batch", "Batch: each node holds a multiple of this many addresses, 1 to 256.", "16", Type.INTEGER),
        local("mode", MODE_HELP, "pods", choices=MODES),
        local("scarcity", SCARCITY_HELP, "graded", choices=SCARCITY_POLICIES),
        local("scenario", "Scenario to run.", "full", choices=("full", "short", "none")),
        local(
            "api",
            "API server: lite, or kube-apiserver and etcd built by 'make parts'.",
            "lite",
            choices=("lite", "real"),
        ),
        local("database", "The ledger's database, as postgresql://USER@HOST/NAME. Default: SQLite."),
        local(
            "port",
            "First of four consecutive TCP ports on 127.0.0.1: ledger, dashboard, API server and controller.",
            "7780",
            Type.INTEGER,
        ),
        local("home", "State directory. Default: $XDG_STATE_HOME/podpool/up."),
        local("fresh", "Delete the state of earlier runs.", "false", Type.BOOLEAN),
        local("once", "Exit after the scenario, with code 1 if a step failed.", "false", Type.BOOLEAN),
        local("step", "Wait for Enter after each step.", "false", Type.BOOLEAN),
        description="A scenario shows how the subnet is exhausted, idle addresses return and more Pods fit.",
        section=Section.TRY,
    ),
    command(
        "tour",
        "Show with examples how batch, buffer and exhaustion determine the size of a pool. Needs no cluster.",
        "demo:show_tour",
        Example("Show the tour", ""),
        section=Section.TRY,
    ),
    command(
        "sim",
        "Test controller, agents and ledger in the simulator: faults on virtual time, invariants checked throughout.",
        "sim:simulate",
        Example("Run 200 seeds on all cores", "--seeds 1-200"),
        Example("Run one seed and print every log line", "--seed 7 --trace"),
        local("seed", "Run only this seed. A failure prints its shortest scenario."),
        local("seeds", "Run a range of seeds.", "1-100"),
        local("profile", "Scenario profile; docs/simulator.md describes them.", "storm"),
        local("trace", "With --seed: print the scenario and every log line.", "false", Type.BOOLEAN),
        section=Section.TRY,
    ),
    command(
        "apiserver serve",
        "Serve the lite API server: a small Kubernetes API for tests and demos. Not for production.",
        "apiserver:serve_apiserver",
        Example("Serve from a file and write a kubeconfig", "--file cluster.db --write-kubeconfig lite.kubeconfig"),
        port_option("127.0.0.1:7782", "of the API"),
        Option("file", "SQLite file of the objects. Default: memory."),
        Option("tls", "Serve HTTPS with a self-signed certificate.", "false", Type.BOOLEAN),
        *TLS,
        Option("write-kubeconfig", "File to write the kubeconfig to. Default: print it."),
        service=True,
    ),
    command(
        "version",
        "Print the version.",
        "version:print_version",
        Example("Print the version", ""),
        Example("Include Python and machine", "-o wide"),
        *PRINTED,
    ),
    command(
        "completion",
        "Print a completion script for a shell.",
        "podpool.cli.completion:print_script",
        Example("Load completion into this bash", "source <(podpool completion bash)"),
        Example("Install it for fish", "fish > ~/.config/fish/completions/podpool.fish"),
        Argument("SHELL", "bash, zsh or fish.", "shell", choices=SHELLS),
    ),
)
