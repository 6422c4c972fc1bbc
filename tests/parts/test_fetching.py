"""Parts are made once, whole or not at all, and whoever must wait or act is told so in a sentence."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from parts import cache, debian, recipes, steps, wheels
from parts.steps import PartMissing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No part is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(recipes.ASSETS, raising=False)


class TestCache:
    def test_a_part_is_kept_by_name_and_version(self, tmp_path: Path) -> None:
        assert cache.place("etcd", "3.6.8") == tmp_path / "podpool/parts/etcd-3.6.8"

    def test_what_fails_half_way_leaves_nothing(self) -> None:
        home = cache.place("lamp", "1")

        def half(scratch: Path) -> None:
            (scratch / "one").touch()
            raise PartMissing("no second")

        with pytest.raises(PartMissing):
            cache.keep(home, ["one", "two"], half)
        assert not home.exists()
        assert [path.name for path in home.parent.iterdir()] == [".lamp-1.lock"]

    def test_two_calls_at_once_make_a_part_once(self) -> None:
        home = cache.place("lamp", "1")
        begun, go_on = threading.Event(), threading.Event()
        made = []

        def make(scratch: Path) -> None:
            made.append(scratch)
            begun.set()
            go_on.wait()
            (scratch / "lamp").touch()

        first, second = (threading.Thread(target=cache.keep, args=(home, ["lamp"], make)) for _ in range(2))
        first.start()
        begun.wait()
        second.start()
        go_on.set()
        first.join()
        second.join()
        assert len(made) == 1
        assert cache.complete(home, ["lamp"])

    def test_a_recipe_that_wants_more_of_the_same_version_makes_it_again(self) -> None:
        home = cache.place("lamp", "1")
        cache.keep(home, ["one"], lambda scratch: (scratch / "one").touch())
        assert not cache.complete(home, ["one", "two"])
        cache.keep(home, ["two"], lambda scratch: (scratch / "two").touch())
        assert [path.name for path in home.iterdir()] == ["two"]


class TestSteps:
    def test_a_failed_step_shows_its_last_lines_and_ends_with_what_to_do(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(PartMissing, match=r"^mend it$"):
            steps.run(sys.executable, "-c", "print('disk full'); raise SystemExit(1)", otherwise="mend it")
        assert capsys.readouterr().out == "disk full\n"

    @pytest.mark.integration
    def test_a_step_that_takes_long_gives_signs_of_life(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(steps, "SIGN_OF_LIFE", 0.05)
        steps.run(sys.executable, "-c", "import time; time.sleep(0.5)", otherwise="")
        assert "podpool:   ... " in capsys.readouterr().out

    def test_a_step_prints_its_usual_and_its_actual_duration(self, capsys: pytest.CaptureFixture[str]) -> None:
        with steps.progress("making a lamp", usually="3 s"):
            pass
        assert capsys.readouterr().out.splitlines() == [
            "podpool: making a lamp (usually 3 s) ...",
            "podpool: making a lamp: done in 0 s",
        ]


class TestPrograms:
    def test_one_that_is_not_built_names_the_command(self) -> None:
        with pytest.raises(PartMissing, match=r"etcd \S+ is not built: run 'make parts'"):
            recipes.program("etcd")

    def test_one_that_the_user_brings_is_taken_and_not_built(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "etcd").touch()
        monkeypatch.setenv(recipes.ASSETS, str(tmp_path))
        recipes.build(recipes.RECIPES[0])
        assert recipes.program("etcd") == tmp_path / "etcd"
        assert not capsys.readouterr().out

    def test_every_recipe_names_a_module_with_hashes(self) -> None:
        for recipe in recipes.RECIPES:
            module = recipes.MODULES / recipe.module
            assert (module / "go.sum").exists()
            assert all(package == "." or package in (module / "go.mod").read_text() for package in recipe.packages)

    def test_every_wheel_is_pinned_by_hash(self) -> None:
        for lock in wheels.LOCKS.glob("*.lock"):
            assert wheels.pin(lock.stem)[0].isdigit()
            assert "--hash=sha256:" in lock.read_text()


class TestDebian:
    @pytest.fixture(autouse=True)
    def no_ping(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(debian, "find", lambda command: None if command == "ping" else command)

    def test_a_plain_user_gets_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        monkeypatch.setattr("shutil.which", lambda command: command)
        with pytest.raises(PartMissing, match=r"^type 'sudo apt-get install -y iputils-ping', then try again"):
            debian.install()

    def test_another_system_gets_the_commands(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shutil.which", lambda _: None)
        with pytest.raises(PartMissing, match="install them as your system does it: ping"):
            debian.install()
