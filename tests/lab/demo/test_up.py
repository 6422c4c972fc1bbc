"""`podpool up` as a process: what a stranger sees, what stays, and what is said when it cannot be."""

from __future__ import annotations

import re
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from podpool.lab.demo.run import GO_ON
from podpool.lab.demo.scenario import ACTS
from tests.lab.apiserver.processes import Kubectl
from tests.lab.demo.evenings import PODPOOL, Evening
from tests.lab.demo.terminals import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.postgres import Postgres

SMALL = ("--nodes", "3", "--subnet", "10.77.0.0/25")
YOURS = "the stage is yours"
WITHOUT_ZIG = """
import sys
sys.modules["ziglang"] = None
from podpool.__main__ import main
main()
"""
"""podpool, on a machine that has no such package."""


@pytest.fixture
def evening(tmp_path: Path) -> Iterator[Evening]:
    """A stage that leaves nothing behind."""
    evening = Evening(tmp_path / "up")
    yield evening
    assert [] == evening.left_over()


def said_of(act: str, said: str) -> str:
    """What was told of an act."""
    return re.split(r"^Act [0-9] of [0-9]: ", said.partition(f": {act}: ")[2], maxsplit=1, flags=re.MULTILINE)[0]


class TestOtherWays:
    """The story with other settings and older ways: it comes to its end, and every audit is clean."""

    @pytest.mark.parametrize(
        ("words", "act", "told"),
        [
            (("--mode", "reactive"), "A burst", r"asked for in [2-9] steps"),
            (("--mode", "idempotent"), "A burst", r"asked for in ([2-9]|[1-9][0-9]) steps"),
            (("--scarcity", "off"), "Scarcity", r"nothing is given back: [0-9]+ Pods run, and [1-9][0-9]* wait beside"),
            (("--scarcity", "exhaustion"), "Scarcity", r"Pods run where [0-9]+ did"),
            (("--nodes", "2", "--subnet", "10.90.0.0/26", "--batch", "8"), "Growth", r"with B=8 for every node"),
            (("--nodes", "1"), "A node dies", r"there is only one node, so none is lost"),
        ],
        ids=lambda words: "-".join(words).replace("--", "") if isinstance(words, tuple) else "",
    )
    def test_it_is_played(self, evening: Evening, words: tuple[str, ...], act: str, told: str) -> None:
        code, said = evening.ask(*SMALL, *words, "--story", "short", "--once")
        assert 0 == code, said
        assert len(ACTS) == said.count("audit: Nothing is wrong among"), said
        assert re.search(told, said_of(act, said)), said
        assert "WRONG" not in said
        assert "Try next" in said

    def test_without_a_compiler_the_plugin_in_python_connects_pods(self, tmp_path: Path) -> None:
        program = (sys.executable, "-c", WITHOUT_ZIG)
        bare = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        evening = Evening(tmp_path / "up", program=program, env=bare)
        evening.open(*SMALL, "--story", "short", "--step", until_said=GO_ON)
        assert "no compiler makes the CNI plugin" in evening.said
        assert "until then Pods are connected by the plugin in Python, which is slower" in evening.said
        assert (evening.home / "bin" / "podpool").read_bytes().startswith(b"#!")
        assert "every Pod has its address" in said_of("A quiet start", evening.said)
        assert 9 == evening.audit()["pods"]
        assert 0 == evening.close(), evening.said


def test_the_next_start_goes_on_with_the_next_act_unless_it_is_fresh(evening: Evening) -> None:
    words = (*SMALL, "--story", "short", "--step")
    evening.open(*words, until_said=GO_ON)
    assert 0 == evening.close(), evening.said
    evening.open(*words, until_said=GO_ON)
    assert "ready again after" in evening.said
    assert "Act 1 of" not in evening.said
    assert "Act 2 of" in evening.said
    assert 0 == evening.close(), evening.said
    evening.open(*words, "--fresh", until_said=GO_ON)
    assert "Act 1 of" in evening.said
    assert 9 == evening.audit()["pods"]
    assert 0 == evening.close(), evening.said


def test_after_the_story_the_next_start_leaves_the_stage_as_it_was(evening: Evening) -> None:
    words = ("--nodes", "1", "--subnet", "10.77.0.0/25", "--story", "short")
    assert 0 == evening.ask(*words, "--once")[0]
    evening.open(*words, until_said="--fresh plays it again")
    assert "ready again after" in evening.said
    assert "Act " not in evening.said
    assert 0 == evening.close(), evening.said


def test_ctrl_c_in_the_middle_of_an_act_leaves_nothing_and_the_act_is_played_again(evening: Evening) -> None:
    evening.open(*SMALL, "--story", "full", until_said="Act 1 of")
    assert 0 == evening.close(), evening.said
    assert [] == evening.left_over()
    assert "goes on with it" in evening.said
    assert "Traceback" not in evening.said
    evening.open(*SMALL, "--story", "short", until_said="Act 1 of")
    assert 0 == evening.close(), evening.said


@pytest.mark.real
def test_in_a_terminal_there_is_a_table_and_ctrl_c_is_typed(evening: Evening) -> None:
    with Terminal([*evening.words, *SMALL, "--story", "none"]) as terminal:
        terminal.until_shown(
            YOURS, "the page: http://", "export KUBECONFIG=", "asked for", "node-3", "0 Pods run, 0 wait"
        )
        terminal.type("\x03")
        assert 0 == terminal.ends(), terminal.shown
    assert "Stopped. What there was is kept" in terminal.shown


@pytest.mark.real
class TestTheStageIsYours:
    def test_kubectl_works_and_a_second_start_goes_on(self, evening: Evening, tmp_path: Path) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        kubectl = Kubectl(evening.kubeconfig, tmp_path / "kubectl", "default")
        assert 3 == kubectl.say("get", "nodes").count("Ready")
        for name in ("one", "two"):
            assert "created" in kubectl.say("run", name, "--image=none.invalid/none")
        until(lambda: 2 == kubectl.say("get", "pods").count("Running"), "both run")
        where = "jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP};{end}"
        before = kubectl.say("get", "pods", "-o", where)
        assert 2 == before.count("10.77.0.")
        assert 0 == evening.close(), evening.said
        assert "goes on with it" in evening.said
        assert [] == evening.left_over()

        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        assert "ready again" in evening.said
        assert before == kubectl.say("get", "pods", "-o", where)
        assert "deleted" in kubectl.say("delete", "pod", "one")
        assert "two" in kubectl.say("get", "pods")
        assert 0 == evening.close(signal.SIGTERM), evening.said
        assert evening.said.startswith("starting an API server")
        assert "stopping" in evening.said

    def test_kubectl_describes_nodes_and_why_pods_wait(self, evening: Evening, tmp_path: Path) -> None:
        evening.open("--nodes", "1", "--subnet", "10.77.0.0/28", "--story", "none", until_said=YOURS)
        kubectl = Kubectl(evening.kubeconfig, tmp_path / "kubectl", "default")
        node = kubectl.say("describe", "node", "node-1")
        assert re.search(r"HolderIdentity: +node-1", node), node
        assert re.search(r"pods: +250", node), node
        assert not re.search(r"-[0-9]{9}|0001|Failed", node), node
        for number in range(14):  # more than there are addresses
            kubectl.say("run", f"many-{number}", "--image=none.invalid/none")
        until(lambda: "FailedCreatePodSandBox" in kubectl.say("get", "events"), "a Pod is told why it waits")
        kubectl.say("cordon", "node-1")
        kubectl.say("run", "late", "--image=none.invalid/none")
        until(lambda: "FailedScheduling" in kubectl.say("describe", "pod", "late"), "it is told that no node takes it")
        kubectl.say("uncordon", "node-1")
        until(lambda: "node-1/" in kubectl.say("describe", "pod", "late"), "it is placed")
        assert 0 == evening.close(), evening.said

    @pytest.mark.xdist_group("postgres")
    def test_a_real_api_server_and_a_real_postgresql_do_as_well(self, evening: Evening, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE stage")
        words = ("--api", "real", "--database", postgres.url("stage"), "--story", "short", "--once")
        code, said = evening.ask(*SMALL, *words)
        assert 0 == code, said
        assert len(ACTS) == said.count("audit: Nothing is wrong among"), said

    @pytest.mark.xdist_group("postgres")
    def test_a_fresh_start_takes_the_database_of_an_earlier_one(self, evening: Evening, postgres: Postgres) -> None:
        postgres.psql("CREATE DATABASE again")
        for _ in range(2):
            words = ("--database", postgres.url("again"), "--story", "none", "--once", "--fresh")
            code, said = evening.ask(*SMALL, *words)
            assert 0 == code, said

    def test_when_it_is_killed_its_parts_end(self, evening: Evening) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        evening.close(signal.SIGKILL)
        until(lambda: not evening.left_over(), "nothing is left")


class TestSentences:
    @pytest.mark.real
    def test_a_place_that_only_root_may_write(self, tmp_path: Path) -> None:
        """Without rights on the machine, which nothing here needs, and in a directory of somebody else."""
        tmp_path.chmod(0o555)
        bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
        evening = Evening(tmp_path / "up", program=(*bare, *PODPOOL))
        code, said = evening.ask("--story", "none")
        tmp_path.chmod(0o755)
        assert (2, "cannot be used (Permission denied): name a directory of your own") == (code, said.strip()[-64:])

    def test_a_port_that_is_taken(self, evening: Evening) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", evening.port + 2))
            taken.listen()
            code, said = evening.ask("--story", "none")
        assert 3 == code
        assert f"port {evening.port + 2}, for the API server, is in use" in said
        assert "--port" in said

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (("--nodes", "0"), "must be from 1 to 50"),
            (("--subnet", "10.0.0.0/33"), "write it as 10.77.0.0/24"),
            (("--subnet", "10.0.0.0/30"), "must be from /16 to /28"),
            (("--subnet", "10.0.0.0/26"), "has 49 addresses for Pods beside what 8 nodes need, and 59 are wanted"),
            (("--nodes", "9", "--subnet", "10.0.0.0/28", "--story", "none"), "take a larger one, or fewer --nodes"),
            (("--batch", "0"), "must be from 1 to 256"),
            (("--mode", "magic"), "reactive, idempotent, pods"),
            (("--scarcity", "some"), "off, exhaustion, graded"),
            (("--story", "sad"), "full, short, none"),
            (("--api", "mine"), "pocket, real"),
            (("--database", "mysql://me:s3cret@host/books"), "'mysql://me@host/books': is no database"),
        ],
    )
    def test_what_cannot_be_meant(self, evening: Evening, words: tuple[str, ...], sentence: str) -> None:
        code, said = evening.ask(*words)
        assert 2 == code
        assert sentence in said
        assert "Traceback" not in said

    def test_another_subnet_than_before_and_a_stage_that_is_open(self, evening: Evening) -> None:
        evening.open(*SMALL, "--story", "none", until_said=YOURS)
        assert "runs already" in evening.ask("--story", "none")[1]
        evening.close()
        code, said = evening.ask("--subnet", "10.78.0.0/24")
        assert 2 == code
        assert "was set with 10.77.0.0/25" in said
        assert "--fresh" in said
