"""The CNI versions that an installed plugin supports, by its VERSION command."""

import subprocess
from pathlib import Path

import msgspec

from podpool.core.errors import PodpoolError

TIMEOUT = 10.0
"""Seconds for the command, which reads nothing and waits for nothing."""


class PluginDoesNotRun(PodpoolError):
    """The plugin does not run on this machine."""


class _Versions(msgspec.Struct, frozen=True, rename="camel"):
    supported_versions: tuple[str, ...]


def supported_versions(plugin: Path) -> tuple[str, ...]:
    """Return the CNI versions of a plugin; raises `PluginDoesNotRun`."""
    try:
        done = subprocess.run(  # noqa: S603  a plugin of this machine
            [plugin], env={"CNI_COMMAND": "VERSION"}, input=b"", capture_output=True, check=True, timeout=TIMEOUT
        )
        return msgspec.json.decode(done.stdout, type=_Versions).supported_versions
    except (OSError, subprocess.SubprocessError, ValueError, RecursionError) as error:
        raise PluginDoesNotRun(f"the CNI plugin does not run on this machine: {error}") from None
