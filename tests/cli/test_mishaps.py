"""Whatever is wrong with what was typed, a command says it in one sentence; where in the program, only with --debug."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from typer.core import TyperGroup

from podpool.__main__ import main
from podpool.cli.app import app
from podpool.cli.daemon_parser import COMMANDS, parser
from tests.cli.test_ledger import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.core import TyperCommand

CONTROLLER = ("controller", "run", "--subnet", "vnet.pods", "--listen", "127.0.0.1:0")
AGENT = ("agent", "run", "--node", "one", "--listen", "127.0.0.1:0", "--conf-dir", "", "--state", "state")
LEDGER = ("ledger", "serve", "--listen", "127.0.0.1:0")
BOOKS = ("--database", "sqlite://ledger.db")
POCKET = ("pocket", "serve", "--listen", "127.0.0.1:0")
PAGE = ("dashboard", "--port", "0")
WAY = ("--kubeconfig", "kubeconfig")
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Where somebody types: with a kubeconfig that leads to nobody, and a few files that are nothing."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "noise").write_bytes(bytes(range(128, 256)))
    (tmp_path / "prose").write_text("It was a dark and stormy night.\n")
    (tmp_path / "directory").mkdir()
    return tmp_path


class Typist:
    """Somebody who types commands there."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def remarks(self, code: int, *words: str) -> list[str]:
        """What a command says that fails: lines beside what it logs, each of them for a person."""
        self._monkeypatch.setattr(sys, "argv", ["podpool", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr().err
        told = [line for line in said.splitlines() if not line.startswith("{")]
        assert code == ended.value.code, said
        assert all(line.startswith("podpool: ") and "should not happen" not in line for line in told), said
        return told

    def sentence(self, code: int, *words: str) -> str:
        """The one thing that it says."""
        (told,) = self.remarks(code, *words)
        return told.removeprefix("podpool: ")


@pytest.fixture
def typist(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Typist]:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("HOME", str(desk))
    for name in [name for name in os.environ if name.startswith(("PODPOOL_", "KUBE"))]:
        monkeypatch.delenv(name)
    before = logging.root.handlers[:], logging.root.level
    yield Typist(capsys, monkeypatch)
    logging.root.handlers[:], logging.root.level = before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*AGENT, *WAY, "--config", "prose"), "--config 'prose': is not TOML"),
        ((*AGENT, *WAY, "--config", "noise"), "--config 'noise': is not TOML"),
        ((*AGENT, *WAY, "--cni-template", "none"), "none"),
        ((*LEDGER, "--database", "sqlite://prose"), "--database 'prose': cannot be opened"),
        ((*LEDGER, *BOOKS, "--tls-cert", "prose", "--tls-key", "prose"), "--tls-cert 'prose': cannot be used"),
        ((*POCKET, "--write-kubeconfig", "prose"), "'prose': is there already, and was not written by pocket"),
        ((*CONTROLLER, *WAY, "--ledger-ca-file", "none"), "'none': cannot be used"),
        ((*PAGE, *WAY, "--ledger-ca-file", "prose"), "'prose': cannot be used"),
        (("status", *WAY, "--ledger-ca-file", "directory"), "'directory': cannot be used"),
        (("ledger", "subnet", "list", "--token-file", "none"), "'none': cannot be read"),
        (("ledger", "subnet", "list", "--token-file", "noise"), "'noise': cannot be read"),
        (("agent", "journal", "show", "--state", "prose"), "--state 'prose': there is no such directory"),
        (("up", "--home", "prose"), "--home 'prose': cannot be used"),
        (("up", "--home", "."), "is neither empty nor a stage of podpool up"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_file_that_is_not_what_it_should_be(typist: Typist, words: tuple[str, ...], said: str) -> None:
    assert said in typist.sentence(2, *words)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (CONTROLLER, "noise"),
        (AGENT, "directory"),
        (PAGE, "prose"),
        (("controller", "install-crds"), "none"),
        (("status",), "noise"),
        (("watch",), "none"),
        (("adopt", "whereabouts"), "noise"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else each,
)
def test_a_kubeconfig_that_cannot_be_read(typist: Typist, words: tuple[str, ...], file: str) -> None:
    assert f"kubeconfig '{file}'" in typist.sentence(2, *words, "--kubeconfig", file)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody has."""
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        yield somebody.getsockname()[1]


@pytest.mark.parametrize(
    "words",
    [
        (*LEDGER[:2], *BOOKS, "--listen", "{}"),
        (*POCKET[:2], "--listen", "{}"),
        (*CONTROLLER, *WAY, "--listen", "{}"),
        (*AGENT, *WAY, "--socket", "agent.sock", "--deletes", "deletes", "--listen", "{}"),
        ("dashboard", *WAY, "--port", "{port}"),
        ("up", "--home", "up", "--port", "{port}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_port_that_is_taken(typist: Typist, words: tuple[str, ...], taken: int) -> None:
    said = typist.sentence(3, *(each.format(f"127.0.0.1:{taken}", port=taken) for each in words))
    assert str(taken) in said
    assert "use" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*LEDGER, "--database", "sqlite://prose/x.db"), 2, "--database 'prose/x.db': cannot be opened"),
        ((*LEDGER, "--database", "postgresql://me:s3cret@127.0.0.1:1/books"), 3, "cannot be reached"),
        (("ledger", "check", "--database", "postgresql://me:s3cret@127.0.0.1:1/books"), 3, "cannot be reached"),
        ((*LEDGER, "--database", "books"), 2, "--database 'books': is no database"),
        (("ledger", "restore", "noise", *BOOKS), 1, "the file is no copy of a ledger's books"),
        (("ledger", "check", "--file", "prose"), 1, "the file is no copy of a ledger's books"),
        (("ledger", "backup", "copy", *BOOKS), 1, "there is no ledger at ledger.db"),
        ((*POCKET, "--file", "prose"), 3, "prose cannot be used to keep the cluster's objects"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_books_that_are_not_there_or_are_none(typist: Typist, words: tuple[str, ...], code: int, said: str) -> None:
    told = typist.sentence(code, *words)
    assert said in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*LEDGER, *BOOKS, "--listen", "everywhere"), "--listen 'everywhere': not an address and port"),
        ((*LEDGER, *BOOKS, "--history", "long"), "--history 'long'"),
        ((*CONTROLLER, *WAY, "--numbers", "batch=many"), "batch"),
        ((*CONTROLLER[:2], *WAY), "--subnet '': is missing"),
        ((*CONTROLLER, *WAY, "--subnet", "pods"), "--subnet 'pods'"),
        ((*AGENT, *WAY, "--numbers", "colour=red"), "colour"),
        (("ledger", "subnet", "create", "pods", "10.0.0.0/24"), "'pods'"),
        (("audit", *WAY, "--settle", "soon"), "--settle 'soon': not a duration"),
        (("sim", "--climate", "mild"), "mild"),
        (("up", "--nodes", "0"), "--nodes 0: must be from 1 to 50"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_word_that_cannot_be_meant(typist: Typist, words: tuple[str, ...], said: str) -> None:
    assert said in typist.sentence(2, *words)


def test_a_token_that_is_not_good(typist: Typist, desk: Path) -> None:
    (desk / "wrong").write_text("podpool_0_0")
    served = Served(desk)
    try:
        words = ("ledger", "subnet", "list", "--ledger", served.url, "--token-file", "wrong")
        assert "no good token" in typist.sentence(1, *words)
        words = ("subnets", *WAY, "--ledger", served.url, "--ledger-token-file", "wrong")
        assert "no good token" in " ".join(typist.remarks(3, *words))
    finally:
        served.daemon.stop()


def test_a_process_ends_with_it(desk: Path) -> None:
    words = [sys.executable, "-m", "podpool", *LEDGER, "--database", "books"]
    quiet, asked = (
        subprocess.run([*words, *more], check=False, cwd=desk, capture_output=True, text=True, env={"PATH": ""})
        for more in ((), ("--debug",))
    )
    assert (2, "podpool: --database 'books': is no database") == (quiet.returncode, quiet.stderr[:43])
    assert "Traceback" not in quiet.stderr
    assert "Traceback (most recent call last)" in asked.stderr


def test_every_command_takes_debug() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    without = [name for name, each in _own(group) if not any("--debug" in param.opts for param in each.params)]
    assert [] == without + [name for name, each in _daemons(parser()) if "--debug" not in each.format_help()]


def _own(group: TyperGroup) -> Iterator[tuple[str, TyperCommand]]:
    for name, each in group.commands.items():
        if isinstance(each, TyperGroup):
            yield from _own(each)
        elif name not in COMMANDS:
            yield name, each  # type: ignore[misc]  # what typer makes


def _daemons(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001  argparse tells it in no other way
    if not groups:
        yield parser.prog, parser
    for group in groups:
        for each in group.choices.values():
            yield from _daemons(each)
