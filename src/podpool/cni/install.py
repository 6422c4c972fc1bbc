"""Installs the plugin into the runtime's plugin directory, under its own name or under that of a plugin it replaces.

What must hold: a runtime finds a complete plugin at any moment; a plugin that does not run on this machine is not
installed; a third-party file of the same name is kept as a backup, and `uninstall` restores it, unless a third-party
file has been installed over podpool's in the meantime.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec

from podpool.cni.atomic_write import temporary_file
from podpool.cni.build import BuildFailed, NoCompiler, build, plugin_name
from podpool.cni.paths import BIN_DIR
from podpool.cni.protocol import VERSIONS
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.runtime.logging import get_logger

PREBUILT = Path(__file__).with_name("bin")
"""The plugins that a wheel contains; a checkout has none, and builds its own."""
PYTHON_PLUGIN = Path(__file__).with_name("python_plugin.py")
BACKUP_SUFFIX = ".before-podpool"

_SIGNATURE = b"the podpool agent is not running on this node"
"""An error message that every podpool plugin contains."""
_MAX_SHEBANG = 120

log = get_logger(__name__)


class PluginDoesNotRun(PodpoolError):
    """The plugin was built, but does not run on this machine."""


def find_plugin(architecture: str | None = None, *, local_first: bool = False) -> Path:
    """Return the compiled plugin of an architecture (default: this machine's), built if the package has none."""
    architecture = architecture or platform.machine()
    prebuilt = PREBUILT / plugin_name(architecture)
    return prebuilt if prebuilt.exists() else build(architecture, local_first=local_first)


def plugin_content(architecture: str | None = None) -> bytes:
    """Return the compiled plugin, or the Python plugin if no compiler can build it for this machine."""
    try:
        return find_plugin(architecture).read_bytes()
    except (NoCompiler, BuildFailed):
        if architecture not in (None, platform.machine()):
            raise
        return python_plugin()


def python_plugin() -> bytes:
    """Return the Python plugin, with this interpreter in its first line."""
    shebang = f"#!{sys.executable} -ISE\n".encode()
    if len(shebang) > _MAX_SHEBANG or " " in sys.executable:
        raise InvalidInput("interpreter", sys.executable, "is too long, or has a space, for the first line of a script")
    return shebang + PYTHON_PLUGIN.read_bytes()


def install(
    bin_dir: Path = Path(BIN_DIR),
    *,
    name: str = "podpool",
    architecture: str | None = None,
    content: bytes | None = None,
) -> Path:
    """Install the plugin atomically, after a check that it runs; returns its path."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidInput("--name", name, "is not a valid plugin name: use a file name without a leading dot")
    content = plugin_content(architecture) if content is None else content
    path = bin_dir / name
    with temporary_file(path, content, mode=0o755) as temporary:
        if architecture in (None, platform.machine()):
            check_runs(temporary)
        _replace(temporary, path)
    return path


def _replace(temporary: Path, path: Path) -> None:
    """Move the plugin to its path; a third-party file there is kept as a backup."""
    if not path.exists() or is_podpool(path):
        temporary.rename(path)
        return
    backup = _backup(path)
    backup.unlink(missing_ok=True)  # an older version: `uninstall` restores the latest
    os.link(path, backup)
    try:
        temporary.rename(path)
    except OSError:
        backup.unlink()
        raise


def uninstall(bin_dir: Path = Path(BIN_DIR), *, name: str = "podpool") -> Path | None:
    """Remove the plugin and restore the backup; returns the path that changed, or None."""
    path = bin_dir / name
    backup = _backup(path)
    if path.exists() and not is_podpool(path):
        _keep_third_party(path, backup)
        return None
    if backup.exists():
        backup.rename(path)
        return path
    if path.exists():
        path.unlink()
        return path
    return None


def _keep_third_party(path: Path, backup: Path) -> None:
    if not backup.exists():
        return
    if backup.samefile(path):  # an install was interrupted before it replaced the file
        backup.unlink()
        return
    log.warning(
        "third-party plugin left in place, backup kept; remove the backup if it is not needed",
        path=str(path),
        backup=str(backup),
    )


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}{BACKUP_SUFFIX}")


def is_podpool(path: Path) -> bool:
    """Return whether a file is a podpool plugin."""
    return _SIGNATURE in path.read_bytes()


def check_runs(path: Path) -> None:
    """Run the plugin's VERSION command; raises `PluginDoesNotRun`."""
    try:
        done = subprocess.run([path], env={"CNI_COMMAND": "VERSION"}, input=b"", capture_output=True, check=True)  # noqa: S603  our own
        versions = msgspec.json.decode(done.stdout)["supportedVersions"]
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise PluginDoesNotRun(f"the CNI plugin does not run on this machine and is not installed: {error}") from None
    if list(VERSIONS) != versions:
        raise PluginDoesNotRun(f"the CNI plugin supports {versions}, expected {list(VERSIONS)}: it is not installed")
