"""Puts the plugin where the container runtime looks for it."""

import os
import platform
import tempfile
from pathlib import Path

from podpool.cni.build import build, plugin_name

BIN_DIR = Path("/opt/cni/bin")
BUILT_IN = Path(__file__).with_name("bin")
"""The plugins that a wheel carries; a checkout has none, and builds its own."""


def plugin(architecture: str | None = None) -> Path:
    """Find the plugin for a machine, this one unless told; builds it where it did not come with the package."""
    architecture = architecture or platform.machine()
    carried = BUILT_IN / plugin_name(architecture)
    return carried if carried.exists() else build(architecture)


def install(bin_dir: Path = BIN_DIR, *, name: str = "podpool", architecture: str | None = None) -> Path:
    """Put the plugin into a directory, whole or not at all: a runtime may start it at any moment."""
    content = plugin(architecture).read_bytes()
    bin_dir.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=bin_dir, prefix=f".{name}.")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(content)
            file.flush()
            os.fchmod(descriptor, 0o755)
            os.fsync(descriptor)
        installed = bin_dir / name
        Path(beside).rename(installed)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise
    return installed
