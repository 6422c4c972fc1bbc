"""Invalid arguments and files: a command exits with one line that names them. Services log before, as JSON."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from podpool.cli.errors import DoesNotExist, report_errors
from podpool.core.errors import InvalidInput
from podpool.ledger.errors import NotFound
from podpool.runtime.transport import Unreachable
from tests.cli.test_ledger import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Invoke

    Failing = Callable[..., str]

CONTROLLER = ("controller", "run", "--subnet", "vnet.pods", "--listen", "127.0.0.1:0", "--ledger-token-file", "prose")
AGENT = ("agent", "run", "--node", "one", "--listen", "127.0.0.1:0", "--conf-dir", "", "--state", "state")
LEDGER = ("ledger", "serve", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0")
DATABASE = ("--database", "sqlite://ledger.db")
APISERVER = ("apiserver", "serve", "--listen", "127.0.0.1:0")
DASHBOARD = ("dashboard", "--listen", "127.0.0.1:0")
KUBE = ("--kubeconfig", "kubeconfig")
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a kubeconfig of an API server that does not listen, and files of no known format."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "noise").write_bytes(bytes(range(128, 256)))
    (tmp_path / "prose").write_text("It was a dark and stormy night.\n")
    (tmp_path / "empty").touch()
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.fixture
def failing(invoke: Invoke, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Run a command that must fail, in that directory; return its error, without log lines."""
    monkeypatch.chdir(directory)
    monkeypatch.setenv("HOME", str(directory))

    def run(code: int, *words: str) -> str:
        result = invoke(*words)
        assert code == result.code, result.stderr
        lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
        assert all(line.startswith("podpool: ") and "internal error" not in line for line in lines), result.stderr
        return "\n".join(lines)

    return run


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((*AGENT, *KUBE, "--config", "prose"), "--config 'prose': is not TOML"),
        ((*AGENT, *KUBE, "--config", "noise"), "--config 'noise': is not TOML"),
        ((*AGENT, *KUBE, "--cni-template", "none"), "none"),
        ((*LEDGER, "--database", "sqlite://prose"), "--database 'prose': cannot be opened"),
        ((*LEDGER, *DATABASE, "--tls-cert", "prose", "--tls-key", "prose"), "--tls-cert 'prose': cannot be loaded"),
        ((*LEDGER, *DATABASE, "--cluster-token-file", "none"), "--cluster-token-file 'none': cannot be read"),
        ((*LEDGER, *DATABASE, "--cluster-token-file", "prose"), "has no token of the form podpool_ID_SECRET"),
        ((*APISERVER, "--write-kubeconfig", "prose"), "'prose': exists and was not written by this command"),
        ((*CONTROLLER[:-2], *KUBE), "--ledger-token-file '': is required: name a file"),
        ((*CONTROLLER[:-1], "none", *KUBE), "--ledger-token-file 'none': cannot be read"),
        ((*CONTROLLER[:-1], "noise", *KUBE), "--ledger-token-file 'noise': cannot be read (not text)"),
        ((*CONTROLLER[:-1], "empty", *KUBE), "--ledger-token-file 'empty': is empty: write the output of"),
        ((*CONTROLLER, *KUBE, "--ledger-ca-file", "none"), "--ledger-ca-file 'none': cannot be loaded"),
        ((*DASHBOARD, *KUBE, "--ledger-ca-file", "prose"), "--ledger-ca-file 'prose': cannot be loaded"),
        (("status", *KUBE, "--ledger-ca-file", "directory"), "--ledger-ca-file 'directory': cannot be loaded"),
        (("ledger", "subnet", "list", "--ledger-token-file", "none"), "'none': cannot be read"),
        (("ledger", "subnet", "list", "--ledger-token-file", "noise"), "'noise': cannot be read"),
        (("agent", "journal", "show", "--state", "prose"), "--state 'prose': is not a directory"),
        (("up", "--home", "prose"), "--home 'prose': cannot be used"),
        (("up", "--home", "."), "is neither empty nor a state directory of podpool up"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_an_invalid_file(failing: Failing, words: tuple[str, ...], error: str) -> None:
    assert error in failing(2, *words)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (CONTROLLER, "noise"),
        (AGENT, "directory"),
        (DASHBOARD, "prose"),
        (("controller", "install-crds"), "none"),
        (("status",), "noise"),
        (("watch",), "none"),
        (("adopt", "whereabouts"), "noise"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else each,
)
def test_an_unreadable_kubeconfig(failing: Failing, words: tuple[str, ...], file: str) -> None:
    assert f"kubeconfig '{file}'" in failing(2, *words, "--kubeconfig", file)


@pytest.fixture
def used_port() -> Iterator[int]:
    """A port on which another process listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    "words",
    [
        (*LEDGER[:2], *DATABASE, "--listen", "{}"),
        (*APISERVER[:2], "--listen", "{}"),
        (*CONTROLLER, *KUBE, "--listen", "{}"),
        (*AGENT, *KUBE, "--socket", "agent.sock", "--deferred-deletes", "deletes", "--listen", "{}"),
        ("dashboard", *KUBE, "--listen", "{}"),
        ("up", "--home", "up", "--port", "{port}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_port_in_use(failing: Failing, words: tuple[str, ...], used_port: int) -> None:
    error = failing(3, *(each.format(f"127.0.0.1:{used_port}", port=used_port) for each in words))
    assert str(used_port) in error
    assert "use" in error


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((*LEDGER, "--database", "sqlite://prose/x.db"), 2, "--database 'prose/x.db': cannot be opened"),
        ((*LEDGER, "--database", "postgresql://me:s3cret@127.0.0.1:1/ledger"), 3, "cannot connect to PostgreSQL"),
        (
            ("ledger", "check", "--database", "postgresql://me:s3cret@127.0.0.1:1/ledger"),
            3,
            "cannot connect to PostgreSQL",
        ),
        ((*LEDGER, "--database", "nonsense"), 2, "--database 'nonsense': is not a database URL"),
        (("ledger", "restore", "noise", *DATABASE), 1, "the file is not a backup"),
        (("ledger", "check", "--file", "prose"), 1, "the file is not a backup"),
        (("ledger", "backup", "copy", *DATABASE), 1, "there is no ledger database at ledger.db"),
        ((*APISERVER, "--file", "prose"), 3, "cannot store the cluster's objects in prose"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_an_invalid_database(failing: Failing, words: tuple[str, ...], code: int, error: str) -> None:
    line = failing(code, *words)
    assert error in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((*LEDGER, *DATABASE, "--listen", "everywhere"), "--listen 'everywhere': is not an address and port"),
        ((*LEDGER, *DATABASE, "--history", "long"), "--history 'long'"),
        ((*CONTROLLER, *KUBE, "--settings", "batch=many"), "batch"),
        ((*CONTROLLER[:2], *KUBE), "--subnet '': is required"),
        ((*CONTROLLER, *KUBE, "--subnet", "pods"), "--subnet 'pods'"),
        ((*AGENT, *KUBE, "--settings", "colour=red"), "colour"),
        ((*AGENT, *KUBE, "--cni-profile", "macvlan"), "--cni-options '': profile macvlan needs master=..."),
        ((*AGENT, *KUBE, "--cni-profile", "azure"), "--cni-profile 'azure': needs --underlay"),
        (
            (*AGENT, *KUBE, "--cni-profile", "bridge", "--proxy-uplink", "eth0"),
            "--proxy-uplink 'eth0': is for --cni-profile routed; with profile bridge remove it",
        ),
        (("ledger", "subnet", "create", "pods", "10.0.0.0/24"), "'pods'"),
        (("audit", *KUBE, "--settle", "soon"), "--settle 'soon': not a duration"),
        (("sim", "--profile", "mild"), "--profile 'mild'"),
        (("up", "--nodes", "0"), "--nodes 0: must be from 1 to 50"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_an_invalid_value(failing: Failing, words: tuple[str, ...], error: str) -> None:
    assert error in failing(2, *words)


@pytest.mark.integration
def test_an_invalid_token(failing: Failing, directory: Path) -> None:
    (directory / "wrong").write_text("podpool_0_0")
    served = Served(directory)
    try:
        words = ("ledger", "subnet", "list", "--ledger", served.url, "--ledger-token-file", "wrong")
        assert "no valid token" in failing(1, *words)
        words = ("subnets", *KUBE, "--ledger", served.url, "--ledger-token-file", "wrong")
        assert "no valid token" in failing(3, *words)
    finally:
        served.daemon.stop()


@pytest.mark.integration
def test_a_process_prints_it_and_a_traceback_only_with_debug(directory: Path) -> None:
    words = [sys.executable, "-m", "podpool", *LEDGER, "--database", "nonsense"]
    plain, debug = (
        subprocess.run([*words, *more], check=False, cwd=directory, capture_output=True, text=True, env={"PATH": ""})
        for more in ((), ("--debug",))
    )
    assert (2, "podpool: --database 'nonsense': is not a database") == (plain.returncode, plain.stderr[:49])
    assert "Traceback" not in plain.stderr
    assert "Traceback (most recent call last)" in debug.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DoesNotExist("NODE", "three", "existing: one"), 1),
        (NotFound("there is no subnet vnet.pods"), 1),
        (InvalidInput("--at", "soon", "is not a time"), 2),
        (Unreachable("the ledger", "connection refused"), 3),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_does_not_exist_is_neither_an_invalid_argument_nor_an_outage(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    with pytest.raises(SystemExit) as stopped:
        report_errors(fail, words=[])
    assert (code, f"podpool: {error}\n") == (stopped.value.code, capsys.readouterr().err)
