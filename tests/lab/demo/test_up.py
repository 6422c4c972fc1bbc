"""`podpool up` as a process: output, state between runs, and errors."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from podpool.cli.main import main
from podpool.lab.demo.run import PRESS_ENTER
from podpool.lab.demo.scenario import STEPS
from tests.lab.apiserver.processes import Kubectl
from tests.lab.demo.demo_process import PODPOOL, DemoProcess
from tests.lab.demo.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from parts.postgres import Postgres

SMALL = ("--nodes", "3", "--subnet", "10.77.0.0/25")
EMPTY = "No scenario."
WITHOUT_ZIG = """
import sys
sys.modules["ziglang"] = None
from podpool.__main__ import main
main()
"""
"""podpool on a machine without ziglang."""


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[DemoProcess]:
    """A demo that must leave no process."""
    demo = DemoProcess(tmp_path / "up")
    yield demo
    assert [] == demo.processes()


def step_output(step: str, output: str) -> str:
    """Return what was printed for a step."""
    text = output.partition(f": {step}: ")[2]
    return re.split(r"^Step [0-9] of [0-9]: ", text, maxsplit=1, flags=re.MULTILINE)[0]


def check_finished(code: int, output: str, expected: Mapping[str, str]) -> None:
    """Assert that the scenario finished with clean audits, and that steps printed the expected texts."""
    assert 0 == code, output
    assert len(STEPS) == output.count("audit: No violations in"), output
    for step, text in expected.items():
        assert re.search(text, step_output(step, output)), output
    assert "FAILED" not in output
    assert "Try next" in output


@pytest.mark.integration
class TestOptions:
    """The scenario with other settings: it finishes, and every audit is clean."""

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (
                ("--mode", "reactive", "--nodes", "2", "--subnet", "10.90.0.0/26", "--batch", "8"),
                {"Burst": r"with ([2-9]|[1-9][0-9]) requests", "Growth": r"with B=8 on every node"},
            ),
            (
                ("--mode", "idempotent", "--scarcity", "exhaustion"),
                {"Burst": r"with ([2-9]|[1-9][0-9]) requests", "Scarcity": r"Pods run instead of [0-9]+"},
            ),
            (("--scarcity", "off"), {"Scarcity": r"no address returns: [0-9]+ Pods run, [1-9][0-9]* wait while"}),
        ],
        ids=["reactive-small", "idempotent-exhaustion", "scarcity-off"],
    )
    def test_it_finishes(self, demo: DemoProcess, words: tuple[str, ...], expected: Mapping[str, str]) -> None:
        code, output = demo.run(*SMALL, *words, "--scenario", "short", "--once")
        check_finished(code, output, expected)

    def test_without_a_compiler_the_python_plugin_is_used(self, tmp_path: Path) -> None:
        program = (sys.executable, "-c", WITHOUT_ZIG)
        bare = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        demo = DemoProcess(tmp_path / "up", program=program, env=bare)
        demo.start(*SMALL, "--scenario", "short", "--step", until=PRESS_ENTER)
        assert "no compiler can build the CNI plugin" in demo.output
        assert "using the plugin in Python, which is slower" in demo.output
        assert (demo.home / "bin" / "podpool").read_bytes().startswith(b"#!")
        assert "every Pod has an address" in step_output("Steady state", demo.output)
        assert 9 == demo.audit()["pods"]
        assert 0 == demo.stop(), demo.output


@pytest.mark.integration
def test_the_next_run_continues_with_the_next_step_unless_it_is_fresh(demo: DemoProcess) -> None:
    words = (*SMALL, "--scenario", "short", "--step")
    demo.start(*words, until=PRESS_ENTER)
    assert 0 == demo.stop(), demo.output
    demo.start(*words, until=PRESS_ENTER)
    assert "is running again" in demo.output
    assert "Step 1 of" not in demo.output
    assert "Step 2 of" in demo.output
    assert 0 == demo.stop(), demo.output
    demo.start(*words, "--fresh", until=PRESS_ENTER)
    assert "Step 1 of" in demo.output
    assert 9 == demo.audit()["pods"]
    assert 0 == demo.stop(), demo.output


@pytest.mark.integration
def test_after_the_scenario_the_next_run_changes_nothing(demo: DemoProcess) -> None:
    words = ("--nodes", "1", "--subnet", "10.77.0.0/25", "--scenario", "short")
    code, output = demo.run(*words, "--once")
    check_finished(code, output, {"Node loss": r"there is only one node, so none is destroyed"})
    demo.start(*words, until="--fresh runs it again")
    assert "is running again" in demo.output
    assert "Step " not in demo.output
    assert 0 == demo.stop(), demo.output


@pytest.mark.integration
def test_ctrl_c_during_a_step_leaves_no_process_and_the_step_is_repeated(demo: DemoProcess) -> None:
    demo.start(*SMALL, "--scenario", "full", until="Step 1 of")
    assert 0 == demo.stop(), demo.output
    assert [] == demo.processes()
    assert "continues from it" in demo.output
    assert "Traceback" not in demo.output
    demo.start(*SMALL, "--scenario", "short", until="Step 1 of")
    assert 0 == demo.stop(), demo.output


@pytest.mark.real
def test_in_a_terminal_there_is_a_table_and_ctrl_c_stops_it(demo: DemoProcess) -> None:
    with Terminal([*demo.command, *SMALL, "--scenario", "none"]) as terminal:
        terminal.until_shown(
            EMPTY, "dashboard: http://", "export KUBECONFIG=", "requested", "node-3", "0 Pods run, 0 wait"
        )
        terminal.type("\x03")
        assert 0 == terminal.ends(), terminal.shown
    assert "Stopped. The state is kept" in terminal.shown


@pytest.mark.real
class TestWithoutScenario:
    def test_kubectl_works_and_a_second_run_continues(self, demo: DemoProcess, tmp_path: Path) -> None:
        demo.start(*SMALL, "--scenario", "none", until=EMPTY)
        kubectl = Kubectl(demo.kubeconfig, tmp_path / "kubectl", "default")
        assert 3 == kubectl.run("get", "nodes").count("Ready")
        for name in ("one", "two"):
            assert "created" in kubectl.run("run", name, "--image=none.invalid/none")
        until(lambda: 2 == kubectl.run("get", "pods").count("Running"), "both run")
        where = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP};{end}"
        before = kubectl.run("get", "pods", "-o", where)
        assert 2 == before.count("10.77.0.")
        assert 0 == demo.stop(), demo.output
        assert "continues from it" in demo.output
        assert [] == demo.processes()

        demo.start(*SMALL, "--scenario", "none", until=EMPTY)
        assert "is running again" in demo.output
        assert before == kubectl.run("get", "pods", "-o", where)
        assert "deleted" in kubectl.run("delete", "pod", "one")
        assert "two" in kubectl.run("get", "pods")
        assert 0 == demo.stop(signal.SIGTERM), demo.output
        assert demo.output.startswith("starting lite API server")
        assert "stopping" in demo.output

    def test_kubectl_describes_nodes_and_why_pods_wait(self, demo: DemoProcess, tmp_path: Path) -> None:
        demo.start("--nodes", "1", "--subnet", "10.77.0.0/28", "--scenario", "none", until=EMPTY)
        kubectl = Kubectl(demo.kubeconfig, tmp_path / "kubectl", "default")
        node = kubectl.run("describe", "node", "node-1")
        assert re.search(r"HolderIdentity: +node-1", node), node
        assert re.search(r"pods: +250", node), node
        assert not re.search(r"-[0-9]{9}|0001|Failed", node), node
        for number in range(14):  # more than there are addresses
            kubectl.run("run", f"many-{number}", "--image=none.invalid/none")
        until(lambda: "FailedCreatePodSandBox" in kubectl.run("get", "events"), "an Event has the reason")
        kubectl.run("cordon", "node-1")
        kubectl.run("run", "late", "--image=none.invalid/none")
        until(
            lambda: "FailedScheduling" in kubectl.run("describe", "pod", "late"),
            "an Event says that no node is schedulable",
        )
        kubectl.run("uncordon", "node-1")
        until(lambda: "node-1/" in kubectl.run("describe", "pod", "late"), "it is bound")
        assert 0 == demo.stop(), demo.output

    @pytest.mark.xdist_group("postgres")
    def test_with_kube_apiserver_and_postgresql(self, demo: DemoProcess, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE demo")
        words = ("--api", "real", "--database", postgres.url("demo"), "--scenario", "short", "--once")
        code, output = demo.run(*SMALL, *words)
        assert 0 == code, output
        assert len(STEPS) == output.count("audit: No violations in"), output

    @pytest.mark.xdist_group("postgres")
    def test_a_fresh_run_reuses_the_database(self, demo: DemoProcess, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE again")
        for _ in range(2):
            words = ("--database", postgres.url("again"), "--scenario", "none", "--once", "--fresh")
            code, output = demo.run(*SMALL, *words)
            assert 0 == code, output

    def test_when_it_is_killed_its_processes_stop(self, demo: DemoProcess) -> None:
        demo.start(*SMALL, "--scenario", "none", until=EMPTY)
        demo.stop(signal.SIGKILL)
        until(lambda: not demo.processes(), "no process is left")


class TestErrors:
    @pytest.mark.real
    def test_a_directory_without_write_permission(self, tmp_path: Path) -> None:
        """Without capabilities, which nothing here needs, in a directory of another user."""
        tmp_path.chmod(0o555)
        bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
        demo = DemoProcess(tmp_path / "up", program=(*bare, *PODPOOL))
        code, output = demo.run("--scenario", "none")
        tmp_path.chmod(0o755)
        assert 2 == code
        assert output.strip().endswith("cannot be used (Permission denied): name a directory that you own")

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (("--nodes", "0"), "must be from 1 to 50"),
            (("--subnet", "10.0.0.0/33"), "write it as 10.77.0.0/24"),
            (("--subnet", "10.0.0.0/30"), "must be from /16 to /28"),
            (("--subnet", "10.0.0.0/26"), "has 49 addresses for Pods with 8 nodes, but 59 are needed"),
            (
                ("--nodes", "9", "--subnet", "10.0.0.0/28", "--scenario", "none"),
                "use a larger subnet, or fewer --nodes",
            ),
            (("--batch", "0"), "must be from 1 to 256"),
            (("--mode", "magic"), "reactive, idempotent, pods"),
            (("--scarcity", "some"), "off, exhaustion, graded"),
            (("--scenario", "sad"), "full, short, none"),
            (("--api", "mine"), "lite, real"),
            (("--database", "mysql://me:s3cret@host/ledger"), "'mysql://me@host/ledger': use postgresql://"),
        ],
    )
    def test_an_invalid_value(self, words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stopped:
            main(["up", *words])
        assert 2 == stopped.value.code
        assert error in capsys.readouterr().err

    @pytest.mark.integration
    def test_another_subnet_than_before_and_a_second_demo(self, demo: DemoProcess) -> None:
        demo.start(*SMALL, "--scenario", "none", until=EMPTY)
        assert "already runs" in demo.run("--scenario", "none")[1]
        demo.stop()
        code, output = demo.run("--subnet", "10.78.0.0/24")
        assert 2 == code
        assert "was created with 10.77.0.0/25" in output
        assert "--fresh" in output
