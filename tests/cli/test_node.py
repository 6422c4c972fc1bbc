"""What is typed on a node: options from a file, the journal, and the plugin's place."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from podpool.agent.journal import Journal
from podpool.agent.records import Accepted, Adopted, Assigned, Named, Owner, PodName
from podpool.cli.daemon_parser import parser
from podpool.cli.settings_file import read_settings
from podpool.core.errors import InvalidInput
from podpool.runtime.disk import LocalDisk
from tests.agent.nobody import USER, without_rights
from tests.agent.processes import cluster
from tests.agent.statuses import CONTAINER, grants, status

if TYPE_CHECKING:
    from collections.abc import Iterator

PODPOOL = Path(sys.executable).parent / "podpool"


def typed(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PODPOOL, *words], check=False, capture_output=True, text=True, env={**os.environ, **(env or {})}
    )


def options(*words: str) -> dict[str, str]:
    return vars(parser(["agent", "run", *words]).parse_args(["agent", "run", *words]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text('node = "filed"\nmode = "reactive"\ntaint = true\n[numbers]\nbatch = 8\nbuffer = "0.25"\n')
    return path


class TestFile:
    def test_options_come_from_it_as_if_they_were_typed(self, file: Path) -> None:
        told = options("--config", str(file))
        assert ("filed", "reactive", "true") == (told["node"], told["mode"], told["taint"])
        assert "batch=8,buffer=0.25" == told["numbers"]
        assert told == {**options(f"--config={file}"), "config": told["config"]}

    def test_the_environment_comes_first_and_what_is_typed_before_all(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PODPOOL_NODE", "environment")
        monkeypatch.setenv("PODPOOL_CONFIG", str(file))
        assert "environment" == options()["node"]
        assert "typed" == options("--node", "typed")["node"]
        assert "reactive" == options()["mode"]

    @pytest.mark.parametrize(
        ("content", "said"),
        [("nodes = 1", "no option 'nodes'"), ("node = [1]", "one value"), ("node = ", "not TOML"), (None, "cannot be")],
    )
    def test_what_cannot_be_meant_is_said(self, tmp_path: Path, content: str | None, said: str) -> None:
        path = tmp_path / "agent.toml"
        if content is not None:
            path.write_text(content)
        with pytest.raises(InvalidInput, match=said):
            read_settings(path, ["node", "numbers"])

    def test_a_choice_that_is_none_is_refused_wherever_it_comes_from(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text('mode = "psychic"')
        with pytest.raises(InvalidInput, match="use one of reactive, idempotent, pods"):
            options("--config", str(file))
        file.write_text("")
        monkeypatch.setenv("PODPOOL_TAINT", "perhaps")
        with pytest.raises(InvalidInput, match="use one of true, false"):
            options()

    def test_the_command_ends_with_that_sentence(self, tmp_path: Path) -> None:
        done = typed("agent", "run", "--config", str(tmp_path / "none"))
        assert 2 == done.returncode
        assert "podpool: --config" in done.stderr

    def test_other_commands_have_none(self) -> None:
        assert 2 == typed("controller", "run", "--config", "x").returncode


class TestJournal:
    def test_it_is_printed_with_what_it_comes_to(self, tmp_path: Path) -> None:
        disk = LocalDisk(tmp_path)
        journal = Journal(disk)
        journal.open()
        pod = PodName(namespace="default", name="web", uid="1")
        for record in (
            Adopted(container=CONTAINER),
            Accepted(container=status(3, grants(1, 2, 3)), at=1.0),
            Assigned(grant="g1", owner=Owner(container_id="box", ifname="eth0"), pod=pod),
            Named(grants=("g2",), version=3, boot_id="boot"),
        ):
            journal.append(record)
        disk.append("segment.00000001", b"\0\0\0\x99torn")
        disk.close()
        before = (tmp_path / "segment.00000001").read_bytes()
        lines = typed("agent", "journal", "show", "--state", str(tmp_path)).stdout.splitlines()
        assert 4 + 3 == len(lines)
        assert '{"is":"adopted","container":"nc-1"}' == lines[0]
        assert "10.0.1.1 is held by box eth0 for default/web" == lines[4]
        assert "4 records: container nc-1 at version 3, 3 grants, 1 in use, 1 free or resting, 1 named" == lines[5]
        assert "the last 8 bytes are torn: the next agent cuts them off" == lines[6]
        assert before == (tmp_path / "segment.00000001").read_bytes()
        told = json.loads(typed("agent", "journal", "show", "--state", str(tmp_path), "-o", "json").stdout)
        assert ("adopted", "10.0.1.1", "default/web", 8) == (
            told["records"][0]["is"],
            told["uses"][0]["address"],
            told["uses"][0]["pod"],
            told["torn"],
        )

    def test_one_whose_beginning_cannot_be_read_is_said_to_be_damaged(self, tmp_path: Path) -> None:
        """Nothing counts that was written after it, so there is nothing to show."""
        (tmp_path / "snapshot").write_bytes(b"rubbish")
        lines = typed("agent", "journal", "show", "--state", str(tmp_path)).stdout.splitlines()
        assert lines[0].startswith("0 records")
        assert "the journal is damaged" in lines[1]

    def test_without_one_it_says_so_and_makes_none(self, tmp_path: Path) -> None:
        done = typed("agent", "journal", "show", "--state", str(tmp_path / "none"))
        assert 2 == done.returncode
        assert "no such directory" in done.stderr
        assert not (tmp_path / "none").exists()


@pytest.mark.real
def test_the_agents_process_has_not_imported_what_it_does_not_need() -> None:
    """Its memory is counted on every node."""
    code = (
        "import sys, podpool.cli.commands.agent; print(' '.join(sorted({each.partition('.')[0] for each in sys.modules})))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [] == [each for each in ("typer", "rich", "litestar", "asyncpg", "sqlite3", "greenlet") if each in loaded]


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A directory of a user without rights, where that one can enter; root's temporary directories are closed."""
    with TemporaryDirectory(dir="/var/tmp") as made:
        home = Path(made)
        home.chmod(0o755)
        (home / "deletes").mkdir(mode=0o700)
        for each in (home, home / "deletes"):
            os.chown(each, USER, USER)
        yield home


@pytest.mark.real
@pytest.mark.xdist_group("shim")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_it_runs_without_rights_on_the_machine_as_another_user_than_the_plugin(nobodys: Path, tmp_path: Path) -> None:
    """All that it needs is to write its own files. What root's plugin left for it may be root's alone."""

    async def play() -> None:
        async with asyncio.timeout(120), cluster(nobodys) as there:
            assert 0 == (await there.call("DEL", "gone", patience="1"))[0]
            (nobodys / "deletes" / "roots-eth0").touch(mode=0o600)
            agent = await there.agent(before=without_rights(tmp_path))
            assert 0 == (await there.call("ADD", "box"))[0]
            assert USER == (nobodys / "agent.sock").stat().st_uid
            assert (nobodys / "deletes" / "roots-eth0").exists()
            assert 0 == (await there.call("DEL", "box"))[0]
            while not (nobodys / "net.d" / "10-podpool.conflist").exists():  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.02)
            agent.terminate()
            assert 0 == await agent.wait()

    asyncio.run(play())
