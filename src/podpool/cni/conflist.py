"""The runtime's network configuration. A runtime reports its node Ready once it exists.

So the agent writes it when it can serve. It stays when the agent stops: a node whose agent restarts keeps its Pods, and
the plugin waits for the agent.
"""

from pathlib import Path

import msgspec

from podpool.cni.atomic_write import write_atomically
from podpool.core.errors import InvalidInput

NAME = "10-podpool.conflist"
"""Runtimes use the first file by name."""
PLUGIN_TYPE = "podpool"

DEFAULT = {
    "cniVersion": "1.0.0",
    "name": "podpool",
    "plugins": [{"type": "ptp", "ipam": {"type": PLUGIN_TYPE}}],
}
"""Interfaces by ptp, which needs nothing on the host; addresses by podpool."""


class _Plugin(msgspec.Struct, frozen=True):
    type: str


class _PluginList(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that every runtime requires."""

    cni_version: str
    name: str
    plugins: tuple[_Plugin, ...]


def load(template: str = "") -> bytes:
    """Return the content of a template file, or the default; raises `InvalidInput` if no runtime could use it."""
    if not template:
        return msgspec.json.format(msgspec.json.encode(DEFAULT), indent=2) + b"\n"
    try:
        content = Path(template).read_bytes()
        if not msgspec.json.decode(content, type=_PluginList).plugins:
            raise InvalidInput("--cni-template", template, "lists no plugin")
    except OSError as error:
        raise InvalidInput("--cni-template", template, f"cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput("--cni-template", template, f"is not a CNI plugin list: {error}") from None
    return content


def write(conf_dir: Path, content: bytes) -> Path:
    """Write the configuration unless it is already there; returns its path, raises `OSError`."""
    path = conf_dir / NAME
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content, mode=0o644)
    return path


def remove(conf_dir: Path) -> Path | None:
    """Remove the configuration; returns its path, or None if there was none."""
    path = conf_dir / NAME
    if not path.exists():
        return None
    path.unlink()
    return path
