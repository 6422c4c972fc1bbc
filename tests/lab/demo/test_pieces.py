"""The pieces of `podpool up` that need no process."""

import asyncio
import platform
import re
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.scaling import Scaler
from podpool.core.settings import parse_settings
from podpool.kube.errors import ApiNotFound
from podpool.lab.demo.driver import NodePicture, Picture, surely
from podpool.lab.demo.pods import NETWORKS, StagedAnnotations, StagedMeta, StagedPod, network_status
from podpool.lab.demo.run import farewell, run_up
from podpool.lab.demo.scenario import full_at
from podpool.lab.demo.screen import Screen, drawn
from podpool.lab.demo.settings import DemoSettings, Home, usual_home
from podpool.ledger.messages import SubnetName, SubnetState
from podpool.runtime.transport import Unreachable


def node(name: str, *, alive: bool = True, served: bool = True, held: int = 15) -> NodePicture:
    return NodePicture(name=name, alive=alive, running=3, waiting=1, served=served, held=held, requested=held, batch=16)


PICTURE = Picture(nodes=(node("node-1"), node("node-2", alive=False)), subnet=None)


class TestScreen:
    def test_without_a_terminal_it_is_plain_lines(self) -> None:
        console = Console(force_terminal=False, width=60)
        with console.capture() as captured, Screen(console) as screen:
            screen.tell("a line that is longer than the sixty columns that there are, and stays one line")
            screen.show(PICTURE)
            screen.show(PICTURE)
        first, second = captured.get().splitlines()
        assert first.endswith("one line")
        assert "6 Pods run, 2 wait" == second.strip(), "figures come seldom"

    def test_a_table_fits_a_terminal_of_80_columns(self) -> None:
        console = Console(width=80)
        with console.capture() as captured:
            console.print(drawn(PICTURE))
        assert max(map(len, captured.get().splitlines())) <= 80
        assert "gone" in captured.get()

    def test_in_a_terminal_what_is_pinned_stays_in_sight(self) -> None:
        console = Console(force_terminal=True, width=80, height=24, color_system=None)
        with console.capture() as captured, Screen(console) as screen:
            screen.pin("the page is there")
            for number in range(40):
                screen.tell(f"line {number}")
            screen.show(PICTURE)
        assert [f"line {number}" for number in range(40)] == re.findall(r"line \d+", captured.get())
        last = captured.get().rpartition("line 39")[2]
        assert "the page is there" in last
        assert "node-2" in last


def test_a_node_that_has_its_primary_is_served_and_nobody_is_while_the_ledger_is_away() -> None:
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
    assert ["node-2"] == Picture(nodes=(bare, nothing), subnet=there).unserved
    assert ["node-1", "node-2"] == Picture(nodes=(bare, nothing), subnet=None).unserved


class TestFarewell:
    def test_what_it_says_to_try_is_for_this_stage_and_starts_it(self, tmp_path: Path) -> None:
        home = tmp_path / "a place"
        said = farewell(DemoSettings(port=17780, nodes=3, subnet="10.1.0.0/25"), home)
        commands = [shlex.split(line) for line in said if " up " in line and line.startswith("  ")]
        stage = ["--home", str(home), "--port", "17780", "--nodes", "3", "--subnet", "10.1.0.0/25"]
        assert 3 == len(commands)
        assert all(stage == words[2:10] for words in commands)

    def test_as_usual_it_fits_80_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        said = farewell(DemoSettings(), usual_home())
        assert "  podpool up --scenario none" in said
        assert max(map(len, said)) <= 80

    def test_a_password_is_not_said(self, tmp_path: Path) -> None:
        said = farewell(DemoSettings(database="postgresql://me:s3cret@host/books"), tmp_path)
        assert "s3cret" not in "".join(said)


class TestHome:
    def test_a_second_start_goes_on_unless_it_is_fresh(self, tmp_path: Path) -> None:
        home, settings = Home(tmp_path / "up"), DemoSettings()
        assert not home.set(settings, fresh=False)
        home.file("nodes", "node-1", "journal").write_text("kept")
        assert home.set(DemoSettings(nodes=9), fresh=False)
        assert not home.set(settings, fresh=True)
        assert not (tmp_path / "up" / "nodes").exists()

    def test_a_lost_machine_leaves_no_disk_and_the_next_has_another_boot(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.file("nodes", "node-1", "journal").write_text("lost")
        for _ in range(2):
            home.replace_machine("node-1")
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
    def test_what_books_and_objects_depend_on_does_not_change(self, tmp_path: Path, other: DemoSettings) -> None:
        home = Home(tmp_path)
        home.set(DemoSettings(), fresh=False)
        with pytest.raises(InvalidInput, match="--fresh"):
            home.set(other, fresh=False)

    def test_a_fresh_start_deletes_what_a_stage_wrote_and_nothing_else(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.set(DemoSettings(), fresh=False)
        home.file("notes").write_text("mine")
        home.file("pocket.db-wal").write_text("a stage's")
        Home(tmp_path).set(DemoSettings(nodes=3), fresh=True)
        assert {"notes", "settings.json"} == {each.name for each in tmp_path.iterdir()}

    @pytest.mark.parametrize("content", ["", "{}", "{"])
    def test_a_directory_of_something_else_is_left_as_it_is(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "settings.json").write_text(content)
        (tmp_path / "logs").mkdir()
        mode = tmp_path.stat().st_mode
        with pytest.raises(InvalidInput, match="neither empty nor a stage"):
            Home(tmp_path)
        assert ({"settings.json", "logs"}, mode) == (
            {each.name for each in tmp_path.iterdir()},
            tmp_path.stat().st_mode,
        )

    def test_a_password_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "up")
        home.set(DemoSettings(database="postgresql://me:s3cret@host/books"), fresh=False)
        assert [0o700, 0o600] == [each.stat().st_mode & 0o777 for each in (home.path, home.path / "settings.json")]
        with pytest.raises(InvalidInput, match="me@host/books") as refused:
            home.set(DemoSettings(database="postgresql://me:0ther@host/books"), fresh=False)
        assert not {"s3cret", "0ther"} & set(re.findall(r"\w+", str(refused.value)))


def test_another_system_than_linux_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(PodpoolError, match="needs Linux"):
        run_up(DemoSettings(), home=tmp_path, fresh=False, console=Console())


@pytest.mark.parametrize("answers", [[ApiNotFound("gone")], [Unreachable("pocket", "refused"), None]])
def test_an_act_survives_a_users_delete_and_a_restart_of_the_api_server(answers: list[Exception | None]) -> None:
    async def ask() -> None:
        if answer := answers.pop(0):
            raise answer

    asyncio.run(surely(ask))
    assert [] == answers


@pytest.mark.parametrize(("capacity", "nodes"), [(253, 1), (65_533, 8)])
def test_growth_has_an_end_when_the_nodes_are_full_before_the_subnet(capacity: int, nodes: int) -> None:
    settings = parse_settings(DemoSettings().overrides)
    counts = {f"node-{number}": 3 for number in range(nodes)}
    assert nodes * (settings.node_maximum - 1) >= full_at(capacity, counts, settings) > sum(counts.values())


class TestPods:
    def test_further_networks_are_read_as_multus_reads_them(self) -> None:
        pod = StagedPod(metadata=StagedMeta(annotations=StagedAnnotations(networks="wide, wide@left,other")))
        assert {"net1": "wide", "left": "wide", "net3": "other"} == pod.further
        assert {} == StagedPod().further

    def test_what_somebody_else_wrote_in_its_place_is_none(self) -> None:
        for status in ("nonsense", "{}", '[{"ips": 3}]', "[null]", '[{"name": "wide"}]'):
            pod = StagedPod(metadata=StagedMeta(annotations=StagedAnnotations(status=status)))
            assert [] == pod.further_addresses

    def test_what_was_given_is_told_as_multus_tells_it(self) -> None:
        told = network_status("default", {"net1": "wide"}, {"net1": "10.88.0.1"})
        (status,) = told.values()
        pod = StagedPod(metadata=StagedMeta(annotations=StagedAnnotations(status=status)))
        assert ["10.88.0.1"] == pod.further_addresses
        assert '"name":"default/wide"' in status
        assert NETWORKS not in told
