"""The runtime's network configuration. A runtime reports its node Ready once it exists.

So the agent writes it when it can serve, and restores it while it runs. It stays when the agent stops: a node whose
agent restarts keeps its Pods, and the plugin waits for the agent.
"""

from pathlib import Path
from typing import Any

import msgspec

from podpool.cni.atomic_write import write_atomically
from podpool.cni.plugin_versions import PluginDoesNotRun, supported_versions
from podpool.core.errors import InvalidInput

NAME = "10-podpool.conflist"
"""Runtimes use the first file by name."""
PLUGIN_TYPE = "podpool"

INTERFACE_PLUGIN = "ptp"
"""Creates the interfaces of the default configuration; needs nothing on the host."""
BASE_VERSION, STATUS_VERSION = "1.0.0", "1.1.0"
"""The version that every runtime in use speaks, and the one that has GC and STATUS."""


class _Plugin(msgspec.Struct, frozen=True):
    type: str


class _PluginList(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that every runtime requires."""

    cni_version: str
    name: str
    plugins: tuple[_Plugin, ...]


class _Contents(msgspec.Struct, frozen=True):
    """The fields that decide what a Pod gets."""

    name: str
    plugins: list[dict[str, Any]]


def load(template: str = "", *, bin_dir: str = "") -> bytes:
    """Return the content of a template file, or the default; raises `InvalidInput` if no runtime could use it."""
    if not template:
        return default(Path(bin_dir) if bin_dir else None)
    try:
        content = Path(template).read_bytes()
        if not msgspec.json.decode(content, type=_PluginList).plugins:
            raise InvalidInput("--cni-template", template, "lists no plugin")
    except OSError as error:
        raise InvalidInput("--cni-template", template, f"cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput("--cni-template", template, f"is not a CNI plugin list: {error}") from None
    return content


def default(bin_dir: Path | None = None) -> bytes:
    """Return the default configuration: interfaces by ptp, addresses by podpool.

    If ptp in `bin_dir` supports CNI 1.1.0, the configuration offers it in `cniVersions`. A runtime that speaks 1.1.0
    chooses it, and then uses GC and STATUS; an older one does not know the field and uses `cniVersion`.
    """
    config: dict[str, object] = {"cniVersion": BASE_VERSION}
    if bin_dir and _supports(bin_dir / INTERFACE_PLUGIN, STATUS_VERSION):
        config["cniVersions"] = [BASE_VERSION, STATUS_VERSION]
    config |= {"name": "podpool", "plugins": [{"type": INTERFACE_PLUGIN, "ipam": {"type": PLUGIN_TYPE}}]}
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def _supports(plugin: Path, version: str) -> bool:
    try:
        return version in supported_versions(plugin)
    except PluginDoesNotRun:
        return False


def write(conf_dir: Path, content: bytes) -> Path:
    """Write the configuration unless it is already there; returns its path, raises `OSError`."""
    path = conf_dir / NAME
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content, mode=0o644)
    return path


def restore(conf_dir: Path, content: bytes) -> bool:
    """Write the configuration again if it was removed or changed; returns whether it was, raises `OSError`.

    A file that still has the name and all plugins, in their order, stays: other components (service meshes) add plugins
    of their own to the first configuration of a node.
    """
    path = conf_dir / NAME
    if path.exists() and _contains(path.read_bytes(), content):
        return False
    write_atomically(path, content, mode=0o644)
    return True


def _contains(found: bytes, content: bytes) -> bool:
    try:
        ours = msgspec.json.decode(content, type=_Contents)
        theirs = msgspec.json.decode(found, type=_Contents)
    except msgspec.DecodeError:
        return False
    remaining = iter(theirs.plugins)
    return theirs.name == ours.name and all(plugin in remaining for plugin in ours.plugins)


def remove(conf_dir: Path) -> Path | None:
    """Remove the configuration; returns its path, or None if there was none."""
    path = conf_dir / NAME
    if not path.exists():
        return None
    path.unlink()
    return path
