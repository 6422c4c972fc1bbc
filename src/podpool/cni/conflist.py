"""The runtime's network configuration. A runtime reports its node Ready once it exists.

So the agent writes it when it can serve, and restores it while it runs. It stays when the agent stops: a node whose
agent restarts keeps its Pods, and the plugin waits for the agent.

Other components (service meshes) add plugins of their own to the first configuration of a node. These stay as long as
the file has our name and all our plugins, in their order.
"""

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from podpool.cni.atomic_write import write_atomically
from podpool.cni.profiles import DEFAULT_PROFILE, OPTIONS_FLAG, interface_plugin
from podpool.cni.supported_cni_versions import PluginDoesNotRun, supported_versions
from podpool.core.errors import InvalidInput

NAME = "10-podpool.conflist"
"""Runtimes use the first file by name."""
PLUGIN_TYPE = "podpool"

BASE_VERSION, STATUS_VERSION = "1.0.0", "1.1.0"
"""The version that every runtime in use speaks, and the one that has GC and STATUS."""

MAX_BYTES = 1 << 20
"""Of a file that is compared with ours; a longer one is replaced."""


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


def load(template: str = "", *, profile: str = DEFAULT_PROFILE, options: str = "", bin_dir: str = "") -> bytes:
    """Return the content of a template file, or of a profile; raises `InvalidInput` if no runtime could use it."""
    if not template:
        return _from_profile(interface_plugin(profile, options), Path(bin_dir) if bin_dir else None)
    if options:
        raise InvalidInput(OPTIONS_FLAG, options, "has no effect with --cni-template: write it into that file")
    try:
        content = Path(template).read_bytes()
        plugins = msgspec.json.decode(content, type=_PluginList).plugins
    except OSError as error:
        raise InvalidInput("--cni-template", template, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput("--cni-template", template, f"is not a CNI plugin list: {error}") from None
    if not plugins:
        raise InvalidInput("--cni-template", template, "lists no plugin")
    return content


def network_name(content: bytes) -> str:
    """Return the name of the network of a configuration."""
    return msgspec.json.decode(content, type=_PluginList).name


def _from_profile(plugin: dict[str, Any], bin_dir: Path | None) -> bytes:
    """Return the configuration with an interface plugin, and podpool for addresses.

    If the plugin in `bin_dir` supports CNI 1.1.0, the configuration offers it in `cniVersions`. A runtime that speaks
    1.1.0 chooses it, and then uses GC and STATUS; an older one does not know the field and uses `cniVersion`.
    """
    config: dict[str, object] = {"cniVersion": BASE_VERSION}
    if bin_dir and _supports(bin_dir / plugin["type"], STATUS_VERSION):
        config["cniVersions"] = [BASE_VERSION, STATUS_VERSION]
    config |= {"name": "podpool", "plugins": [{**plugin, "ipam": {"type": PLUGIN_TYPE}}]}
    return msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"


def _supports(plugin: Path, version: str) -> bool:
    try:
        return version in supported_versions(plugin)
    except PluginDoesNotRun:
        return False


def write(conf_dir: Path, content: bytes) -> Path:
    """Write the configuration, with the plugins that others added to it; returns its path, raises `OSError`."""
    path = conf_dir / NAME
    found = _read(path)
    wanted = _with_added_plugins(found, content)
    if found != wanted:
        write_atomically(path, wanted, mode=0o644)
    return path


def restore(conf_dir: Path, content: bytes) -> bool:
    """Write the configuration again if it was removed or changed; returns whether it was, raises `OSError`."""
    path = conf_dir / NAME
    if _contains(_read(path), content):
        return False
    write_atomically(path, content, mode=0o644)
    return True


def _read(path: Path) -> bytes:
    """Return the content of a regular file, or of one that a link names; empty if there is none, or it is too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor, not a path
            content = file.read(MAX_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:  # the file is then replaced, which may fail for the same reason
        return b""
    return content if len(content) <= MAX_BYTES else b""


def _with_added_plugins(found: bytes, content: bytes) -> bytes:
    """Return our configuration with all plugins of a file that has ours; the file as it is if that changes nothing."""
    if not _contains(found, content):
        return content
    ours, theirs = (msgspec.json.decode(each, type=dict[str, Any]) for each in (content, found))
    wanted = ours | {"plugins": theirs["plugins"]}
    return found if wanted == theirs else msgspec.json.format(msgspec.json.encode(wanted), indent=2) + b"\n"


def _contains(found: bytes, content: bytes) -> bool:
    try:
        ours = msgspec.json.decode(content, type=_Contents)
        theirs = msgspec.json.decode(found, type=_Contents)
        remaining = iter(theirs.plugins)
        return theirs.name == ours.name and all(plugin in remaining for plugin in ours.plugins)
    except (ValueError, RecursionError):  # a comparison of nested plugins can be too deep as well
        return False


def remove(conf_dir: Path) -> Path | None:
    """Remove the configuration; returns its path, or None if there was none."""
    path = conf_dir / NAME
    if not path.exists():
        return None
    path.unlink()
    return path
