"""Installs the plugin into the runtime's plugin directory, under its own name or under that of a plugin it replaces.

What must hold: a runtime finds a complete plugin at any moment; a plugin that does not run on this machine is not
installed; a third-party file of the same name is kept as a backup, and `uninstall` restores it, unless a third-party
file has been installed over podpool's in the meantime.
"""

import os
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from podpool.cni.atomic_write import temporary_file
from podpool.cni.build import BuildFailed, NoCompiler, build, plugin_name
from podpool.cni.paths import BIN_DIR
from podpool.cni.protocol import VERSIONS
from podpool.cni.supported_cni_versions import PluginDoesNotRun, supported_versions
from podpool.core.errors import InvalidInput
from podpool.runtime.logging import get_logger

PREBUILT = Path(__file__).with_name("bin")
"""The plugins that a wheel contains; a checkout has none, and builds its own."""
PYTHON_PLUGIN = Path(__file__).with_name("python_plugin.py")
BACKUP_SUFFIX = ".before-podpool"
COMPILE_NOTICE_DELAY = 0.5
"""Seconds within which a plugin that was compiled before is found."""

_SIGNATURE = b"the podpool agent is not running on this node"
"""An error message that every podpool plugin contains."""
_MAX_SHEBANG = 120

log = get_logger(__name__)


def find_plugin(architecture: str | None = None, *, local_first: bool = False) -> Path:
    """Return the compiled plugin of an architecture (default: this machine's), built if the package has none."""
    architecture = architecture or platform.machine()
    prebuilt = PREBUILT / plugin_name(architecture)
    return prebuilt if prebuilt.exists() else build(architecture, local_first=local_first)


def plugin_content(
    architecture: str | None = None,
    *,
    local_first: bool = False,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> bytes:
    """Return the compiled plugin, or the Python plugin if no compiler can build it for this machine.

    `on_progress` is called, from any thread, if it takes long or the Python plugin has to be used.
    """
    notice = "compiling the CNI plugin, which may take a minute the first time"
    timer = threading.Timer(COMPILE_NOTICE_DELAY, on_progress, (notice,))
    timer.start()
    try:
        return find_plugin(architecture, local_first=local_first).read_bytes()
    except (NoCompiler, BuildFailed) as error:
        if architecture not in (None, platform.machine()):
            raise
        on_progress(f"{error}; using the plugin in Python, which is slower")
        return python_plugin()
    finally:
        timer.cancel()


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
        "third-party plugin left in place, it has replaced podpool's; remove the backup if it is not needed",
        path=str(path),
        backup=str(backup),
    )


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}{BACKUP_SUFFIX}")


def is_podpool(path: Path) -> bool:
    """Return whether a file is a podpool plugin."""
    return _SIGNATURE in path.read_bytes()


def check_runs(path: Path) -> None:
    """Check that the plugin runs and is of this release; raises `PluginDoesNotRun`."""
    versions = supported_versions(path)
    if versions != VERSIONS:
        raise PluginDoesNotRun(f"the CNI plugin supports {versions}, expected {VERSIONS}: it is not installed")
