"""A node whose sandboxes start, and end with or without a DEL."""

import asyncio
import json
from collections.abc import Collection
from typing import Any

from podpool.api.builtin import PODS
from podpool.api.whereabouts import IP_POOLS
from podpool.cni.protocol import PluginRequest, decode_response, encode_request
from podpool.runtime.transport import Unreachable
from tests.agent.node_env import NODE, SYSTEM, NodeEnv
from tests.agent.secondary.slice_env import IPAM, assign_slice, enable_slices

SLICED: dict[str, Any] = IPAM
SHARED: dict[str, Any] = {"type": "whereabouts", "range": "10.2.0.0/24"}
FOUND = 180.0
"""Seconds within which a lost DEL is found."""


class SandboxHost:
    """The runtime, the network namespaces and the Pods of a node."""

    def __init__(self, env: NodeEnv, *, runtime: bool = True) -> None:
        self.listed: set[str] = set()
        """The sandboxes that the runtime lists."""
        self.pod_uids: dict[str, str] = {}
        """The Pod UID of each sandbox that was started."""
        self.namespaces: set[str] = set()
        self.reachable = self.responds = True
        """Whether the runtime accepts connections, and whether it ever responds."""
        self._env = env
        enable_slices(env)
        env.deps.update(runtime=self if runtime else None, netns_gone=self.netns_gone)

    async def list_sandboxes(self) -> dict[str, str]:
        if not self.reachable:
            raise Unreachable("the runtime", "connection refused")
        if not self.responds:
            await asyncio.Event().wait()
        return {each: self.pod_uids.get(each, "") for each in self.listed}

    async def netns_gone(self, paths: Collection[str]) -> frozenset[str]:
        return frozenset(paths) - self.namespaces

    async def begin(self) -> None:
        """Start the agent, with a slice."""
        await self._env.start()
        await assign_slice(self._env)

    async def bind(self, name: str, **meta: Any) -> str:  # noqa: ANN401  JSON
        """Create a Pod, and return its UID."""
        new = {"metadata": {"name": name, "namespace": "default", **meta}, "spec": {"nodeName": NODE}}
        return (await self._env.kube.create(PODS, new)).metadata.uid

    async def start(self, name: str, ipam: dict[str, Any] | None = None, *, uid: str | None = None) -> None:
        """Start a sandbox, of a new Pod unless the UID of one is given."""
        uid = await self.bind(name) if uid is None else uid
        self.namespaces.add(f"/run/netns/{name}")
        response = await self.call("ADD", name, ipam, uid=uid)
        assert 0 == response["code"], response
        self.list_sandbox(name, uid=uid)

    def list_sandbox(self, name: str, *, uid: str) -> None:
        """List a sandbox, also one without addresses."""
        self.listed.add(name)
        self.pod_uids[name] = uid

    async def call(self, command: str, name: str, ipam: dict[str, Any] | None, *, uid: str = "") -> dict[str, Any]:
        assert self._env.agent
        pod = f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}"
        config = {"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": ipam or {"type": "podpool"}}
        request = PluginRequest(
            command=command,
            container_id=name,
            ifname="eth0",
            netns=f"/run/netns/{name}",
            args=f"{pod};K8S_POD_UID={uid}" if uid else pod,
            stdin=json.dumps(config).encode(),
        )
        response = decode_response(await self._env.agent.handle(encode_request(request)))
        return {**(json.loads(response.stdout) if response.stdout else {}), "code": response.exit_code}

    async def lose(self, *names: str) -> None:
        """End sandboxes and delete their Pods, without a DEL."""
        self.end(*names)
        await self._env.remove(*names)

    def end(self, *names: str) -> None:
        """End sandboxes, without a DEL; their Pods stay."""
        self.listed -= {*names}
        self.namespaces -= {f"/run/netns/{name}" for name in names}

    async def holders(self) -> set[str]:
        """Return the sandboxes that have addresses."""
        assert self._env.agent
        pools = (await self._env.kube.list(IP_POOLS, namespace=SYSTEM)).items
        entries = {each.id for pool in pools for each in pool.spec.allocations.values()}
        return entries | {each.attachment.container_id for each in self._env.agent.pool.assigned.values()}
