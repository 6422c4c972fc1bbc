"""A real node: kubelet and containerd in their own mount, network and process namespaces.

The holder is the first process of the node: everything on the node ends with it, including its in-memory disk. The
machine is not changed: kernel settings that a kubelet would write, and the boot ID, are covered by files. A program
inside is started by `nsenter` outside and ends with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any

from parts import cgroups, image, relay
from parts.daemon import Daemon, children, dying_with_us, lives
from parts.debian import command
from parts.loopback import answers, read
from parts.node_config import BRIDGE, CONTAINERD, KUBELET_PORT, READY, UPLINK, containerd_config, kubelet_config, set_up
from parts.polling import until
from parts.recipes import program
from parts.relay import network_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces


class CommandFailed(Exception):
    """A command on a node failed; the message is its output."""


class Node:
    """One node. `kubelet` and `containerd` can be killed and started; `die` ends the whole machine."""

    def __init__(
        self, name: str, plane: ControlPlane, segment: Namespaces, *, home: Path, address: str, boot_id: str = ""
    ) -> None:
        self.name = name
        self.plane = plane
        self.segment = segment
        self.home = home
        self.address = address
        self.plugins, self.configs, self.manifests = home / "plugins", home / "net.d", home / "manifests"
        for directory in (self.plugins, self.configs, self.manifests):
            directory.mkdir(parents=True)
        self.boot_id = boot_id or str(uuid.uuid4())
        self.cgroup = cgroups.make(name)
        self.running: list[Daemon] = []
        self.holder = self.new_holder()

    def new_holder(self) -> Daemon:
        """Return the first process of the machine, in its own namespaces."""
        return self.daemon(
            "node",
            [
                *(command("unshare"), "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                *("sh", "-c", set_up(address=self.address, boot_id=self.boot_id)),
            ],
            ready=lambda: READY in (self.home / "node.log").read_text(),
        )

    # Life cycle

    def start(self) -> None:
        """Start it, and wait until its kubelet serves. It is Ready when its network is configured."""
        self.holder.start()
        self.connect()
        self.relay.start()
        self.containerd.start()
        image.write_image(self.home / "pause.tar", program("pause"))
        self.ctr("images", "import", str(self.home / "pause.tar"))
        self.kubelet.start()

    def connect(self) -> None:
        """Connect the node's bridge, and so its Pods, to the segment that all nodes share."""
        far_end = ["type", "veth", "peer", "name", UPLINK, "netns", str(self.pid)]
        self.segment.run("ip", "link", "add", self.outer_port, *far_end)
        self.segment.run("ip", "link", "set", self.outer_port, "master", BRIDGE, "up")
        self.run("ip", "link", "set", UPLINK, "master", BRIDGE, "up")

    @property
    def outer_port(self) -> str:
        """Return the name of the segment's end of its cable."""
        return f"port{self.address.rpartition('.')[2]}"

    def configure(self, conflist: dict[str, Any], *, file: str = "10-test.conflist") -> None:
        """Write the CNI configuration, by a rename within the directory: containerd does not see other renames."""
        beside = self.configs / "beside"
        beside.write_text(json.dumps(conflist))
        beside.rename(self.configs / file)

    def die(self) -> None:
        """Kill everything on it at once, as a power cut does."""
        first = self.pid if self.holder.alive else None
        for daemon in reversed(self.running):
            daemon.kill()
        if first:
            until(lambda: not lives(first), f"the last process of {self.name} has ended")
        cgroups.remove(self.cgroup)

    def reboot(self) -> None:
        """Lose everything but the files in its home, and start again under another boot ID."""
        self.die()
        until(lambda: self.outer_port not in self.segment.run("ip", "-oneline", "link"), "its cable is free")
        for name in ("relay", "containerd", "kubelet"):
            vars(self).pop(name, None)  # started in the former namespaces
        for name in ("node", "relay"):
            (self.home / f"{name}.log").unlink()  # which says that the former one is ready
        self.boot_id = str(uuid.uuid4())
        self.cgroup = cgroups.make(self.name)
        self.running.clear()
        self.holder = self.new_holder()
        self.start()

    @property
    def pid(self) -> int:
        """Return the PID of its init process on the machine."""
        return children(self.holder.pid)[0]

    # Daemons

    @cached_property
    def relay(self) -> Daemon:
        """Return the relay of the API server to the node's loopback."""
        return self.daemon(
            "relay",
            [sys.executable, relay.__file__, str(self.pid), str(self.plane.port)],
            ready=lambda: relay.READY in (self.home / "relay.log").read_text(),
        )

    @cached_property
    def containerd(self) -> Daemon:
        """Return the container runtime."""
        config = self.home / "containerd.toml"
        config.write_text(containerd_config(plugins=self.plugins, configs=self.configs))
        return self.daemon(
            "containerd",
            self.inside(["env", f"NODENAME={self.name}", program("containerd"), "--config", config]),
            ready=lambda: self.succeeds(program("ctr"), "--address", CONTAINERD, "version"),
        )

    @cached_property
    def kubelet(self) -> Daemon:
        """Return the kubelet."""
        config = self.home / "kubelet.json"
        config.write_text(json.dumps(kubelet_config(cgroup=self.cgroup, manifests=self.manifests)))
        return self.daemon(
            "kubelet",
            self.inside(
                [
                    *(program("kubelet"), f"--config={config}", f"--kubeconfig={self.plane.kubeconfig}"),
                    *(f"--hostname-override={self.name}", f"--node-ip={self.address}"),
                    *("--root-dir=/run/kubelet", "--cert-dir=/run/kubelet/pki"),
                ]
            ),
            ready=lambda: self.answers(KUBELET_PORT, "/healthz"),
        )

    def daemon(self, name: str, argv: Sequence[str | Path], *, ready: Callable[[], bool]) -> Daemon:
        """Return a daemon that ends with the node."""
        made = Daemon(argv, log=self.home / f"{name}.log", ready=ready)
        self.running.append(made)
        return made

    def inside(self, argv: Sequence[str | Path]) -> list[str | Path]:
        """Return the command line that runs a command on the node."""
        first, *others = argv
        found = first if "/" in str(first) else command(str(first))
        enter = [command("nsenter"), "--target", str(self.pid), "--mount", "--net", "--pid", "--"]
        return [*enter, *dying_with_us(), found, *others]

    # State

    def run(self, *argv: str | Path) -> str:
        """Run a command on the node and return its output. Raises `CommandFailed`."""
        done = subprocess.run(self.inside(argv), check=False, capture_output=True, text=True)
        if done.returncode:
            raise CommandFailed(f"{argv[0]} on {self.name}: {done.stderr}")
        return done.stdout

    def succeeds(self, *argv: str | Path) -> bool:
        """Return whether a command on the node succeeds."""
        return subprocess.run(self.inside(argv), check=False, capture_output=True).returncode == 0

    def ctr(self, *argv: str) -> str:
        """Run ctr in the kubelet's containerd namespace."""
        return self.run(program("ctr"), "--address", CONTAINERD, "--namespace", "k8s.io", *argv)

    def answers(self, port: int, path: str) -> bool:
        """Return whether a server on the node's loopback answers."""
        with network_of(self.pid):
            return answers(port, path)

    def kubelet_pods(self) -> list[dict[str, Any]]:
        """Return the Pods that the kubelet runs."""
        with network_of(self.pid):
            return list(json.loads(read(KUBELET_PORT, "/pods"))["items"] or [])

    def tasks(self) -> list[str]:
        """Return the tasks of containerd: sandboxes and workloads."""
        return self.ctr("tasks", "list", "--quiet").split()

    def interfaces(self, names: Iterable[str] = ()) -> dict[str, str]:
        """Return the address of eth0 in each of the Pods' network namespaces, or of those with a name."""
        return {name: addresses["eth0"] for name, addresses in self.addresses(names).items() if "eth0" in addresses}

    def addresses(self, names: Iterable[str] = ()) -> dict[str, dict[str, str]]:
        """Return the addresses in the Pods' network namespaces, by interface; skip those that are removed meanwhile."""
        each = f"{command('ip')} -netns $name -4 -oneline address show 2>/dev/null | sed s/^/$name' '/"
        output = self.run("sh", "-c", f"for name in {' '.join(names) or '$(ls /run/netns)'}; do {each}; done")
        found: dict[str, dict[str, str]] = {}
        for line in output.splitlines():
            name, _, interface, _, address, *_ = line.split()
            if interface != "lo":
                found.setdefault(name, {})[interface] = address.partition("/")[0]
        return found

    def network_namespaces(self) -> list[str]:
        """Return the Pods' network namespaces."""
        return self.run("ls", "/run/netns").split()

    def ports(self) -> list[str]:
        """Return the ports of the node's bridge, except the uplink."""
        links = json.loads(self.run("ip", "-json", "link", "show", "master", BRIDGE) or "[]")
        return [link["ifname"] for link in links if link["ifname"] != UPLINK]
