"""The image runs in a real containerd: read-only, as a plain user, without a shell."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from parts.daemon import Daemon
from parts.debian import command
from parts.loopback import answers, free_ports
from parts.podpool_image import NAME
from podpool import __version__
from podpool.cni.install import is_podpool
from tests.image.runtime import container
from tools.image.rootfs import USER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.image.runtime import Runtime

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("image"), pytest.mark.timeout(600)]
DATABASE = "sqlite:////var/lib/podpool/ledger.db"


def test_its_entrypoint_is_podpool(runtime: Runtime) -> None:
    done = runtime.run(NAME)
    assert 0 == done.returncode, done.stderr
    assert "podpool is IP address management" in done.stdout


def test_its_version_is_that_of_the_package(runtime: Runtime) -> None:
    assert __version__ == runtime.run(NAME, "podpool", "--version").stdout.strip()


def test_it_runs_as_a_plain_user_and_its_root_cannot_be_written(runtime: Runtime) -> None:
    script = "import os; print(os.getuid(), os.getgid()); open('/tmp/file', 'w')"
    done = runtime.run(NAME, "python3", "-c", script)
    assert f"{USER} {USER}" == done.stdout.strip()
    assert "Read-only file system" in done.stderr


def test_every_module_can_be_imported(runtime: Runtime) -> None:
    """With the libraries that the image has, and from bytecode: nothing is compiled when it starts."""
    script = (
        "import pkgutil, sys, importlib, podpool, pathlib\n"
        "for each in pkgutil.walk_packages(podpool.__path__, 'podpool.'):\n"
        "    if not each.name.endswith(('__main__', 'python_plugin')): importlib.import_module(each.name)\n"
        "import ssl, sqlite3, ctypes, decimal, lzma, bz2, uuid, uvloop, asyncpg, yaml, aiohttp, greenlet, msgspec\n"
        "assert ssl.create_default_context().cert_store_stats()['x509_ca'] > 100\n"
        "without = [each.__name__ for each in sys.modules.values() if getattr(each, '__cached__', None)\n"
        "           and not pathlib.Path(each.__cached__).exists()]\n"
        "print(without)\n"
    )
    done = runtime.run(NAME, "python3", "-c", script)
    assert "[]" == done.stdout.strip(), done.stderr


def test_a_ledger_serves_from_sqlite(runtime: Runtime, tmp_path: Path) -> None:
    state, port = tmp_path / "state", free_ports(2)
    state.mkdir()
    subprocess.run([command("chown"), str(USER), state], check=True)
    listen = ("--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{port + 1}")
    mounts, serve = {state: "/var/lib/podpool"}, ("podpool", "ledger", "serve", "--database", DATABASE, *listen)
    ledger = Daemon(
        runtime.argv(*container(NAME, "server", serve, ["--net-host"], mounts)),
        log=tmp_path / "log",
        ready=lambda: answers(port + 1, "/readyz"),
    )
    ledger.start()
    try:
        create = ("podpool", "ledger", "subnet", "create", "vnet.pods", "10.0.0.0/24", "--gateway", "10.0.0.1")
        reach = (
            "--ledger",
            f"http://127.0.0.1:{port}",
            "--ledger-token-file",
            "/var/lib/podpool/ledger.db.admin-token",
        )
        done = runtime.run(NAME, *create, *reach, options=["--net-host"], mounts=mounts)
        assert 0 == done.returncode, done.stderr
    finally:
        ledger.stop()
    assert USER == (state / "ledger.db").stat().st_uid


def test_the_plugin_is_installed_into_a_mounted_directory(runtime: Runtime, tmp_path: Path) -> None:
    """As an init container does it, as root."""
    target = tmp_path / "bin"
    target.mkdir()
    words = ("podpool", "cni", "install", "--bin-dir", "/host/bin")
    done = runtime.run(NAME, *words, options=["--user", "0"], mounts={target: "/host/bin"})
    assert 0 == done.returncode, done.stderr
    assert is_podpool(target / "podpool")
    environment = {"CNI_COMMAND": "VERSION"}
    answer = subprocess.run(
        [target / "podpool"], check=True, capture_output=True, env=environment, input=b'{"cniVersion": "1.1.0"}'
    )
    assert b'"1.1.0"' in answer.stdout


def test_the_image_for_arm64_runs_in_an_emulator(runtime: Runtime, tmp_path: Path) -> None:
    emulator = tmp_path / "emulator"
    emulator.mkdir()
    subprocess.run([command("cp"), command("qemu-aarch64-static"), emulator / "qemu"], check=True)
    words = ("/emulator/qemu", "/usr/bin/python3", "-sP", "/usr/local/bin/podpool", "version", "-o", "wide")
    done = runtime.run(NAME, *words, options=["--platform", "linux/arm64"], mounts={emulator: "/emulator"})
    assert 0 == done.returncode, done.stderr
    assert f"podpool {__version__} (Python 3.13" in done.stdout
    assert "aarch64" in done.stdout
