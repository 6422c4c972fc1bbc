"""The pieces of `podpool up` that need no process."""

from pathlib import Path

import pytest
from rich.console import Console

from podpool.cli.up.pods import NETWORKS, StagedAnnotations, StagedMeta, StagedPod, network_status
from podpool.cli.up.screen import Screen, drawn
from podpool.cli.up.settings import Home, Settings
from podpool.cli.up.stage import NodePicture, Picture
from podpool.core.errors import InvalidInput


def node(name: str, *, alive: bool = True) -> NodePicture:
    return NodePicture(name=name, alive=alive, running=3, waiting=1, held=15, requested=15, batch=16)


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
        console = Console(force_terminal=True, width=80, color_system=None)
        with console.capture() as captured, Screen(console) as screen:
            screen.pin("the page is there")
            for number in range(40):
                screen.tell(f"line {number}")
            screen.show(PICTURE)
        last = captured.get().rpartition("node-1")[2]
        assert "the page is there" in last
        assert "line 39" in last


class TestHome:
    def test_a_second_start_goes_on_unless_it_is_fresh(self, tmp_path: Path) -> None:
        home, settings = Home(tmp_path / "up"), Settings()
        assert not home.set(settings, fresh=False)
        home.file("nodes", "node-1", "journal").write_text("kept")
        assert home.set(Settings(nodes=3, batch=8), fresh=False)
        assert not home.set(settings, fresh=True)
        assert not (tmp_path / "up" / "nodes").exists()

    def test_a_lost_machine_leaves_no_disk_and_the_next_has_another_boot(self, tmp_path: Path) -> None:
        home = Home(tmp_path)
        home.file("nodes", "node-1", "journal").write_text("lost")
        for _ in range(2):
            home.replace_machine("node-1")
        assert not (tmp_path / "nodes" / "node-1").exists()
        assert "2" == home.file("lost", "node-1").read_text()

    @pytest.mark.parametrize("other", [Settings(subnet="10.1.0.0/24"), Settings(api="real"), Settings(database="x")])
    def test_what_books_and_objects_depend_on_does_not_change(self, tmp_path: Path, other: Settings) -> None:
        home = Home(tmp_path)
        home.set(Settings(), fresh=False)
        with pytest.raises(InvalidInput, match="--fresh"):
            home.set(other, fresh=False)


class TestPods:
    def test_further_networks_are_read_as_multus_reads_them(self) -> None:
        pod = StagedPod(metadata=StagedMeta(annotations=StagedAnnotations(networks="wide, wide@left,other")))
        assert {"net1": "wide", "left": "wide", "net3": "other"} == pod.further
        assert {} == StagedPod().further

    def test_what_was_given_is_told_as_multus_tells_it(self) -> None:
        told = network_status("default", {"net1": "wide"}, {"net1": "10.88.0.1"})
        (status,) = told.values()
        pod = StagedPod(metadata=StagedMeta(annotations=StagedAnnotations(status=status)))
        assert ["10.88.0.1"] == pod.further_addresses
        assert '"name":"default/wide"' in status
        assert NETWORKS not in told
