"""Settings of the demo, and its state directory."""

import ipaddress
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.settings import parse_settings

NETWORK, SUBNET = "vnet", "pods"
MAX_NODES = 50
"""Each node is a process of 50 MB."""
SHORT_TIMES = "shrink_hold=3s,cooldown=6s,cooldown_exhausted=4s,shrink_spread_max=1s,utilization_poll=2s"
"""Seconds instead of minutes, so that changes are visible."""
NODE_GC = "fence=15s,confirmation_interval=5s,clock_error=2s,node_gc_delay=20s"
SHORT_NODE_GC = "fence=6s,confirmation_interval=2s,clock_error=1s,node_gc_delay=8s"
"""For the short scenario."""
INITIAL_PODS, BURST_PODS = 3, 35
"""Pods of the scenario: per node at first, and on one node at once."""
LOCK_FILE = "lock"
SETTINGS_FILE = "settings.json"
TOKEN_FILE = "cluster-token"  # noqa: S105  a file name
"""Written when API server, ledger and subnet exist: before it, an earlier run has left nothing to continue from."""
STATE_FILES = ("kubeconfig", "apiserver.db*", "ledger.db*", TOKEN_FILE, "step")
STATE_DIRECTORIES = ("nodes", "lost", "logs", "bin", "plane")
"""Contents of the state directory besides settings and lock."""


class NotDemoDirectory(InvalidInput):
    """A directory with other files."""

    def __init__(self, path: Path) -> None:
        reason = "is neither empty nor a state directory of podpool up: name another directory"
        super().__init__("--home", str(path), reason)


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `podpool up`."""

    nodes: int = 8
    subnet: str = "10.77.0.0/24"
    batch: int = 16
    mode: str = "pods"
    scarcity: str = "graded"
    scenario: str = "full"
    api: str = "lite"
    database: str = ""
    port: int = 7780
    """The ledger's; dashboard, API server and controller have the next three."""
    once: bool = False
    """Whether to exit after the scenario."""
    step: bool = False
    """Whether to wait for Enter after each step."""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise InvalidInput("--nodes", self.nodes, f"must be from 1 to {MAX_NODES}")
        if not 1024 <= self.port <= 65532:
            raise InvalidInput("--port", self.port, "must be from 1024 to 65532: four in a row are used")
        if self.database and not self.database.startswith(("postgresql://", "postgres://", "sqlite://")):
            raise InvalidInput("--database", without_password(self.database), "use postgresql://USER@HOST/NAME")
        parse_settings(self.overrides)
        self._check_capacity()

    def _check_capacity(self) -> None:
        """Refuse a subnet that is too small for the scenario."""
        used = 3 + parse_settings(self.overrides).reserved_for_primaries + self.nodes  # network, broadcast and gateway
        usable, needed = self._read_subnet().num_addresses - used, self.nodes
        if self.scenario != "none":
            needed = INITIAL_PODS * self.nodes + BURST_PODS
        if usable < needed:
            reason = f"has {max(0, usable)} addresses for Pods with {self.nodes} nodes, but {needed} are needed"
            raise InvalidInput("--subnet", self.subnet, f"{reason}: use a larger subnet, or fewer --nodes")

    @property
    def overrides(self) -> str:
        """The settings of every process."""
        return f"batch={self.batch},{SHORT_TIMES},{SHORT_NODE_GC if self.scenario == 'short' else NODE_GC}"

    @property
    def gateway(self) -> str:
        """The first address of the subnet."""
        return str(self._read_subnet()[1])

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> dict[str, int]:
        """Port of each component."""
        names = ("ledger", "dashboard", "API server", "controller")
        return {name: port for port, name in enumerate(names, self.port)}

    def _read_subnet(self) -> ipaddress.IPv4Network:
        try:
            network = ipaddress.IPv4Network(self.subnet)
        except ValueError as error:
            raise InvalidInput("--subnet", self.subnet, f"write it as 10.77.0.0/24 ({error})") from None
        if not 16 <= network.prefixlen <= 28:
            raise InvalidInput("--subnet", self.subnet, "must be from /16 to /28")
        return network


class StateDirectory:
    """The directory that keeps the demo's state between runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not self._is_demo_directory():
                raise NotDemoDirectory(path)
            path.chmod(0o700)  # a database's password may be in it
        except OSError as error:
            reason = f"cannot be used ({error.strerror}): name a directory that you own"
            raise InvalidInput("--home", str(path), reason) from None

    def prepare(self, settings: DemoSettings, *, fresh: bool) -> bool:
        """Prepare the directory; return whether it has the state of an earlier run.

        What a run has left whose cluster never started is deleted, so that its settings do not bind the next run.
        """
        file = self.path / SETTINGS_FILE
        resumed = not fresh and file.exists() and (self.path / TOKEN_FILE).exists()
        if resumed:
            _check_unchanged(msgspec.json.decode(file.read_bytes(), type=DemoSettings), settings)
        else:
            self._empty()
        self.write(msgspec.json.encode(settings), SETTINGS_FILE)
        return resumed

    def _is_demo_directory(self) -> bool:
        names = {each.name for each in self.path.iterdir()}
        if names <= {LOCK_FILE, f".{SETTINGS_FILE}.new"}:
            return True
        try:
            found = msgspec.json.decode((self.path / SETTINGS_FILE).read_bytes(), type=dict[str, object])
        except (OSError, msgspec.DecodeError):
            return False
        return {"subnet", "batch", "scarcity", "scenario"} <= found.keys()

    def _empty(self) -> None:
        for path in [each for pattern in STATE_FILES + STATE_DIRECTORIES for each in self.path.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (self.path / SETTINGS_FILE).unlink(missing_ok=True)

    def replace_node(self, node: str) -> None:
        """Delete a node's state; the next node of this name has another boot ID."""
        shutil.rmtree(self.path / "nodes" / node, ignore_errors=True)
        count = self.file("lost", node)
        self.write(b"%d" % (int(count.read_text()) + 1 if count.exists() else 1), "lost", node)

    def write(self, content: bytes, *parts: str) -> None:
        """Replace a file atomically, readable by its owner only."""
        path = self.file(*parts)
        new = path.with_name(f".{path.name}.new")
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.replace(path)

    def file(self, *parts: str) -> Path:
        """Return a path in the directory, and create its parents."""
        path = self.path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _check_unchanged(before: DemoSettings, now: DemoSettings) -> None:
    """Refuse changes of settings that database and objects depend on."""
    for name in ("subnet", "api", "database", "batch", "nodes"):
        was, wanted = getattr(before, name), getattr(now, name)
        if was == wanted or (name == "nodes" and wanted > was):
            continue
        if name == "database":
            was, wanted = map(without_password, (was, wanted))
        reason = f"the demo was created with {was or 'none'}; use that, or start anew with --fresh"
        raise InvalidInput(f"--{name}", wanted, reason)


def default_home() -> Path:
    """Return the default state directory."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "podpool" / "up"


def without_password(url: str) -> str:
    """Return a database URL without its password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
