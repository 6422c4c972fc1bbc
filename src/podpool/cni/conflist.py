"""The runtime's network configuration, which makes its node Ready: so it appears when the agent can serve.

It stays when the agent stops: a node whose agent restarts keeps its Pods, and the plugin waits for the agent.
"""

from pathlib import Path

import msgspec

from podpool.cni.atomic_write import put_in_place
from podpool.core.errors import InvalidInput

NAME = "10-podpool.conflist"
"""Runtimes take the first by name."""
TYPE = "podpool"

DEFAULT = {
    "cniVersion": "1.0.0",
    "name": "podpool",
    "plugins": [{"type": "ptp", "ipam": {"type": TYPE}}],
}
"""Interfaces by ptp, which needs nothing on the host; addresses by us."""


class _Plugin(msgspec.Struct, frozen=True):
    type: str


class _List(msgspec.Struct, frozen=True, rename="camel"):
    """As far as every runtime insists on it."""

    cni_version: str
    name: str
    plugins: tuple[_Plugin, ...]


def content(template: str = "") -> bytes:
    """Take the configuration from a file, or ours; raises `InvalidInput` when no runtime could use it."""
    if not template:
        return msgspec.json.format(msgspec.json.encode(DEFAULT), indent=2) + b"\n"
    try:
        told = Path(template).read_bytes()
        if not msgspec.json.decode(told, type=_List).plugins:
            raise InvalidInput("--cni-template", template, "lists no plugin")
    except OSError as error:
        raise InvalidInput("--cni-template", template, f"cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InvalidInput("--cni-template", template, f"is no list of CNI plugins: {error}") from None
    return told


def write(conf_dir: Path, told: bytes) -> Path:
    """Put the configuration in place, unless it is there already; raises `OSError`."""
    path = conf_dir / NAME
    if not path.exists() or path.read_bytes() != told:
        put_in_place(path, told, mode=0o644)
    return path
