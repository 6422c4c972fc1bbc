"""Installation and removal of the plugin, its fallbacks, and the conflist."""

import errno
import importlib.util
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podpool.cli.commands.cni import install_plugin, uninstall_plugin
from podpool.cni import build, conflist
from podpool.cni import install as installer
from podpool.cni.install import install, python_plugin, uninstall
from podpool.cni.protocol import VERSIONS
from podpool.cni.supported_cni_versions import PluginDoesNotRun
from podpool.core.errors import InvalidInput

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("shim")]


NOT_UTF_8 = pytest.param(b'{"name":"\xff","plugins":[]}', id="not UTF-8")
DEEP = pytest.param(b'{"name":"podpool","plugins":[{"x":' + b"[" * 100_000, id="deep")


def versions(program: Path) -> list[str]:
    done = subprocess.run([program], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True)
    return list(json.loads(done.stdout)["supportedVersions"])


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


class TestInstall:
    def test_uninstall_restores_the_third_party_plugin_it_replaced(self, tmp_path: Path) -> None:
        other = tmp_path / "whereabouts"
        other.write_text("#!/bin/sh\n")
        other.chmod(0o755)
        install(tmp_path, name="whereabouts")
        install(tmp_path, name="whereabouts")
        assert list(VERSIONS) == versions(other)
        assert ["whereabouts", "whereabouts.before-podpool"] == names(tmp_path)
        assert other == uninstall(tmp_path, name="whereabouts")
        assert "#!/bin/sh\n" == other.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_failed_check_leaves_the_third_party_plugin_and_no_backup(self, tmp_path: Path) -> None:
        other = written(tmp_path / "whereabouts", "third-party")
        with pytest.raises(PluginDoesNotRun):
            install(tmp_path, name="whereabouts", content=b"#!/bin/sh\nexit 1\n")
        assert "third-party" == other.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_failed_rename_leaves_no_backup(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_path: Path, _target: Path) -> Path:
            raise OSError(errno.ENOSPC, "no space left on the device")

        other, content = written(tmp_path / "whereabouts", "third-party"), installer.plugin_content()
        monkeypatch.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="no space"):
            install(tmp_path, name="whereabouts", content=content)
        assert "third-party" == other.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_reinstall_backs_up_the_newer_third_party_plugin(self, tmp_path: Path) -> None:
        other = written(tmp_path / "whereabouts", "third-party")
        install(tmp_path, name="whereabouts")
        other.unlink()
        written(other, "third-party upgrade")
        install(tmp_path, name="whereabouts")
        uninstall(tmp_path, name="whereabouts")
        assert "third-party upgrade" == other.read_text()
        assert ["whereabouts"] == names(tmp_path)

    def test_uninstall_removes_only_podpool_files(self, tmp_path: Path) -> None:
        install(tmp_path)
        (tmp_path / "bridge").write_text("third-party")
        assert tmp_path / "podpool" == uninstall(tmp_path)
        assert None is uninstall(tmp_path)
        assert None is uninstall(tmp_path, name="bridge")
        assert ["bridge"] == names(tmp_path)

    def test_uninstall_keeps_a_newer_third_party_plugin_and_logs_the_backup(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = written(tmp_path / "whereabouts", "third-party")
        install(tmp_path, name="whereabouts")
        other.unlink()
        written(other, "third-party upgrade")
        assert None is uninstall(tmp_path, name="whereabouts")
        assert "third-party upgrade" == other.read_text()
        backup = tmp_path / "whereabouts.before-podpool"
        assert "third-party" == backup.read_text()
        assert "third-party plugin left in place" in caplog.text
        assert str(backup) in str(caplog.records[0].__dict__)

    def test_uninstall_restores_the_backup_when_the_plugin_is_already_removed(self, tmp_path: Path) -> None:
        other = written(tmp_path / "whereabouts", "third-party")
        install(tmp_path, name="whereabouts")
        other.unlink()
        assert other == uninstall(tmp_path, name="whereabouts")
        assert "third-party" == other.read_text()

    def test_uninstall_after_an_interrupted_install_removes_the_backup(self, tmp_path: Path) -> None:
        other = written(tmp_path / "whereabouts", "third-party")
        os.link(other, tmp_path / "whereabouts.before-podpool")
        assert None is uninstall(tmp_path, name="whereabouts")
        assert ["whereabouts"] == names(tmp_path)

    def test_plugin_that_does_not_run_is_not_installed(self, tmp_path: Path) -> None:
        install(tmp_path)
        good = (tmp_path / "podpool").read_bytes()
        for bad in (b"\x7fELF rubbish", b"#!/bin/sh\nexit 1\n", b"#!/bin/sh\necho '{\"supportedVersions\": []}'\n"):
            with pytest.raises(PluginDoesNotRun):
                install(tmp_path, content=bad)
        assert good == (tmp_path / "podpool").read_bytes()
        assert ["podpool"] == names(tmp_path)

    @pytest.mark.parametrize("name", ["", "../podpool", ".hidden"])
    def test_invalid_name_is_rejected(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidInput, match="--name"):
            install(tmp_path / "bin", name=name)

    def test_commands_install_and_uninstall_everything(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bins, confs = tmp_path / "bin", tmp_path / "net.d"
        install_plugin(
            bin_dir=str(bins),
            name="podpool,whereabouts",
            conf_dir=str(confs),
            cni_profile="routed",
            cni_options="",
            cni_template="",
        )
        paths = [str(bins / "podpool"), str(bins / "whereabouts"), str(confs / conflist.NAME)]
        assert paths == capsys.readouterr().out.split()
        uninstall_plugin(bin_dir=str(bins), name="podpool,whereabouts", conf_dir=str(confs))
        assert paths == capsys.readouterr().out.split()
        assert ([], []) == (names(bins), names(confs))

    def test_unwritable_directory_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInput, match="cannot be written"):
            install_plugin(
                bin_dir=str(tmp_path / "file"),
                name="podpool",
                conf_dir="",
                cni_profile="routed",
                cni_options="",
                cni_template="",
            )


class TestFallbacks:
    def test_local_compiler_is_used_when_zig_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (own,) = [each for each in build.compilers(platform.machine()) if "ziglang" not in each]
        monkeypatch.setattr(build, "compilers", lambda _architecture: [("false",), own])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert list(VERSIONS) == versions(build.build(platform.machine()))

    def test_another_environment_with_the_same_zig_uses_the_cached_plugin(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An isolated build of the package has an interpreter of its own, at a path that no other build has."""
        built = build.build(platform.machine())
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        assert built == build.build(platform.machine())

    def test_local_first_uses_the_local_compiler_until_a_better_build_is_cached(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Zig takes a minute on first use."""
        (own,) = [each for each in build.compilers(platform.machine()) if "ziglang" not in each]
        better = (*own, "-O1")
        monkeypatch.setattr(build, "compilers", lambda _architecture: [better, own])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        local = build.build(platform.machine(), local_first=True)
        best = build.build(platform.machine())
        assert local != best
        assert best == build.build(platform.machine(), local_first=True)

    def test_interrupted_build_does_not_try_the_next_compiler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed = tmp_path / "cc"
        killed.write_text("#!/bin/sh\nkill -KILL $$\n")
        killed.chmod(0o755)
        monkeypatch.setattr(build, "compilers", lambda _architecture: [(str(killed),), ("true",)])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(build.BuildInterrupted, match="was interrupted"):
            build.build(platform.machine())

    def test_python_plugin_is_installed_without_any_compiler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        monkeypatch.setattr(installer, "PREBUILT", tmp_path / "nothing")
        installed = install(tmp_path / "bin")
        assert installed.read_bytes().startswith(f"#!{sys.executable} -ISE\n".encode())
        assert list(VERSIONS) == versions(installed)

    def test_python_plugin_is_not_used_for_another_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        another = next(each for each in build.ARCHITECTURES if each != platform.machine())
        with pytest.raises(build.NoCompiler):
            install(Path("/nowhere"), architecture=another)

    def test_interpreter_path_too_long_for_a_shebang_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", f"/{'long/' * 30}python")
        with pytest.raises(InvalidInput, match="too long"):
            python_plugin()


class TestConflist:
    def test_default_is_ptp_with_podpool_ipam(self, tmp_path: Path) -> None:
        written = conflist.write(tmp_path, conflist.load())
        assert tmp_path / "10-podpool.conflist" == written
        config = json.loads(written.read_bytes())
        assert [("ptp", "podpool")] == [(each["type"], each["ipam"]["type"]) for each in config["plugins"]]
        assert 0o644 == stat.S_IMODE(written.stat().st_mode)

    def test_unchanged_file_is_not_rewritten(self, tmp_path: Path) -> None:
        before = conflist.write(tmp_path, conflist.load()).stat().st_ino
        assert before == conflist.write(tmp_path, conflist.load()).stat().st_ino
        assert before != conflist.write(tmp_path, b"another").stat().st_ino

    def test_template_is_used_unchanged(self, tmp_path: Path) -> None:
        template = tmp_path / "mine"
        template.write_text('{"cniVersion":"1.1.0","name":"mine","plugins":[{"type":"bridge","mtu":9000}]}')
        assert template.read_bytes() == conflist.load(str(template))

    @pytest.mark.parametrize(
        "content", [b"{", b"[]", b'{"cniVersion":"1.0.0","name":"x","plugins":[]}', None, NOT_UTF_8, DEEP]
    )
    def test_invalid_template_is_rejected(self, tmp_path: Path, content: bytes | None) -> None:
        template = tmp_path / "mine"
        if content is not None:
            template.write_bytes(content)
        with pytest.raises(InvalidInput, match="--cni-template"):
            conflist.load(str(template))

    def test_default_offers_cni_1_1_where_ptp_supports_it(self, tmp_path: Path) -> None:
        interface_plugin(tmp_path, "0.4.0", "1.0.0", "1.1.0")
        config = json.loads(conflist.load(bin_dir=str(tmp_path)))
        assert ("1.0.0", ["1.0.0", "1.1.0"]) == (config["cniVersion"], config["cniVersions"])

    def test_default_is_cni_1_0_for_an_older_ptp(self, tmp_path: Path) -> None:
        interface_plugin(tmp_path, "0.4.0", "1.0.0")
        assert conflist.load() == conflist.load(bin_dir=str(tmp_path))

    @pytest.mark.parametrize("script", [None, "exit 1", "echo nothing", "echo '{}'"])
    def test_default_is_cni_1_0_if_ptp_is_not_known(self, tmp_path: Path, script: str | None) -> None:
        if script:
            write_script(tmp_path / "ptp", script)
        config = json.loads(conflist.load(bin_dir=str(tmp_path)))
        assert "1.0.0" == config["cniVersion"]
        assert "cniVersions" not in config


class TestRestoredConflist:
    def test_unchanged_file_stays(self, tmp_path: Path) -> None:
        conflist.write(tmp_path, conflist.load())
        assert not conflist.restore(tmp_path, conflist.load())

    @pytest.mark.parametrize(
        "content", [None, b"", b"{", b'{"name":"podpool","plugins":[{"type":"ptp"}]}', NOT_UTF_8, DEEP]
    )
    def test_removed_or_changed_file_is_restored(self, tmp_path: Path, content: bytes | None) -> None:
        path = conflist.write(tmp_path, conflist.load())
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        assert conflist.restore(tmp_path, conflist.load())
        assert conflist.load() == path.read_bytes()

    def test_plugins_that_others_added_stay(self, tmp_path: Path) -> None:
        """A service mesh chains its plugin into the first configuration, and would do it again after each write."""
        path = conflist.write(tmp_path, conflist.load())
        config = json.loads(path.read_bytes())
        config["plugins"].append({"type": "istio-cni", "ambient": True})
        path.write_text(json.dumps(config))
        assert not conflist.restore(tmp_path, conflist.load())
        assert json.dumps(config) == conflist.write(tmp_path, conflist.load()).read_text()
        config["plugins"].pop(0)
        path.write_text(json.dumps(config))
        assert conflist.restore(tmp_path, conflist.load())

    def test_plugins_that_others_added_stay_when_the_version_changes(self, tmp_path: Path) -> None:
        path, mesh = conflist.write(tmp_path, conflist.load()), {"type": "istio-cni"}
        config = json.loads(path.read_bytes())
        path.write_text(json.dumps(config | {"plugins": [*config["plugins"], mesh]}))
        interface_plugin(tmp_path, "1.0.0", "1.1.0")
        wanted = json.loads(conflist.load(bin_dir=str(tmp_path)))
        conflist.write(tmp_path, conflist.load(bin_dir=str(tmp_path)))
        assert wanted | {"plugins": [*wanted["plugins"], mesh]} == json.loads(path.read_bytes())

    @pytest.mark.parametrize("function", [conflist.write, conflist.restore])
    def test_what_is_not_a_file_or_too_long_is_replaced_without_reading_all_of_it(
        self, tmp_path: Path, function: Callable[[Path, bytes], object]
    ) -> None:
        path = tmp_path / conflist.NAME

        def fifo() -> None:
            os.mkfifo(path)

        def endless() -> None:
            path.symlink_to("/dev/zero")

        def long() -> None:
            with path.open("wb") as file:
                file.truncate(1 << 40)  # sparse

        def listening() -> None:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))

        for create in (fifo, endless, long, listening):
            create()
            function(tmp_path, conflist.load())
            assert conflist.load() == path.read_bytes()
            path.unlink()


def interface_plugin(bin_dir: Path, *versions: str) -> None:
    """Write a ptp that supports these versions."""
    write_script(bin_dir / "ptp", f"echo '{json.dumps({'cniVersion': '1.0.0', 'supportedVersions': versions})}'")


def write_script(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
