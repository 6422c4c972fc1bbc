"""Commands on a node: options of the agent from a file, the journal, and the agent without privileges."""

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
from podpool.agent.journal_reader import encode_frame
from podpool.agent.records import Assigned, NCAccepted, NCAdopted, PodIdentity, ReleasePending, Snapshot
from podpool.agent.state import AGENT_JOURNAL
from podpool.cli.parser import Value, parse, read_config_file
from podpool.cli.spec import COMMANDS
from podpool.cni.protocol import Attachment
from podpool.core.errors import InvalidInput
from podpool.runtime.disk import LocalDisk
from tests.agent.agent_process import agent_cluster
from tests.agent.nc_samples import NC, grants, status
from tests.agent.unprivileged import USER, unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Invoke


def options(*words: str, **environment: str) -> dict[str, Value]:
    return parse(COMMANDS["agent run"], words, environment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text('node = "filed"\nmode = "reactive"\ntaint = true\n[settings]\nbatch = 8\nbuffer = "0.25"\n')
    return path


class TestConfigFile:
    def test_it_sets_options(self, file: Path) -> None:
        values = options("--config", str(file))
        assert ("filed", "reactive", True) == (values["node"], values["mode"], values["taint"])
        assert "batch=8,buffer=0.25" == values["settings"]
        assert values == {**options(f"--config={file}"), "config": values["config"]}

    def test_the_environment_takes_precedence_and_the_command_line_before_it(self, file: Path) -> None:
        environment = {"PODPOOL_NODE": "environment", "PODPOOL_CONFIG": str(file)}
        assert "environment" == options(**environment)["node"]
        assert "typed" == options("--node", "typed", **environment)["node"]
        assert "reactive" == options(**environment)["mode"]

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            ("nodes = 1", "unknown option 'nodes'"),
            ("node = [1]", "a single value"),
            ("node = ", "not TOML"),
            (None, "cannot be"),
        ],
    )
    def test_an_invalid_file_is_refused(self, tmp_path: Path, content: str | None, error: str) -> None:
        path = tmp_path / "agent.toml"
        if content is not None:
            path.write_text(content)
        with pytest.raises(InvalidInput, match=error):
            read_config_file(path, ["node", "settings"])

    def test_an_invalid_value_is_refused_from_every_source(self, file: Path) -> None:
        file.write_text('mode = "psychic"')
        with pytest.raises(InvalidInput, match="use one of reactive, idempotent, pods"):
            options("--config", str(file))
        with pytest.raises(InvalidInput, match="--taint 'perhaps': use true or false"):
            options("--mode", "pods", PODPOOL_TAINT="perhaps")


class TestJournal:
    def test_it_is_printed_with_the_resulting_state(self, tmp_path: Path, invoke: Invoke) -> None:
        disk = LocalDisk(tmp_path)
        journal = Journal(disk, AGENT_JOURNAL, Snapshot)
        journal.open(lambda _: None)
        pod = PodIdentity(namespace="default", name="web", uid="1")
        for record in (
            NCAdopted(nc=NC),
            NCAccepted(nc=status(3, grants(1, 2, 3)), at=1.0),
            Assigned(grant="g1", attachment=Attachment(container_id="box", ifname="eth0"), pod=pod),
            ReleasePending(grants=("g2",), version=3, boot_id="boot"),
        ):
            journal.append(record)
        disk.append("segment.00000001", b"\0\0\0\x99torn")
        disk.close()
        before = (tmp_path / "segment.00000001").read_bytes()
        lines = invoke("agent", "journal", "show", "--state", str(tmp_path)).stdout.splitlines()
        assert 4 + 3 == len(lines)
        assert '{"type":"nc-adopted","nc":"nc-1"}' == lines[0]
        assert "10.0.1.1 is assigned to box eth0 for default/web" == lines[4]
        assert (
            "4 records: NC nc-1 at version 3, 3 grants, 1 assigned, 1 free or cooling down, 1 pending release"
            == lines[5]
        )
        assert "the last 8 bytes are torn: the next agent truncates them" == lines[6]
        assert before == (tmp_path / "segment.00000001").read_bytes()
        shown = json.loads(invoke("agent", "journal", "show", "--state", str(tmp_path), "-o", "json").stdout)
        assert ("nc-adopted", "10.0.1.1", "default/web", 8) == (
            shown["records"][0]["type"],
            shown["assignments"][0]["address"],
            shown["assignments"][0]["pod"],
            shown["torn_bytes"],
        )

    def test_one_with_an_unreadable_snapshot_is_damaged(self, tmp_path: Path, invoke: Invoke) -> None:
        """Later records do not count, so none is shown."""
        (tmp_path / "snapshot").write_bytes(b"rubbish")
        lines = invoke("agent", "journal", "show", "--state", str(tmp_path)).stdout.splitlines()
        assert lines[0].startswith("0 records")
        assert "the journal is damaged" in lines[1]

    def test_a_newer_format_is_refused_with_what_to_do(self, tmp_path: Path, invoke: Invoke) -> None:
        (tmp_path / "segment.00000001").write_bytes(encode_frame(b'{"journal_format":99,"podpool":"9.9.9"}'))
        result = invoke("agent", "journal", "show", "--state", str(tmp_path))
        assert 0 != result.code
        assert "podpool 9.9.9 wrote it in format 99" in result.stderr
        assert "run the version that wrote it" in result.stderr

    def test_a_missing_directory_is_not_created(self, tmp_path: Path, invoke: Invoke) -> None:
        result = invoke("agent", "journal", "show", "--state", str(tmp_path / "none"))
        assert 2 == result.code
        assert "is not a directory" in result.stderr
        assert not (tmp_path / "none").exists()


@pytest.mark.integration
def test_the_agents_process_imports_only_what_it_needs() -> None:
    """Each node pays for its memory."""
    code = "import sys; from podpool.cli.main import load; load('podpool.cli.commands.agent:run_agent'); "
    code += "print(' '.join({each.partition('.')[0] for each in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    unneeded = ("click", "typer", "rich", "asyncpg", "sqlite3", "greenlet", "h2")  # h2: only with a CRI socket
    assert [] == [each for each in unneeded if each in loaded]


@pytest.fixture
def unprivileged_home() -> Iterator[Path]:
    """A directory that a user without privileges owns and can enter; root's temporary directories are closed."""
    with TemporaryDirectory(dir="/var/tmp") as made:
        home = Path(made)
        home.chmod(0o755)
        (home / "deletes").mkdir(mode=0o700)
        for each in (home, home / "deletes"):
            os.chown(each, USER, USER)
        yield home


@pytest.mark.real
@pytest.mark.xdist_group("shim")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
def test_the_agent_runs_without_privileges_as_another_user_than_the_plugin(
    unprivileged_home: Path, tmp_path: Path
) -> None:
    """It only writes its own files. A deferred DEL of root's plugin may be readable by root only."""

    async def run() -> None:
        async with asyncio.timeout(120), agent_cluster(unprivileged_home) as there:
            assert 0 == (await there.call("DEL", "gone", wait_ms="1"))[0]
            (unprivileged_home / "deletes" / "roots-eth0").touch(mode=0o600)
            agent = await there.agent(before=unprivileged(tmp_path))
            assert 0 == (await there.call("ADD", "box"))[0]
            assert USER == (unprivileged_home / "agent.sock").stat().st_uid
            assert (unprivileged_home / "deletes" / "roots-eth0").exists()
            assert 0 == (await there.call("DEL", "box"))[0]
            while not (unprivileged_home / "net.d" / "10-podpool.conflist").exists():  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.02)
            agent.terminate()
            assert 0 == await agent.wait()

    asyncio.run(run())
