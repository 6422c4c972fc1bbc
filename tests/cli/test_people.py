"""What holds for every command: sentences instead of tracebacks, quick starts, colours that can be turned off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from podpool import __version__
from podpool.cli.app import run
from podpool.cli.context import on_stage
from podpool.cli.errors import Away, guarded
from podpool.cli.options import Asked
from podpool.cli.output import age
from podpool.cli.spec import Output
from podpool.core.errors import InvalidInput
from podpool.lab.demo.cluster import alone
from podpool.lab.demo.settings import DemoSettings, Home
from podpool.runtime.transport import Unreachable

BIN = Path(sys.executable).parent
CLUSTER_COMMANDS = ("status", "subnets", "nodes", "pods", "slices", "who", "why", "watch", "audit", "history pod")
NOBODY = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u"}]}


class Done(NamedTuple):
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


Typed = Callable[..., Done]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Type a command, as somebody whose terminal is a pipe."""
    monkeypatch.setenv("COLUMNS", "200")

    def type_(*words: str, name: str = "podpool") -> Done:
        with pytest.raises(SystemExit) as ended:
            run(words, name=name)
        told = capsys.readouterr()
        return Done(int(ended.value.code or 0), told.out, told.err)

    return type_


@pytest.fixture
def nobody(tmp_path: Path) -> str:
    """A kubeconfig that leads to where nobody answers."""
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    path = tmp_path / "nobody.json"
    path.write_text(json.dumps(NOBODY | {"contexts": [context], "current-context": "x"}))
    return str(path)


def test_an_api_server_that_is_away_is_one_sentence(typed: Typed, nobody: str) -> None:
    done = typed("nodes", "--kubeconfig", nobody)
    assert (3, "") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert line.startswith("podpool: the API server at http://127.0.0.1:1 cannot be reached")
    assert "`podpool subnets`" in line


def test_where_it_happened_is_shown_when_asked_for(nobody: str) -> None:
    with pytest.raises(Away):
        run(["nodes", "--kubeconfig", nobody, "--debug"], name="podpool")


def test_bad_input_names_the_field_and_the_fix(typed: Typed, nobody: str) -> None:
    done = typed("nodes", "--kubeconfig", "/nowhere")
    assert (2, "podpool: kubeconfig '/nowhere'") == (done.returncode, done.stderr[:30])
    assert "--kubeconfig" in done.stderr
    done = typed("nodes", "--kubeconfig", nobody, "--context", "y")
    assert (2, "podpool: context 'y'") == (done.returncode, done.stderr[:20])
    done = typed("audit", "--settle", "soon", "--kubeconfig", nobody)
    assert "podpool: --settle 'soon': not a duration: write it as" in done.stderr
    assert 2 == typed("nodes", "-o", "text").returncode


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InvalidInput("--at", "x", "no moment"), 2, "podpool: --at 'x': no moment"),
        (Unreachable("the ledger", "refused"), 3, "podpool: the ledger cannot be reached: refused"),
        (ExceptionGroup("of tasks", [InvalidInput("--at", "x", "no moment")]), 2, "podpool: --at 'x': no moment"),
        (PermissionError(13, "Permission denied", "/etc/key"), 3, "podpool: /etc/key: Permission denied"),
        (KeyError("x"), 3, "podpool: this should not happen (KeyError: 'x'): run it again with --debug"),
    ],
)
def test_every_mishap_is_a_sentence(
    error: Exception, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        guarded(fail, words=["nodes"])
    assert code == ended.value.code
    assert capsys.readouterr().err.startswith(words)
    with pytest.raises(type(error)):
        guarded(fail, words=["nodes", "--debug"])


def test_kubectl_users_find_it_under_their_own_name(typed: Typed) -> None:
    assert "Usage: kubectl podpool [OPTIONS] COMMAND" in typed("--help", name="kubectl podpool").stdout
    done = subprocess.run([BIN / "kubectl-podpool", "version"], check=True, capture_output=True, text=True)
    assert f"podpool {__version__}" == done.stdout.strip()


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_every_command_tells_its_exit_codes_and_options(typed: Typed, command: str) -> None:
    done = typed(*command.split(), "--help")
    assert "Exit codes: 0" in done.stdout
    for option in ("--kubeconfig", "--context", "--ledger", "--output", "-o", "--no-color", "--debug"):
        assert option in done.stdout, option


def test_the_version_is_told_without_loading_the_world(typed: Typed) -> None:
    look = "import sys; from podpool.cli.app import run\ntry: run(['version'], name='podpool')\nfinally: "
    look += "print([each for each in ('aiohttp', 'sqlite3', 'podpool.inspect', 'podpool.ledger', 'podpool.lab.sim', "
    look += "'podpool.kube', 'podpool.controller', 'podpool.api') if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert [f"podpool {__version__}", "[]"] == done.stdout.splitlines()
    assert __version__ == json.loads(typed("version", "-o", "json").stdout)["version"]


def test_manifests_are_made_to_be_applied_and_told_in_other_ways_too(typed: Typed) -> None:
    documents = typed("crds").stdout.split("---\n")[1:]
    names = [msgspec.yaml.decode(each)["metadata"]["name"] for each in documents]
    assert "nodenetworkconfigs.acn.azure.com" in names
    assert names == [each["metadata"]["name"] for each in json.loads(typed("crds", "-o", "json").stdout)["items"]]
    assert names == [line.split()[-1] for line in typed("crds", "-o", "table").stdout.splitlines()[1:]]
    assert "ServiceAccount" in typed("access", "-o", "wide").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(typed: Typed, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    assert "_PODPOOL_COMPLETE" in typed("completion", shell).stdout
    so_far = {"COMP_WORDS": "podpool sta", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "podpool sta"}
    asking = {"_PODPOOL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args", **so_far}
    for name, value in asking.items():
        monkeypatch.setenv(name, value)
    assert "status" in typed().stdout


def test_colours_are_for_terminals_and_can_be_turned_off(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, nobody: str
) -> None:
    words = ("status", "--kubeconfig", nobody, "--ledger", "none")
    done = typed(*words)
    assert (3, False) == (done.returncode, "\x1b" in done.stdout + done.stderr)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in typed(*words).stdout
    assert "\x1b" not in typed(*words, "--no-color").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in typed(*words).stdout


class TestOnStage:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        home = Home(tmp_path / "podpool" / "up")
        home.set(DemoSettings(port=17780), fresh=False)
        home.file("kubeconfig").touch()
        return home

    def test_while_up_runs_its_parts_are_asked(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        with alone(home):
            found = on_stage(Asked())
            assert "http://127.0.0.1:17780" == found.ledger
            assert str(home.path / "kubeconfig") == found.kubeconfig
            assert str(home.path / "ledger.db.admin-token") == found.ledger_token_file
            monkeypatch.setenv("KUBECONFIG", str(home.path / "kubeconfig"))
            assert found == on_stage(Asked())

    def test_what_was_named_is_taken(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        with alone(home):
            for asked in (Asked(context="prod"), Asked(ledger="http://elsewhere"), Asked(kubeconfig="/etc/kubeconfig")):
                assert asked == on_stage(asked)
            monkeypatch.setenv("KUBECONFIG", "/etc/other")
            assert Asked() == on_stage(Asked())

    def test_when_it_does_not_run_nothing_changes(self, home: Home) -> None:
        assert home.path.exists()
        assert Asked(output=Output.JSON) == on_stage(Asked(output=Output.JSON))


@pytest.mark.parametrize(
    ("moment", "told"),
    [("1970-01-01T00:00:00Z", "1000s"), ("1970-01-01T00:16:00Z", "40s"), ("", ""), ("soon", "")],
)
def test_how_long_ago(moment: str, told: str) -> None:
    assert told.replace("1000s", "16m") == age(moment, at=1000.0)
