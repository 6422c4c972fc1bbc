"""What is asked of `podpool up`, and where it keeps what it has."""

import ipaddress
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from podpool.controller.settings import parse_scarcity
from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings

NETWORK, SUBNET = "vnet", "pods"
MOST_NODES = 50
"""Each is a process of 50 MB."""
QUICK = "shrink_hold=3s,cooldown=6s,cooldown_exhausted=4s,shrink_spread_max=1s,utilization_poll=2s"
"""Minutes in a cluster are seconds here, so that a person sees what happens."""
GONE = "fence=15s,confirmation_interval=5s,clock_error=2s,node_gc_delay=20s"
SOON_GONE = "fence=6s,confirmation_interval=2s,clock_error=1s,node_gc_delay=8s"
"""For a story that nobody watches."""
QUIET, BURST = 3, 35
"""Pods of the story: at first on every node, and then on one of them at once."""
LOCK = "lock"
APIS = ("pocket", "real")
STORIES = ("full", "short", "none")
KEPT = "settings.json"
WRITTEN = ("kubeconfig", "pocket.db*", "ledger.db*", "cluster-token", "act", "nodes", "lost", "logs", "bin", "plane")
"""What a stage has in its directory, beside its settings and the lock."""


class NoStage(InvalidInput):
    """A directory that is somebody's."""

    def __init__(self, path: Path) -> None:
        reason = "is neither empty nor a stage of podpool up, and is left as it is: name another directory"
        super().__init__("--home", str(path), reason)


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One stage."""

    nodes: int = 8
    subnet: str = "10.77.0.0/24"
    batch: int = 16
    mode: str = "pods"
    scarcity: str = "graded"
    story: str = "full"
    api: str = "pocket"
    database: str = ""
    port: int = 7780
    """The ledger's; the page, the API server and the controller have those that follow."""
    once: bool = False
    """Whether to end with the story,"""
    step: bool = False
    """and to wait after each act for somebody who has seen enough of it."""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise InvalidInput("--nodes", self.nodes, f"must be from 1 to {MOST_NODES}")
        if self.story not in STORIES:
            raise InvalidInput("--scenario", self.story, f"use one of {', '.join(STORIES)}")
        if not 1024 <= self.port <= 65532:
            raise InvalidInput("--port", self.port, "must be from 1024 to 65532: four in a row are used")
        if self.api not in APIS:
            raise InvalidInput("--api", self.api, f"use one of {', '.join(APIS)}")
        parse_scarcity(self.scarcity)
        parse_settings(self.overrides)
        self._refuse_crowds()

    def _refuse_crowds(self) -> None:
        """Refuse a subnet in which the story could only fail."""
        used = 3 + parse_settings(self.overrides).reserved_for_primaries + self.nodes  # network, broadcast and gateway
        room, needed = self._read_subnet().num_addresses - used, self.nodes
        if self.story != "none":
            needed = QUIET * self.nodes + BURST
        if room < needed:
            reason = (
                f"has {max(0, room)} addresses for Pods beside what {self.nodes} nodes need, and {needed} are wanted"
            )
            raise InvalidInput("--subnet", self.subnet, f"{reason}: take a larger one, or fewer --nodes")

    @property
    def overrides(self) -> str:
        """The settings of every process."""
        return f"batch={self.batch},{QUICK},{SOON_GONE if self.story == 'short' else GONE}"

    @property
    def gateway(self) -> str:
        """The first address of the subnet."""
        return str(self._read_subnet()[1])

    @property
    def node_names(self) -> list[str]:
        """The machines."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> dict[str, int]:
        """Who answers where."""
        return {name: self.port + place for place, name in enumerate(("ledger", "dashboard", "pocket", "controller"))}

    def _read_subnet(self) -> ipaddress.IPv4Network:
        try:
            network = ipaddress.IPv4Network(self.subnet)
        except ValueError as error:
            raise InvalidInput("--subnet", self.subnet, f"write it as 10.77.0.0/24 ({error})") from None
        if not 16 <= network.prefixlen <= 28:
            raise InvalidInput("--subnet", self.subnet, "must be from /16 to /28")
        return network


class Home:
    """The directory in which a stage lives on between two starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not self._is_ours():
                raise NoStage(path)
            path.chmod(0o700)  # a database's password may be in it
        except OSError as error:
            reason = f"cannot be used ({error.strerror}): name a directory of your own"
            raise InvalidInput("--home", str(path), reason) from None

    def set(self, settings: DemoSettings, *, fresh: bool) -> bool:
        """Prepare the directory; tells whether there is something to go on with."""
        if fresh:
            self._empty()
        kept = self.path / KEPT
        going_on = kept.exists()
        if going_on:
            _refuse_changes(msgspec.json.decode(kept.read_bytes(), type=DemoSettings), settings)
        self.write(msgspec.json.encode(settings), KEPT)
        return going_on

    def _is_ours(self) -> bool:
        names = {each.name for each in self.path.iterdir()}
        if names <= {LOCK, f".{KEPT}.new"}:
            return True
        try:
            told = msgspec.json.decode((self.path / KEPT).read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError):
            return False
        return {"subnet", "batch", "scarcity", "story"} <= told.keys()

    def _empty(self) -> None:
        for path in [each for pattern in WRITTEN for each in self.path.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (self.path / KEPT).unlink(missing_ok=True)

    def replace_machine(self, node: str) -> None:
        """Lose a machine's disk; the next of its name is another, with another boot."""
        shutil.rmtree(self.path / "nodes" / node, ignore_errors=True)
        lost = self.file("lost", node)
        self.write(b"%d" % (int(lost.read_text()) + 1 if lost.exists() else 1), "lost", node)

    def write(self, content: bytes, *parts: str) -> None:
        """Write a file anew, all of it or nothing, for its owner alone."""
        path = self.file(*parts)
        beside = path.with_name(f".{path.name}.new")
        beside.touch(mode=0o600)
        beside.write_bytes(content)
        beside.replace(path)

    def file(self, *parts: str) -> Path:
        """Name a file, and have its directory."""
        path = self.path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _refuse_changes(before: DemoSettings, now: DemoSettings) -> None:
    """Refuse what books and objects were made without."""
    for name in ("subnet", "api", "database", "batch", "nodes"):
        was, wanted = getattr(before, name), getattr(now, name)
        if was == wanted or (name == "nodes" and wanted > was):
            continue
        if name == "database":
            was, wanted = map(without_password, (was, wanted))
        reason = f"this stage was set with {was or 'none'}; use that, or begin anew with --fresh"
        raise InvalidInput(f"--{name}", wanted, reason)


def usual_home() -> Path:
    """Find the user's own place for state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "podpool" / "up"


def without_password(url: str) -> str:
    """Return a database URL without its password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
