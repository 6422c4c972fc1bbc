"""A cluster in which podpool serves only secondary networks, without a ledger. Commands run as in a shell."""

from __future__ import annotations

import asyncio
import io
import json
import random
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest

from podpool.api.builtin import NODES, PODS
from podpool.api.crds import crd_manifests, multus_crd_manifest
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.cli.main import main
from podpool.core.ranges import parse_prefix
from podpool.core.slice_table import parse_slice_size
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http_server import serving
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan
from podpool.whereabouts.slice_assignment import assign_slices, slice_allocations
from tests.agent.clocks import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

SYSTEM = "kube-system"


class SliceCluster:
    """Nodes, networks and NodeSlices, as controller and agents leave them."""

    def __init__(self, config: Path) -> None:
        store = ObjectStore(clock=LoopClock(), rng=random.Random(1))  # noqa: S311  the same each time
        self.server = ResourceHandler(store)
        self.kube = KubeClient(self.server)
        self.config = config
        self.names: list[str] = []
        self._uids: dict[str, str] = {}
        self._served: set[str] = set()
        """Nodes with a NodeSlices."""

    async def open(self, nodes: int) -> None:
        """Create the CRDs and the Nodes."""
        await install_crds(self.kube, [*crd_manifests(), multus_crd_manifest()])
        for number in range(nodes):
            name = f"node-{number:03}"
            self.names.append(name)
            self._uids[name] = (await self.kube.create(NODES, {"metadata": {"name": name}})).metadata.uid

    async def divide(self, name: str, range_: str, size: str) -> None:
        """Create a network, its NAD, and the slices of the nodes: whoever gets none waits."""
        prefix = parse_prefix(range_)
        plan = SliceTablePlan(key=SliceTableKey(name, prefix), layout=parse_slice_size(size, of=prefix))
        assignment = assign_slices(plan, nodes=dict.fromkeys(self.names, ""))
        ipam = {"type": "whereabouts", "range": range_, "node_slice_size": size, "network_name": name}
        nad = json.dumps({"name": name, "type": "macvlan", "ipam": ipam})
        meta = {"name": name, "namespace": "default"}
        await self.kube.create(NETWORK_ATTACHMENTS, {"metadata": meta, "spec": {"config": nad}})
        notes = {"podpool.io/network": name, "podpool.io/waiting": " ".join(assignment.waiting)}
        rows = [{"nodeName": each.node_name, "sliceRange": each.slice_range} for each in slice_allocations(assignment)]
        shown = {key: value for key, value in notes.items() if value}
        listed: dict[str, Any] = {"name": name, "namespace": SYSTEM, "annotations": shown}
        spec = {"range": range_, "sliceSize": size}
        await self.kube.create(NODE_SLICE_POOLS, {"metadata": listed, "spec": spec, "status": {"allocations": rows}})
        for node, slice_ in assignment.assigned.items():
            await self.assign(node, name, range_, str(slice_))

    async def assign(self, node: str, network: str, range_: str, slice_: str, **states: Any) -> None:  # noqa: ANN401  fields
        """Assign a slice to a node, which holds it; `states` are other fields of the status, None for no status."""
        id_ = f"{network}-{node}"
        assignment = {"id": id_, "network": network, "range": range_, "slice": slice_, "confirmed": f"ack-{id_}"}
        assignment |= {key: states.pop(key) for key in ("returnReason",) if key in states}
        await self.patch(node, "spec", {"nodeUID": self._uids[node]}, "assignments", assignment)
        status = {"id": id_, "network": network, "range": range_, "slice": slice_, "acknowledgement": f"ack-{id_}"}
        await self.patch(node, "status", {"protocol": 1}, "slices", status | {"held": True, "inUse": False} | states)

    async def patch(self, node: str, part: str, fields: dict[str, Any], key: str, row: dict[str, Any]) -> None:
        """Add a row to spec or status of a node's NodeSlices, instead of one with the same ID."""
        if node not in self._served:
            self._served.add(node)
            await self.kube.create(NODE_SLICES, {"metadata": {"name": node, "finalizers": ["podpool.io/slices"]}})
        before = (await self.kube.get_raw(NODE_SLICES, node)).get(part, {})
        rows = [*(each for each in before.get(key, []) if each["id"] != row["id"]), row]
        subresource = "status" if part == "status" else None
        await self.kube.merge_patch(NODE_SLICES, node, {part: {**fields, key: rows}}, subresource=subresource)

    async def pool(self, name: str, range_: str, keys: Sequence[int] = (), **notes: str) -> None:
        """Create an IPPool with entries."""
        entries = {str(key): {"id": "c", "podref": f"default/pod-{key}", "ifname": "net1"} for key in keys}
        annotations = {f"podpool.io/{key}": value for key, value in notes.items()}
        meta = {"name": name, "namespace": SYSTEM, "annotations": annotations}
        await self.kube.create(IP_POOLS, {"metadata": meta, "spec": {"range": range_, "allocations": entries}})

    async def pod(self, name: str, node: str, networks: str = "", **status: Any) -> None:  # noqa: ANN401  fields
        """Create a Pod on a node, with a status."""
        notes = {"k8s.v1.cni.cncf.io/networks": networks} if networks else {}
        meta = {"name": name, "namespace": "default", "annotations": notes}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        await self.kube.create(PODS, {"metadata": meta, "spec": spec})
        await self.kube.merge_patch(PODS, name, {"status": status}, namespace="default", subresource="status")

    async def invoke(self, *words: str, answer: str = "") -> tuple[int, str, str]:
        """Run a command in a thread, while this loop serves the API; return its code, output and errors."""
        output, errors = io.StringIO(), io.StringIO()

        def run() -> int:
            with redirect_stdout(output), redirect_stderr(errors), pytest.raises(SystemExit) as stopped:
                main([*words, "--kubeconfig", str(self.config), "--no-color"])
            return int(stopped.value.code or 0)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sys.stdin", io.StringIO(answer))
            return await asyncio.to_thread(run), output.getvalue(), errors.getvalue()


@asynccontextmanager
async def slice_cluster(config: Path, *, nodes: int) -> AsyncIterator[SliceCluster]:
    """Serve a cluster with so many nodes."""
    cluster = SliceCluster(config)
    await cluster.open(nodes)
    async with serving(cluster.server.send, host="127.0.0.1", port=0) as port:
        await asyncio.to_thread(config.write_text, kubeconfig(f"http://127.0.0.1:{port}"))
        yield cluster
