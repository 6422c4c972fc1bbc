"""The plugin's place: whole, checked, under any name, and undone."""

import errno
import importlib.util
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from podpool.cli.cni_cmds import install_plugin, uninstall_plugin
from podpool.cni import build, conflist
from podpool.cni import install as place
from podpool.cni.install import DoesNotRun, install, plain, uninstall
from podpool.cni.protocol import VERSIONS
from podpool.core.errors import InvalidInput

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


def versions(program: Path) -> list[str]:
    told = subprocess.run([program], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True)
    return list(json.loads(told.stdout)["supportedVersions"])


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


class TestInstalling:
    def test_under_the_name_of_another_the_other_is_kept_and_comes_back(self, tmp_path: Path) -> None:
        theirs = tmp_path / "whereabouts"
        theirs.write_text("#!/bin/sh\n")
        theirs.chmod(0o755)
        install(tmp_path, name="whereabouts")
        install(tmp_path, name="whereabouts")
        assert list(VERSIONS) == versions(theirs)
        assert ["whereabouts", "whereabouts.before-podpool"] == names(tmp_path)
        assert theirs == uninstall(tmp_path, name="whereabouts")
        assert "#!/bin/sh\n" == theirs.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_refused_nothing_is_left_beside_the_other(self, tmp_path: Path) -> None:
        theirs = written(tmp_path / "whereabouts", "theirs")
        with pytest.raises(DoesNotRun):
            install(tmp_path, name="whereabouts", made=b"#!/bin/sh\nexit 1\n")
        assert "theirs" == theirs.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_that_cannot_be_moved_leaves_nothing_either(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_path: Path, _target: Path) -> Path:
            raise OSError(errno.ENOSPC, "no space left on the device")

        theirs, made = written(tmp_path / "whereabouts", "theirs"), place.content()
        monkeypatch.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="no space"):
            install(tmp_path, name="whereabouts", made=made)
        assert "theirs" == theirs.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_again_over_a_newer_one_of_others_the_newer_one_comes_back(self, tmp_path: Path) -> None:
        theirs = written(tmp_path / "whereabouts", "theirs")
        install(tmp_path, name="whereabouts")
        theirs.unlink()
        written(theirs, "their upgrade")
        install(tmp_path, name="whereabouts")
        uninstall(tmp_path, name="whereabouts")
        assert "their upgrade" == theirs.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_undone_nothing_is_left_and_files_of_others_stay(self, tmp_path: Path) -> None:
        install(tmp_path)
        (tmp_path / "bridge").write_text("theirs")
        assert tmp_path / "podpool" == uninstall(tmp_path)
        assert None is uninstall(tmp_path)
        assert None is uninstall(tmp_path, name="bridge")
        assert ["bridge"] == names(tmp_path)

    def test_undone_after_others_came_back_theirs_stays_and_that_is_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        theirs = written(tmp_path / "whereabouts", "theirs")
        install(tmp_path, name="whereabouts")
        theirs.unlink()
        written(theirs, "their upgrade")
        assert None is uninstall(tmp_path, name="whereabouts")
        assert "their upgrade" == theirs.read_text()
        kept = tmp_path / "whereabouts.before-podpool"
        assert "theirs" == kept.read_text()
        assert f"{theirs} is not podpool's any more" in caplog.text
        assert str(kept) in caplog.text

    def test_undone_after_somebody_took_it_away_the_other_comes_back(self, tmp_path: Path) -> None:
        theirs = written(tmp_path / "whereabouts", "theirs")
        install(tmp_path, name="whereabouts")
        theirs.unlink()
        assert theirs == uninstall(tmp_path, name="whereabouts")
        assert "theirs" == theirs.read_text()

    def test_undone_after_it_died_on_the_way_only_the_other_is_left(self, tmp_path: Path) -> None:
        theirs = written(tmp_path / "whereabouts", "theirs")
        os.link(theirs, tmp_path / "whereabouts.before-podpool")
        assert None is uninstall(tmp_path, name="whereabouts")
        assert ["whereabouts"] == names(tmp_path)

    def test_one_that_does_not_run_is_not_put_in_place(self, tmp_path: Path) -> None:
        install(tmp_path)
        good = (tmp_path / "podpool").read_bytes()
        for bad in (b"\x7fELF rubbish", b"#!/bin/sh\nexit 1\n", b"#!/bin/sh\necho '{\"supportedVersions\": []}'\n"):
            with pytest.raises(DoesNotRun):
                install(tmp_path, made=bad)
        assert good == (tmp_path / "podpool").read_bytes()
        assert ["podpool"] == names(tmp_path)

    @pytest.mark.parametrize("name", ["", "../podpool", ".hidden"])
    def test_a_name_that_is_none_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidInput, match="--name"):
            install(tmp_path / "bin", name=name)

    def test_the_command_does_all_of_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        bins, confs = tmp_path / "bin", tmp_path / "net.d"
        install_plugin(bin_dir=str(bins), name="podpool,whereabouts", conf_dir=str(confs), cni_template="")
        placed = [str(bins / "podpool"), str(bins / "whereabouts"), str(confs / conflist.NAME)]
        assert placed == capsys.readouterr().out.split()
        uninstall_plugin(bin_dir=str(bins), name="podpool,whereabouts", conf_dir=str(confs))
        assert placed == capsys.readouterr().out.split()
        assert ([], []) == (names(bins), names(confs))

    def test_a_place_that_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInput, match="cannot be written"):
            install_plugin(bin_dir=str(tmp_path / "file"), name="podpool", conf_dir="", cni_template="")


class TestFallbacks:
    def test_when_zig_fails_the_machines_own_compiler_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (own,) = [each for each in build.compilers(platform.machine()) if "ziglang" not in each]
        monkeypatch.setattr(build, "compilers", lambda _architecture: [("false",), own])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert list(VERSIONS) == versions(build.build(platform.machine()))

    def test_who_waits_gets_that_of_the_own_compiler_until_there_is_a_better_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Zig needs a minute when it is first used."""
        (own,) = [each for each in build.compilers(platform.machine()) if "ziglang" not in each]
        better = (*own, "-O1")
        monkeypatch.setattr(build, "compilers", lambda _architecture: [better, own])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        soon = build.build(platform.machine(), soon=True)
        best = build.build(platform.machine())
        assert soon != best
        assert best == build.build(platform.machine(), soon=True)

    def test_who_ends_the_compiler_does_not_want_another(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ended = tmp_path / "cc"
        ended.write_text("#!/bin/sh\nkill -KILL $$\n")
        ended.chmod(0o755)
        monkeypatch.setattr(build, "compilers", lambda _architecture: [(str(ended),), ("true",)])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(build.Interrupted, match="was interrupted"):
            build.build(platform.machine())

    def test_without_any_compiler_the_plugin_is_in_python(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        monkeypatch.setattr(place, "BUILT_IN", tmp_path / "nothing")
        installed = install(tmp_path / "bin")
        assert installed.read_bytes().startswith(f"#!{sys.executable} -ISE\n".encode())
        assert list(VERSIONS) == versions(installed)

    def test_for_another_machine_there_is_no_such_way_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        foreign = next(each for each in build.ARCHITECTURES if each != platform.machine())
        with pytest.raises(build.NoCompiler):
            install(Path("/nowhere"), architecture=foreign)

    def test_an_interpreter_that_no_script_can_name_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", f"/{'long/' * 30}python")
        with pytest.raises(InvalidInput, match="too long"):
            plain()


class TestConfiguration:
    def test_ours_is_ptp_with_our_addresses(self, tmp_path: Path) -> None:
        written = conflist.write(tmp_path, conflist.content())
        assert tmp_path / "10-podpool.conflist" == written
        told = json.loads(written.read_bytes())
        assert [("ptp", "podpool")] == [(each["type"], each["ipam"]["type"]) for each in told["plugins"]]
        assert 0o644 == stat.S_IMODE(written.stat().st_mode)

    def test_what_is_there_already_is_left_as_it_is(self, tmp_path: Path) -> None:
        before = conflist.write(tmp_path, conflist.content()).stat().st_ino
        assert before == conflist.write(tmp_path, conflist.content()).stat().st_ino
        assert before != conflist.write(tmp_path, b"another").stat().st_ino

    def test_a_template_is_taken_as_it_is(self, tmp_path: Path) -> None:
        template = tmp_path / "mine"
        template.write_text('{"cniVersion":"1.1.0","name":"mine","plugins":[{"type":"bridge","mtu":9000}]}')
        assert template.read_bytes() == conflist.content(str(template))

    @pytest.mark.parametrize("told", ["{", "[]", '{"cniVersion":"1.0.0","name":"x","plugins":[]}', None])
    def test_one_that_no_runtime_could_use_is_refused(self, tmp_path: Path, told: str | None) -> None:
        template = tmp_path / "mine"
        if told is not None:
            template.write_text(told)
        with pytest.raises(InvalidInput, match="--cni-template"):
            conflist.content(str(template))
