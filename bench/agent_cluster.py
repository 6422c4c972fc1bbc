"""Nodes under measurement: a real API server, ledger and controller, and one agent process per node.

Nodes of `ROOMY` hold more than a thousand addresses without another request; those of `USUAL` have default settings.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from parts.installation import CONFIGS, Installation
from parts.polling import until
from podpool.cni.protocol import (
    HEADER_SIZE,
    PluginRequest,
    decode_length,
    decode_response,
    encode_frame,
    encode_request,
)

if TYPE_CHECKING:
    from pathlib import Path

    from parts.control_plane import ControlPlane
    from parts.daemon import Daemon

ROOMY, USUAL = "vnet.roomy", "vnet.usual"
SETTINGS = "batch=256,buffer=4,node_maximum=4000,cooldown=0,cooldown_exhausted=0,shrink_hold=1h"
AGENT = "system:serviceaccount:kube-system:podpool-agent"
CONFIG = b'{"cniVersion":"1.0.0","name":"bench","type":"ptp","ipam":{"type":"podpool"}}'
TIMEOUT = 300.0


class AgentSite(Installation):
    """One cluster; `node` registers a Node and starts its agent."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        super().__init__(plane, home, subnet=ROOMY, cidr="10.128.0.0/14", gateway="10.128.0.1", settings=SETTINGS)

    def begin(self) -> None:
        """Start everything except the agents, with a second subnet."""
        self.install()
        self.ask_ledger("subnet", "create", USUAL, "10.64.0.0/16", "--gateway", "10.64.0.1")

    def node(self, name: str, *, subnet: str = ROOMY, options: tuple[str, ...] = ()) -> BenchNode:
        """Register a Node as a kubelet does, and start its agent."""
        labels = {"node-restriction.kubernetes.io/podpool-subnet": subnet}
        self.plane.admin.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        fields = ["architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"]
        fields += ["machineID", "operatingSystem", "osImage", "systemUUID"]
        info = {"bootID": f"boot-of-{name}", **dict.fromkeys(fields, "none")}
        self.plane.admin.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": info}})
        door, deletes = self.home / f"{name}.sock", self.home / f"{name}.deletes"
        words = ("--boot-id", info["bootID"], "--socket", str(door), "--deferred-deletes", str(deletes))
        return BenchNode(self, name, door, self.start_agent(name, *words, *options))


class BenchNode:
    """One node with its agent, called as by a runtime."""

    def __init__(self, site: AgentSite, name: str, door: Path, agent: Daemon) -> None:
        self.site = site
        self.name = name
        self.door = door
        self.agent = agent

    def holds(self, count: int) -> BenchNode:
        """Wait until it has the given number of addresses."""
        until(lambda: self.granted() >= count, f"{self.name} holds {count}", timeout=TIMEOUT)
        return self

    def granted(self) -> int:
        """Return the number of addresses that it was granted."""
        containers = self.config().get("status", {}).get("networkContainers", [])
        return sum(len(each.get("ipAssignments", [])) for each in containers)

    def config(self) -> dict[str, Any]:
        """Return its NNC; empty if it does not exist."""
        return next((each for name, each in self.site.nncs().items() if name == self.name), {})

    def fill(self, count: int) -> BenchNode:
        """Assign the given number of addresses."""
        asyncio.run(self.calls("ADD", [f"resident-{number}" for number in range(count)]))
        asyncio.run(
            self.calls("DEL", ["unknown"])
        )  # no Pod events arrive for these: a DEL makes the agent decide again
        return self

    async def calls(self, command: str, sandboxes: list[str], *, at_once: int = 16) -> None:
        """Send concurrent requests to the agent's socket."""
        lanes = [sandboxes[lane::at_once] for lane in range(at_once)]
        await asyncio.gather(*(self._one_by_one(command, lane) for lane in lanes))

    async def _one_by_one(self, command: str, sandboxes: list[str]) -> None:
        for sandbox in sandboxes:
            await self.call(command, sandbox)

    async def call(self, command: str, sandbox: str) -> float:
        """Send one request and return the seconds that it took."""
        netns = f"/run/netns/{sandbox}"
        request = PluginRequest(command=command, container_id=sandbox, netns=netns, ifname="eth0", stdin=CONFIG)
        sent = encode_frame(encode_request(request))
        begun = time.perf_counter()
        reader, writer = await asyncio.open_unix_connection(self.door)
        writer.write(sent)
        body = await reader.readexactly(decode_length(await reader.readexactly(HEADER_SIZE)) or 0)
        writer.close()
        took = time.perf_counter() - begun
        if decode_response(body).exit_code:
            raise RuntimeError(f"{self.name} refused {command} of {sandbox}: {decode_response(body).stdout.decode()}")
        return took

    def calls_of_agent(self, since: int) -> list[str]:
        """Return the agents' API calls since a mark as verb and resource, without watches."""
        found = self.site.plane.audit.calls(since=since, user=AGENT)
        return [f"{each.verb} {each.resource}" for each in found if each.verb != "watch" and each.status < 400]

    def path(self) -> str:
        """Return the path of a node's NNC."""
        return f"{CONFIGS}/{self.name}"
