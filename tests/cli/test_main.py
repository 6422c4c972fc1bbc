"""What holds for every command: help, exit codes, errors of one line, lazy imports, colors."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool import __version__
from podpool.cli.context import Connection, demo_connection
from podpool.cli.errors import ComponentUnreachable, report_errors
from podpool.cli.main import load, main
from podpool.cli.output import age
from podpool.cli.parser import find_command, parse
from podpool.cli.spec import COMMANDS, GROUPS, options_of
from podpool.cli.spec.model import Command, Group, Output, Session
from podpool.core.errors import InvalidInput
from podpool.lab.demo.cluster import lock_directory
from podpool.lab.demo.settings import DemoSettings, StateDirectory
from podpool.runtime.transport import Unreachable

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

BIN = Path(sys.executable).parent
UNREACHABLE = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u"}]}


@pytest.fixture
def unreachable(tmp_path: Path) -> str:
    """A kubeconfig of an API server that does not listen."""
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    path = tmp_path / "unreachable.json"
    path.write_text(json.dumps(UNREACHABLE | {"contexts": [context], "current-context": "x"}))
    return str(path)


class TestHelp:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_summary_examples_options_and_usage(self, invoke: Invoke, name: str) -> None:
        for flag in ("-h", "--help"):
            result = invoke(*name.split(), flag)
            assert (0, "") == (result.code, result.stderr)
            assert COMMANDS[name].summary[:60] in result.stdout
            assert "Examples:\n  # " in result.stdout
            assert f"Usage:\n  podpool {name}" in result.stdout
            assert all(f"{option.flag}=" in result.stdout for option in options_of(COMMANDS[name]))
            assert max(map(len, result.stdout.splitlines())) <= 120

    @pytest.mark.parametrize("name", ["", *GROUPS])
    def test_a_group_alone_prints_its_help(self, invoke: Invoke, name: str) -> None:
        bare, asked, helped = (
            invoke(*words) for words in (name.split(), [*name.split(), "--help"], ["help", *name.split()])
        )
        assert 0 == bare.code
        assert bare == asked == helped
        assert f"Usage:\n  {' '.join(['podpool', *name.split()])} COMMAND [options]" in bare.stdout

    def test_commands_that_inspect_a_cluster_state_their_exit_codes(self, invoke: Invoke) -> None:
        for command in COMMANDS.values():
            if command.session is Session.CLUSTER:
                assert "Exit codes: 0" in invoke(*command.name.split(), "--help").stdout

    def test_kubectl_users_find_it_under_their_own_name(self, invoke: Invoke) -> None:
        assert "Usage:\n  kubectl podpool COMMAND" in invoke("--help", program="kubectl podpool").stdout
        shown = invoke("pods", "--help", program="kubectl podpool").stdout
        assert "\n  kubectl podpool pods --node" in shown
        assert "\n  podpool " not in shown


class TestTable:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_example_is_a_valid_command_line(self, name: str) -> None:
        for example in COMMANDS[name].examples:
            line = example.command.removeprefix("source <(").partition("|")[0].partition(">")[0].rstrip(" )")
            program, *words = shlex.split(line)
            found, rest = find_command(words)
            assert ("podpool", COMMANDS[name]) == (program, found)
            parse(COMMANDS[name], [word for word in rest if "config" not in word and ".toml" not in word], {})

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_handler_exists_and_takes_what_the_command_has(self, name: str) -> None:
        command = COMMANDS[name]
        code = load(command.handler).__code__
        taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        any_name = bool(code.co_flags & 0x08)
        values = {each.parameter for each in command.arguments} | {each.parameter for each in command.options}
        if command.session is not Session.NONE:
            values -= set(Connection.__struct_fields__)
        assert any_name or values <= set(taken)

    def test_summaries_are_sentences(self) -> None:
        described: list[Command | Group] = [*COMMANDS.values(), *GROUPS.values()]
        for each in described:
            assert each.summary[0].isupper(), each.name
            assert each.summary.endswith("."), each.name


class TestUsageErrors:
    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (("stauts",), "unknown command 'stauts' for 'podpool'; did you mean 'status'? See 'podpool --help'"),
            (("ledger", "x"), "unknown command 'x' for 'podpool ledger'; see 'podpool ledger --help'"),
            (("nodes", "--outptu"), "unknown flag --outptu; did you mean '--output'? See 'podpool nodes --help'"),
            (("nodes", "-o", "text"), "--output 'text': use one of table, wide, json, yaml"),
            (("nodes", "-o"), "-o/--output: expected one argument; see 'podpool nodes --help'"),
            (("who",), "the following arguments are required: ADDRESS; see 'podpool who --help'"),
            (("why", "a", "b"), "unexpected argument 'b'; see 'podpool why --help'"),
            (("up", "--nodes", "many"), "--nodes 'many': is not an integer"),
            (("nodes", "--waiting=maybe"), "--waiting 'maybe': use true or false"),
            (("completion", "tcsh"), "SHELL 'tcsh': use one of bash, zsh, fish"),
            (
                ("controller", "run", "--config", "x"),
                "unknown flag --config; did you mean '--kubeconfig'? See 'podpool controller run --help'",
            ),
            (("--verbose",), "unknown flag --verbose; did you mean '--version'? See 'podpool --help'"),
        ],
        ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
    )
    def test_they_exit_with_2_and_one_line(self, invoke: Invoke, words: tuple[str, ...], error: str) -> None:
        assert (2, "", f"podpool: {error}\n") == invoke(*words)

    def test_arguments_and_options_may_alternate(self) -> None:
        values = parse(COMMANDS["nodes"], ["one", "--waiting", "two", "-ojson"], {})
        assert (["one", "two"], True, "json") == (values["names"], values["waiting"], values["output"])


def test_an_unreachable_api_server_is_one_line(invoke: Invoke, unreachable: str) -> None:
    code, stdout, stderr = invoke("nodes", "--kubeconfig", unreachable)
    assert (3, "") == (code, stdout)
    (line,) = stderr.splitlines()
    assert line.startswith("podpool: the API server at http://127.0.0.1:1 cannot be reached")
    assert "`podpool subnets`" in line


def test_debug_prints_a_traceback(unreachable: str) -> None:
    with pytest.raises(ComponentUnreachable):
        main(["nodes", "--kubeconfig", unreachable, "--debug"])


def test_invalid_input_names_the_flag_and_the_remedy(invoke: Invoke, unreachable: str) -> None:
    code, _, stderr = invoke("nodes", "--kubeconfig", "/nowhere")
    assert (2, "podpool: kubeconfig '/nowhere'") == (code, stderr[:30])
    assert "--kubeconfig" in stderr
    code, _, stderr = invoke("nodes", "--kubeconfig", unreachable, "--context", "y")
    assert (2, "podpool: context 'y'") == (code, stderr[:20])
    stderr = invoke("audit", "--settle", "soon", "--kubeconfig", unreachable).stderr
    assert stderr.startswith("podpool: --settle 'soon': ")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InvalidInput("--at", "x", "is not a time"), 2, "podpool: --at 'x': is not a time"),
        (Unreachable("the ledger", "refused"), 3, "podpool: the ledger cannot be reached: refused"),
        (ExceptionGroup("tasks", [InvalidInput("--at", "x", "is not a time")]), 2, "podpool: --at 'x': is not a time"),
        (PermissionError(13, "Permission denied", "/etc/key"), 3, "podpool: /etc/key: Permission denied"),
        (KeyError("x"), 3, "podpool: internal error (KeyError: 'x'): run the command with --debug"),
    ],
)
def test_every_error_is_one_line(error: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as stopped:
        report_errors(fail, words=["nodes"])
    assert code == stopped.value.code
    assert capsys.readouterr().err.startswith(text)
    with pytest.raises(type(error)):
        report_errors(fail, words=["nodes", "--debug"])


@pytest.mark.integration
def test_version_loads_no_component(invoke: Invoke) -> None:
    code = "import sys; from podpool.cli.main import main\ntry: main(['version'])\nfinally: "
    code += "print([each for each in ('aiohttp', 'sqlite3', 'podpool.inspect', 'podpool.ledger', 'podpool.lab.sim', "
    code += "'podpool.kube', 'podpool.controller', 'podpool.api') if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert [f"podpool {__version__}", "[]"] == done.stdout.splitlines()
    assert __version__ == json.loads(invoke("version", "-o", "json").stdout)["version"]
    assert f"{__version__}\n" == invoke("--version").stdout


@pytest.mark.integration
def test_kubectl_finds_the_plugin() -> None:
    done = subprocess.run([BIN / "kubectl-podpool", "version"], check=True, capture_output=True, text=True)
    assert f"podpool {__version__}" == done.stdout.strip()


def test_manifests_are_yaml_documents_by_default(invoke: Invoke) -> None:
    documents = invoke("crds").stdout.split("---\n")[1:]
    names = [msgspec.yaml.decode(each)["metadata"]["name"] for each in documents]
    assert "nodenetworkconfigs.acn.azure.com" in names
    assert names == [each["metadata"]["name"] for each in json.loads(invoke("crds", "-o", "json").stdout)["items"]]
    for name, output in (("crds", "table"), ("rbac", "wide")):
        code, _, stderr = invoke(name, "-o", output)
        assert (2, f"podpool: --output '{output}': use one of yaml, json\n") == (code, stderr)


def test_colors_are_for_terminals_and_can_be_turned_off(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, unreachable: str
) -> None:
    words = ("status", "--kubeconfig", unreachable, "--ledger", "none")
    code, stdout, stderr = invoke(*words)
    assert (3, False) == (code, "\x1b" in stdout + stderr)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in invoke(*words).stdout
    assert "\x1b" not in invoke(*words, "--no-color").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in invoke(*words).stdout


class TestDemoConnection:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        home = StateDirectory(tmp_path / "podpool" / "up")
        home.prepare(DemoSettings(port=17780), fresh=False)
        home.file("kubeconfig").touch()
        return home

    def test_while_the_demo_runs_it_is_the_default(self, home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        with lock_directory(home):
            found = demo_connection(Connection())
            assert "http://127.0.0.1:17780" == found.ledger
            assert str(home.path / "kubeconfig") == found.kubeconfig
            assert str(home.path / "ledger.db.admin-token") == found.ledger_token_file
            monkeypatch.setenv("KUBECONFIG", str(home.path / "kubeconfig"))
            assert found == demo_connection(Connection())

    def test_a_named_cluster_takes_precedence(self, home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        named = (
            Connection(context="prod"),
            Connection(ledger="http://elsewhere"),
            Connection(kubeconfig="/etc/kubeconfig"),
        )
        with lock_directory(home):
            for connection in named:
                assert connection == demo_connection(connection)
            monkeypatch.setenv("KUBECONFIG", "/etc/other")
            assert Connection() == demo_connection(Connection())

    def test_when_it_does_not_run_nothing_changes(self, home: StateDirectory) -> None:
        assert home.path.exists()
        assert Connection(output=Output.JSON) == demo_connection(Connection(output=Output.JSON))


@pytest.mark.parametrize(
    ("time", "text"),
    [("1970-01-01T00:00:00Z", "16m"), ("1970-01-01T00:16:00Z", "40s"), ("", ""), ("soon", "")],
)
def test_age(time: str, text: str) -> None:
    assert text == age(time, now=1000.0)
