"""Puts the plugin where the container runtime looks for it, under its own name or under that of a plugin it replaces.

What must hold: a runtime finds a whole plugin at any moment; a plugin that does not run is not put in place; a file of
others that stood there is kept beside it, and `uninstall` puts it back.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec

from podpool.cni import conflist
from podpool.cni.build import BuildFailed, NoCompiler, build, plugin_name
from podpool.cni.messages import VERSIONS
from podpool.cni.place import put_in_place
from podpool.core.errors import InvalidInput, PodpoolError

BIN_DIR = Path("/opt/cni/bin")
BUILT_IN = Path(__file__).with_name("bin")
"""The plugins that a wheel carries; a checkout has none, and builds its own."""
PLAIN = Path(__file__).with_name("plain.py")
KEPT = ".before-podpool"
"""What a file of others is kept under: its name, and this."""

_MARK = b"podpool's agent is not running on this node"
"""What every plugin of ours can say."""
_LONGEST_SHEBANG = 120


class DoesNotRun(PodpoolError):
    """A plugin was made, and this machine does not run it."""


def plugin(architecture: str | None = None) -> Path:
    """Find the plugin for a machine, this one unless told; builds it where it did not come with the package."""
    architecture = architecture or platform.machine()
    carried = BUILT_IN / plugin_name(architecture)
    return carried if carried.exists() else build(architecture)


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
    bin_dir: Path = BIN_DIR,
    *,
    name: str = "podpool",
    architecture: str | None = None,
    made: bytes | None = None,
) -> Path:
    """Put the plugin into a directory, whole, checked, or not at all; tells where it is."""
    if not name or "/" in name or name.startswith("."):
        raise InvalidInput("--name", name, "is no name for a plugin")
    told = content(architecture) if made is None else made
    path, kept = bin_dir / name, bin_dir / f"{name}{KEPT}"
    foreign = architecture not in (None, platform.machine())
    check = (lambda _beside: None) if foreign else runs
    if path.exists() and not ours(path) and not kept.exists():
        os.link(path, kept)
    put_in_place(path, told, mode=0o755, check=check)
    return path


def uninstall(bin_dir: Path = BIN_DIR, *, name: str = "podpool") -> Path | None:
    """Take the plugin away, and put back what stood there; tells what was changed, if anything."""
    path, kept = bin_dir / name, bin_dir / f"{name}{KEPT}"
    if kept.exists():
        kept.rename(path)
        return path
    if path.exists() and ours(path):
        path.unlink()
        return path
    return None


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
