"""The container runtime of a machine: its sandboxes and their network namespaces, and how it loses DELs.

It lists a sandbox after its ADDs and until its removal, as containerd does.
"""

import asyncio
import enum
import math
from collections.abc import Collection, Iterable

import msgspec

from podpool.lab.sim.machine import MachineDisk
from podpool.runtime.transport import Unreachable


class SocketState(enum.Enum):
    """What an agent finds at the runtime's socket."""

    RUNTIME = "the runtime"
    OTHER_RUNTIME = "another runtime"
    NOTHING = "nothing"


class LostDel(msgspec.Struct, frozen=True):
    """A sandbox that ended without a DEL."""

    at: float
    pod_uid: str
    listed_at: float
    """When it was first listed; infinite if it never was."""


class SimRuntime:
    """One machine's runtime, from boot to boot."""

    def __init__(self) -> None:
        self.deferred_deletes = MachineDisk()
        """Where the plugin leaves DELs; on a tmpfs."""
        self.socket = SocketState.RUNTIME
        self.loses_dels = False
        """Sandboxes end without a DEL."""
        self.gives_up_adds = False
        """ADDs are given up at once, and their plugins go on."""
        self.chain_seconds = 0.0
        """Seconds between the last ADD of a sandbox and its listing."""
        self.hidden: set[str] = set()
        """Sandboxes that run, but are not listed, as if the runtime had lost its state."""
        self.namespaces_visible = True
        """Whether the agent sees the files of network namespaces, else an empty directory."""
        self.namespace_directory_visible = True
        """Whether the agent sees the directory of network namespaces."""
        self.lost: dict[str, LostDel] = {}
        """Sandboxes without a DEL."""
        self._listed: dict[str, str] = {}
        """The Pod UID of each listed sandbox."""
        self._listed_at: dict[str, float] = {}
        self._namespaces: set[str] = set()

    async def list_sandboxes(self) -> dict[str, str]:
        """Return the Pod UIDs of the listed sandboxes, or of those of another runtime."""
        if self.socket is SocketState.NOTHING:
            raise Unreachable("the runtime", "connection refused")
        if self.socket is SocketState.OTHER_RUNTIME:
            return {"of-another-runtime": "uid-of-another-runtime"}
        return {sandbox: uid for sandbox, uid in self._listed.items() if sandbox not in self.hidden}

    async def netns_gone(self, paths: Collection[str]) -> frozenset[str]:
        """Return the network namespaces that do not exist, as far as the agent sees them."""
        if not self.namespace_directory_visible:
            return frozenset()
        return frozenset(paths) - (self._namespaces if self.namespaces_visible else set())

    def lists_any(self, sandboxes: Iterable[str]) -> bool:
        """Return whether it lists one of these sandboxes."""
        return any(each in self._listed for each in sandboxes)

    def create(self, sandbox: str) -> None:
        """Create a sandbox with its network namespace."""
        self._namespaces.add(netns_path(sandbox))

    async def complete(self, sandbox: str, pod_uid: str) -> None:
        """List a sandbox, after the rest of its ADD chain."""
        if self.chain_seconds:
            await asyncio.sleep(self.chain_seconds)
        self._listed[sandbox] = pod_uid
        self._listed_at[sandbox] = asyncio.get_running_loop().time()

    def remove(self, sandbox: str) -> None:
        """Remove a sandbox with its network namespace."""
        self._listed.pop(sandbox, None)
        self._namespaces.discard(netns_path(sandbox))

    def lose(self, sandbox: str, pod_uid: str) -> None:
        """Record that a sandbox ended and no DEL will be sent, and remove it."""
        now = asyncio.get_running_loop().time()
        self.lost.setdefault(sandbox, LostDel(now, pod_uid, self._listed_at.get(sandbox, math.inf)))
        self.remove(sandbox)


def netns_path(sandbox: str) -> str:
    """Return the path of a sandbox's network namespace."""
    return f"/run/netns/{sandbox}"
