"""Puts the plugin where the container runtime looks for it, under its own name or under that of a plugin it replaces.

What must hold: a runtime finds a whole plugin at any moment; a plugin that does not run is not put in place; a file of
others that stood there is kept beside it, and `uninstall` puts it back, unless others have come back by themselves.
"""

import logging
import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec

from podpool.cni import conflist
from podpool.cni.atomic_write import written_beside
from podpool.cni.build import BuildFailed, NoCompiler, build, plugin_name
from podpool.cni.paths import BIN_DIR
from podpool.cni.protocol import VERSIONS
from podpool.core.errors import InvalidInput, PodpoolError

BUILT_IN = Path(__file__).with_name("bin")
"""The plugins that a wheel carries; a checkout has none, and builds its own."""
PLAIN = Path(__file__).with_name("plain.py")
KEPT = ".before-podpool"
"""What a file of others is kept under: its name, and this."""

_MARK = b"podpool's agent is not running on this node"
"""What every plugin of ours can say."""
_LONGEST_SHEBANG = 120

_log = logging.getLogger(__name__)


class DoesNotRun(PodpoolError):
    """A plugin was made, and this machine does not run it."""


def plugin(architecture: str | None = None, *, soon: bool = False) -> Path:
    """Find the plugin for a machine, this one unless told; builds it where it did not come with the package."""
    architecture = architecture or platform.machine()
    carried = BUILT_IN / plugin_name(architecture)
    return carried if carried.exists() else build(architecture, soon=soon)


def content(architecture: str | None = None) -> bytes:
    """Take the plugin; where nothing makes it for this machine, the one in Python."""
    try:
        return plugin(architecture).read_bytes()
    except (NoCompiler, BuildFailed):
        if architecture not in (None, platform.machine()):
            raise
        return plain()


def plain() -> bytes:
    """Make the plugin in Python, for this interpreter."""
    shebang = f"#!{sys.executable} -ISE\n".encode()
    if len(shebang) > _LONGEST_SHEBANG or " " in sys.executable:
        raise InvalidInput("interpreter", sys.executable, "cannot be named in a script: its path is too long")
    return shebang + PLAIN.read_bytes()


def install(
    bin_dir: Path = Path(BIN_DIR),
    *,
    name: str = "podpool",
    architecture: str | None = None,
    made: bytes | None = None,
) -> Path:
    """Put the plugin into a directory, whole, checked, or not at all; tells where it is."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidInput("--name", name, "is no name for a plugin")
    told = content(architecture) if made is None else made
    path = bin_dir / name
    with written_beside(path, told, mode=0o755) as beside:
        if architecture in (None, platform.machine()):
            runs(beside)
        _move(beside, path)
    return path


def _move(beside: Path, path: Path) -> None:
    """Move a plugin to its place; what others have there is kept, for as long as it is not there any more."""
    if not path.exists() or ours(path):
        beside.rename(path)
        return
    kept = _kept(path)
    kept.unlink(missing_ok=True)  # an older one of theirs: what stood there last is what comes back
    os.link(path, kept)
    try:
        beside.rename(path)
    except OSError:
        kept.unlink()
        raise


def uninstall(bin_dir: Path = Path(BIN_DIR), *, name: str = "podpool") -> Path | None:
    """Take the plugin away, and put back what stood there; tells what was changed, if anything."""
    path = bin_dir / name
    kept = _kept(path)
    if path.exists() and not ours(path):
        _leave(path, kept)
        return None
    if kept.exists():
        kept.rename(path)
        return path
    if path.exists():
        path.unlink()
        return path
    return None


def _leave(path: Path, kept: Path) -> None:
    """Leave a plugin of others in its place, and say what becomes of the one that was kept."""
    if not kept.exists():
        return
    if kept.samefile(path):  # an install died before it had moved ours there
        kept.unlink()
        return
    _log.warning(
        "%s is not podpool's any more, so it stays as it is; what stood there before podpool stays in %s: "
        "remove that file if nobody needs it",
        path,
        kept,
    )


def _kept(path: Path) -> Path:
    return path.with_name(f"{path.name}{KEPT}")


def remove_conflist(conf_dir: Path) -> Path | None:
    """Take the runtime's configuration away; tells where it was, if it was there."""
    path = conf_dir / conflist.NAME
    if not path.exists():
        return None
    path.unlink()
    return path


def ours(path: Path) -> bool:
    """Tell whether a file is a plugin of ours."""
    return _MARK in path.read_bytes()


def runs(path: Path) -> None:
    """Have a plugin tell its versions; raises `DoesNotRun`."""
    try:
        told = subprocess.run([path], env={"CNI_COMMAND": "VERSION"}, input=b"", capture_output=True, check=True)  # noqa: S603  our own
        spoken = msgspec.json.decode(told.stdout)["supportedVersions"]
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise DoesNotRun(f"the CNI plugin does not run on this machine, so it is not put in place: {error}") from None
    if list(VERSIONS) != spoken:
        raise DoesNotRun(f"the CNI plugin speaks {spoken}, not {list(VERSIONS)}: it is not put in place")
