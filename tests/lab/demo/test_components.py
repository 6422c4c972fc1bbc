"""Parts of the demo that need no process."""

import asyncio
import platform
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.scaling import Scaler
from podpool.core.settings import parse_settings
from podpool.kube.errors import ApiNotFound
from podpool.lab.demo.cluster_operations import DemoNodeState, DemoState, retry_until_done
from podpool.lab.demo.display import Display, render
from podpool.lab.demo.objects import NETWORKS, DemoPod, DemoPodAnnotations, DemoPodMeta, network_status
from podpool.lab.demo.run import next_steps, run_demo
from podpool.lab.demo.scenario import pods_that_fill
from podpool.lab.demo.settings import TOKEN_FILE, DemoSettings, StateDirectory, default_home
from podpool.ledger.messages import SubnetName, SubnetState
from podpool.runtime.transport import Unreachable


def node(name: str, *, alive: bool = True, served: bool = True, held: int = 15) -> DemoNodeState:
    return DemoNodeState(
        name=name, alive=alive, running=3, waiting=1, served=served, held=held, requested=held, batch=16
    )


STATE = DemoState(nodes=(node("node-1"), node("node-2", alive=False)), subnet=None)


class TestDisplay:
    def test_without_a_terminal_it_prints_lines(self) -> None:
        console = Console(force_terminal=False, width=60)
        with console.capture() as captured, Display(console) as display:
            display.print("a line that is longer than the sixty columns that there are, and stays one line")
            display.update(STATE)
            display.update(STATE)
        first, second = captured.get().splitlines()
        assert first.endswith("one line")
        assert "6 Pods run, 2 wait" == second.strip(), "figures are printed rarely"

    def test_a_table_fits_a_terminal_of_80_columns(self) -> None:
        console = Console(width=80)
        with console.capture() as captured:
            console.print(render(STATE))
        assert max(map(len, captured.get().splitlines())) <= 80
        assert "gone" in captured.get()

    def test_in_a_terminal_pinned_lines_stay_visible(self) -> None:
        console = Console(force_terminal=True, width=80, height=24, color_system=None)
        with console.capture() as captured, Display(console) as display:
            display.pin("dashboard: there")
            for number in range(40):
                display.print(f"line {number}")
            display.update(STATE)
        assert [f"line {number}" for number in range(40)] == re.findall(r"line \d+", captured.get())
        last = captured.get().rpartition("line 39")[2]
        assert "dashboard: there" in last
        assert "node-2" in last


def test_a_node_with_a_primary_is_served_and_none_is_while_the_ledger_is_unreachable() -> None:
    bare, nothing = node("node-1", held=0), node("node-2", held=0, served=False)
    there = SubnetState(
        subnet=SubnetName(network="vnet", name="pods"),
        revision=1,
        timestamp="",
        cidr="10.77.0.0/24",
        capacity=253,
        reserved=1,
        cooldown=6.0,
        scaler=Scaler(1, 0),
    )
    assert ["node-2"] == DemoState(nodes=(bare, nothing), subnet=there).unserved
    assert ["node-1", "node-2"] == DemoState(nodes=(bare, nothing), subnet=None).unserved


class TestNextSteps:
    def test_commands_have_the_options_of_this_demo(self, tmp_path: Path) -> None:
        home = tmp_path / "a place"
        lines = next_steps(DemoSettings(port=17780, nodes=3, subnet="10.1.0.0/25"), home)
        commands = [shlex.split(line) for line in lines if " up " in line and line.startswith("  ")]
        options = ["--home", str(home), "--port", "17780", "--nodes", "3", "--subnet", "10.1.0.0/25"]
        assert 3 == len(commands)
        assert all(options == words[2:10] for words in commands)

    def test_with_defaults_it_fits_80_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        lines = next_steps(DemoSettings(), default_home())
        assert "  podpool up --scenario none" in lines
        assert max(map(len, lines)) <= 80

    def test_a_password_is_not_printed(self, tmp_path: Path) -> None:
        lines = next_steps(DemoSettings(database="postgresql://me:s3cret@host/ledger"), tmp_path)
        assert "s3cret" not in "".join(lines)


class TestStateDirectory:
    def test_a_second_run_continues_unless_it_is_fresh(self, tmp_path: Path) -> None:
        home, settings = StateDirectory(tmp_path / "up"), DemoSettings()
        assert not home.prepare(settings, fresh=False)
        home.file(TOKEN_FILE).write_text("the cluster has started")
        home.file("nodes", "node-1", "journal").write_text("kept")
        assert home.prepare(DemoSettings(nodes=9), fresh=False)
        assert "kept" == home.file("nodes", "node-1", "journal").read_text()
        assert not home.prepare(settings, fresh=True)
        assert not (tmp_path / "up" / "nodes").exists()

    def test_a_replaced_node_has_no_state_and_another_boot_id(self, tmp_path: Path) -> None:
        home = StateDirectory(tmp_path)
        home.file("nodes", "node-1", "journal").write_text("lost")
        for _ in range(2):
            home.replace_node("node-1")
        assert not (tmp_path / "nodes" / "node-1").exists()
        assert "2" == home.file("lost", "node-1").read_text()

    @pytest.mark.parametrize(
        "other",
        [
            DemoSettings(subnet="10.1.0.0/24"),
            DemoSettings(api="real"),
            DemoSettings(database="postgresql://x/y"),
            DemoSettings(batch=8),
            DemoSettings(nodes=3),
        ],
    )
    def test_settings_of_database_and_objects_cannot_change(self, tmp_path: Path, other: DemoSettings) -> None:
        home = StateDirectory(tmp_path)
        home.prepare(DemoSettings(), fresh=False)
        home.file(TOKEN_FILE).write_text("the cluster has started")
        with pytest.raises(InvalidInput, match="--fresh"):
            home.prepare(other, fresh=False)

    @pytest.mark.parametrize("other", [{"api": "real"}, {"database": "postgresql://nowhere/x"}, {"batch": 8}])
    def test_settings_of_a_run_that_never_started_are_not_kept(self, tmp_path: Path, other: dict[str, Any]) -> None:
        """`podpool up --api real` without kube-apiserver: the next `podpool up` starts as if it was the first."""
        home = StateDirectory(tmp_path)
        home.prepare(DemoSettings(**other), fresh=False)
        home.file("logs", "ledger.log").write_text("of the failed run")
        home.file("ledger.db").write_text("no subnet yet")
        again = StateDirectory(tmp_path)
        assert not again.prepare(DemoSettings(), fresh=False)
        assert {"settings.json"} == {each.name for each in tmp_path.iterdir()}

    def test_a_fresh_run_deletes_files_of_the_demo_only(self, tmp_path: Path) -> None:
        home = StateDirectory(tmp_path)
        home.prepare(DemoSettings(), fresh=False)
        home.file("notes").write_text("mine")
        home.file("apiserver.db-wal").write_text("of the demo")
        StateDirectory(tmp_path).prepare(DemoSettings(nodes=3), fresh=True)
        assert {"notes", "settings.json"} == {each.name for each in tmp_path.iterdir()}

    @pytest.mark.parametrize("content", ["", "{}", "{"])
    def test_a_directory_with_other_files_is_not_changed(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "settings.json").write_text(content)
        (tmp_path / "logs").mkdir()
        mode = tmp_path.stat().st_mode
        with pytest.raises(InvalidInput, match="neither empty nor a state directory"):
            StateDirectory(tmp_path)
        assert ({"settings.json", "logs"}, mode) == (
            {each.name for each in tmp_path.iterdir()},
            tmp_path.stat().st_mode,
        )

    def test_settings_are_readable_by_the_owner_only(self, tmp_path: Path) -> None:
        home = StateDirectory(tmp_path / "up")
        home.prepare(DemoSettings(database="postgresql://me:s3cret@host/ledger"), fresh=False)
        assert [0o700, 0o600] == [each.stat().st_mode & 0o777 for each in (home.path, home.path / "settings.json")]
        home.file(TOKEN_FILE).write_text("the cluster has started")
        with pytest.raises(InvalidInput, match="me@host/ledger") as refused:
            home.prepare(DemoSettings(database="postgresql://me:0ther@host/ledger"), fresh=False)
        assert not {"s3cret", "0ther"} & set(re.findall(r"\w+", str(refused.value)))


def test_other_systems_than_linux_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(PodpoolError, match="needs Linux"):
        run_demo(DemoSettings(), home=tmp_path, fresh=False, console=Console())


@pytest.mark.parametrize("answers", [[ApiNotFound("gone")], [Unreachable("API server", "refused"), None]])
def test_a_call_survives_a_users_delete_and_a_restart_of_the_api_server(answers: list[Exception | None]) -> None:
    async def ask() -> None:
        if answer := answers.pop(0):
            raise answer

    asyncio.run(retry_until_done(ask))
    assert [] == answers


@pytest.mark.parametrize(("capacity", "nodes"), [(253, 1), (65_533, 8)])
def test_growth_ends_when_all_nodes_are_full(capacity: int, nodes: int) -> None:
    settings = parse_settings(DemoSettings().overrides)
    counts = {f"node-{number}": 3 for number in range(nodes)}
    assert nodes * (settings.node_maximum - 1) >= pods_that_fill(capacity, counts, settings) > sum(counts.values())


class TestPods:
    def test_secondary_networks_are_parsed_as_in_multus(self) -> None:
        pod = DemoPod(metadata=DemoPodMeta(annotations=DemoPodAnnotations(networks="wide, wide@left,other")))
        assert {"net1": "wide", "left": "wide", "net3": "other"} == pod.secondary_networks
        assert {} == DemoPod().secondary_networks

    def test_an_invalid_status_has_no_addresses(self) -> None:
        for status in ("nonsense", "{}", '[{"ips": 3}]', "[null]", '[{"name": "wide"}]'):
            pod = DemoPod(metadata=DemoPodMeta(annotations=DemoPodAnnotations(status=status)))
            assert [] == pod.secondary_addresses

    def test_addresses_are_reported_as_in_multus(self) -> None:
        annotations = network_status("default", {"net1": "wide"}, {"net1": "10.88.0.1"})
        (status,) = annotations.values()
        pod = DemoPod(metadata=DemoPodMeta(annotations=DemoPodAnnotations(status=status)))
        assert ["10.88.0.1"] == pod.secondary_addresses
        assert '"name":"default/wide"' in status
        assert NETWORKS not in annotations
