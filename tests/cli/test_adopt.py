"""Migration from Whereabouts and back: what is reported, what is changed, and what is not."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool.api.builtin import CONFIG_MAPS, LEASES, NODES, PODS
from podpool.api.crds import multus_crd_manifest
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import FINALIZER, NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.cli.commands.adopt import WhereaboutsMigrator, as_text
from podpool.cli.main import main
from podpool.core.errors import InvalidInput
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http_server import serving
from tests.agent.secondary.shared_range_env import (
    SYSTEM,
    SharedRangeCluster,
    WhereaboutsPlugin,
    network,
    pod_interface,
    run_in,
)
from tests.ledger.harness import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from podpool.whereabouts.cni_args import PodInterface

RANGE = "10.0.0.0/24"
SLICES = "10.8.0.0/16"
AT = datetime(2026, 11, 16, 9, 0, 0, tzinfo=UTC)


class Cluster(SharedRangeCluster):
    """A cluster that Whereabouts was in: one network with a shared range, one with slices."""

    async def begin(self) -> None:
        await super().begin()
        await install_crds(self.kube, [multus_crd_manifest()])
        await self.attach("shared", range=RANGE)
        await self.attach("sliced", range=SLICES, node_slice_size="/24", network_name="fast")
        await self.kube.create(NODES, {"metadata": {"name": "one"}})

    async def attach(self, name: str, **ipam: object) -> None:
        config = {"name": name, "type": "macvlan", "ipam": {"type": "whereabouts", **ipam}}
        meta = {"name": name, "namespace": "default"}
        await self.kube.create(NETWORK_ATTACHMENTS, {"metadata": meta, "spec": {"config": json.dumps(config)}})

    async def run(self, pod: str, **networks: str) -> None:
        """A Pod that Multus connected; a keyword names an attachment and the address on it."""
        shown = [{"name": f"default/{each}", "interface": "net1", "ips": [ip]} for each, ip in networks.items()]
        notes = {"k8s.v1.cni.cncf.io/network-status": json.dumps(shown)}
        meta = {"name": pod, "namespace": "default", "annotations": notes}
        spec = {"nodeName": "one", "containers": [{"name": "main", "image": "none"}]}
        await self.kube.create(PODS, {"metadata": meta, "spec": spec})
        await self.kube.merge_patch(
            PODS, pod, {"status": {"phase": "Running"}}, namespace="default", subresource="status"
        )

    def migrator(self, flat: bytes | None = None) -> WhereaboutsMigrator:
        return WhereaboutsMigrator(self.kube, SYSTEM, clock=ManualClock(AT.timestamp()), flat=flat)


in_cluster = run_in(Cluster)


async def owners(cluster: Cluster) -> dict[str, PodInterface]:
    return {str(address): owner for (_, address), owner in (await cluster.entries()).items()}


class TestAdopt:
    @in_cluster
    async def test_a_consistent_cluster_is_not_changed(self, cluster: Cluster) -> None:
        plugin = WhereaboutsPlugin(cluster, "whereabouts")
        await plugin.add(pod_interface("web"), network(RANGE))
        await cluster.run("web", shared="10.0.0.1")
        before = await cluster.entries()
        report = await cluster.migrator().adopt(apply=True)
        assert report.consistent
        assert (1, 1, 1, 2) == (report.pools, report.entries, report.reservations, report.attachments)
        assert () == report.findings
        assert "no inconsistencies: running Pods keep their addresses" in as_text(report)
        assert before == await cluster.entries()

    @in_cluster
    async def test_duplicates_and_leaks_are_reported_and_not_changed(self, cluster: Cluster) -> None:
        await cluster.fill(RANGE, (1, pod_interface("web")), (2, pod_interface("gone")))
        await cluster.fill("10.0.0.0/28", (1, pod_interface("other")))
        for pod in ("web", "other"):
            await cluster.run(pod, shared="10.0.0.1")
        before = await cluster.entries()
        report = await cluster.migrator().adopt(apply=True)
        assert not report.consistent
        text = as_text(report)
        assert "duplicate: ippool/10.0.0.0-24: 10.0.0.1 has 2 owners" in text
        assert "10.0.0.2 of default/gone net1 in ippool/10.0.0.0-24: the Pod does not exist" in text
        assert before == await cluster.entries()

    @in_cluster
    async def test_an_unrecorded_address_is_recorded_with_apply_only(self, cluster: Cluster) -> None:
        """Otherwise the next ADD, of either plugin, would assign it again."""
        await cluster.run("web", shared="10.0.0.1")
        report = await cluster.migrator().adopt()
        assert not report.consistent
        assert {} == await cluster.entries()
        assert "with --apply: ippool/10.0.0.0-24: record 10.0.0.1 of default/web net1" in as_text(report)
        assert (await cluster.migrator().adopt(apply=True)).consistent
        assert "default/web" == (await owners(cluster))["10.0.0.1"].podref
        assert ("10.0.0.2",) == await cluster.node("one").add(pod_interface("next"), network(RANGE))
        assert (await cluster.migrator().adopt()).consistent

    @in_cluster
    async def test_an_address_of_a_slice_is_recorded_in_its_nodes_pool(self, cluster: Cluster) -> None:
        spec = {"range": "10.8.3.0/24", "allocations": {}}
        meta = {"name": "fast-one-10.8.3.0-24", "namespace": SYSTEM}
        await cluster.kube.create(IP_POOLS, {"metadata": meta, "spec": spec})
        await cluster.run("web", sliced="10.8.3.7")
        await cluster.migrator().adopt(apply=True)
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert {"7": "default/web"} == {key: each.podref for key, each in pool.spec.allocations.items()}

    @in_cluster
    async def test_an_address_that_cannot_be_recorded_blocks_the_migration(self, cluster: Cluster) -> None:
        """The slice has no pool."""
        await cluster.run("web", sliced="10.8.3.7")
        report = await cluster.migrator().adopt(apply=True)
        assert not report.consistent
        assert "delete the Pod, then retry" in as_text(report).splitlines()[-1]
        assert "continue" not in as_text(report, revert=True)

    @in_cluster
    async def test_invalid_nads_are_listed(self, cluster: Cluster) -> None:
        await cluster.attach("broken", range="10.0.0.0")
        report = await cluster.migrator().adopt()
        assert 2 == report.attachments
        assert report.unreadable[0].startswith("default/broken: ")

    @in_cluster
    async def test_a_flat_file_completes_nads(self, cluster: Cluster) -> None:
        await cluster.attach("plain")
        await cluster.run("web", plain="10.3.0.1")
        assert (await cluster.migrator().adopt()).consistent
        report = await cluster.migrator(b'{"range": "10.3.0.0/24"}').adopt()
        assert ["pod/default/web"] == [each.where for each in report.findings]


class TestTwoPlugins:
    @in_cluster
    async def test_each_plugin_deletes_entries_of_the_other(self, cluster: Cluster) -> None:
        old, new = WhereaboutsPlugin(cluster, "whereabouts"), cluster.node("one")
        await old.add(pod_interface("before"), network(RANGE))
        await new.add(pod_interface("after"), network(RANGE))
        await new.delete(pod_interface("before"), network(RANGE))
        await old.delete(pod_interface("after"), network(RANGE))
        assert ({}, {}) == (await cluster.entries(), await cluster.reservations())


class TestRevert:
    async def create_slice(self, cluster: Cluster) -> None:
        """Create a slice as controller and agent leave it."""
        node = await cluster.kube.get(NODES, "one")
        meta = {
            "name": "fast-one-10.8.3.0-24",
            "namespace": SYSTEM,
            "labels": {NODE_UID_LABEL: node.metadata.uid, "kept": "yes"},
            "annotations": {NODE_ANNOTATION: "one"},
        }
        entry = {"id": "c", "podref": "default/web", "ifname": "net1"}
        spec = {"range": "10.8.3.0/24", "allocations": {"7": entry}}
        await cluster.kube.create(IP_POOLS, {"metadata": meta, "spec": spec})
        await cluster.kube.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": "one/uid"}})
        assigned = {"id": "a1", "network": "fast", "range": SLICES, "slice": "10.8.3.0/24"}
        named = {"name": "one", "finalizers": [FINALIZER]}
        slices = {"nodeUID": node.metadata.uid, "assignments": [assigned]}
        await cluster.kube.create(NODE_SLICES, {"metadata": named, "spec": slices})
        await cluster.run("web", sliced="10.8.3.7")

    @in_cluster
    async def test_metadata_is_removed_and_entries_stay(self, cluster: Cluster) -> None:
        await self.create_slice(cluster)
        report = await cluster.migrator().revert()
        steps = ["ippool/fast-one-10.8.3.0-24", "lease/fast-one-10.8.3.0-24", "nodeslices/one"]
        assert steps == [each.where for each in report.steps]
        before = await cluster.entries()
        assert (await cluster.migrator().revert(apply=True)).consistent
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        lease = await cluster.kube.get(LEASES, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert ({"kept": "yes"}, {}) == (pool.metadata.labels, pool.metadata.annotations)
        assert ("", {}) == (lease.spec.holder_identity or "", lease.metadata.annotations)
        assert before == await cluster.entries()
        assert [] == [*(await cluster.kube.list(NODE_SLICES)).items]
        assert [] == [*(await cluster.kube.list(CONFIG_MAPS, namespace=SYSTEM)).items]
        assert () == (await cluster.migrator().revert()).steps

    @in_cluster
    async def test_metadata_of_node_slice_pools_is_removed(self, cluster: Cluster) -> None:
        notes = {"podpool.io/network": "fast", "podpool.io/waiting": "two", "kept": "yes"}
        meta = {"name": "fast", "namespace": SYSTEM, "annotations": notes}
        table = {"metadata": meta, "spec": {"range": SLICES, "sliceSize": "/24"}, "status": {"allocations": []}}
        await cluster.kube.create(NODE_SLICE_POOLS, table)
        await cluster.kube.merge_patch(NODES, "one", {"metadata": {"annotations": {"podpool.io/mine": "yes"}}})
        assert ["nodeslicepool/fast"] == [each.where for each in (await cluster.migrator().revert()).steps]
        assert (await cluster.migrator().revert(apply=True)).consistent
        fast = await cluster.kube.get(NODE_SLICE_POOLS, "fast", namespace=SYSTEM)
        assert {"kept": "yes"} == fast.metadata.annotations
        assert {"podpool.io/mine": "yes"} == (await cluster.kube.get(NODES, "one")).metadata.annotations

    @in_cluster
    async def test_a_running_agent_blocks_it(self, cluster: Cluster) -> None:
        await self.create_slice(cluster)

        async def agent() -> None:
            while True:
                await asyncio.sleep(0.5)
                for asked in (await cluster.kube.list(CONFIG_MAPS, namespace=SYSTEM)).items:
                    status = {"status": {"protocol": 1, "inventory": asked.data["request"]}}
                    await cluster.kube.merge_patch(NODE_SLICES, "one", status, subresource="status")

        running = asyncio.get_running_loop().create_task(agent())
        with pytest.raises(InvalidInput, match="'one': are still running"):
            await cluster.migrator().revert(apply=True)
        running.cancel()
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert NODE_UID_LABEL in pool.metadata.labels
        assert 1 == len((await cluster.kube.list(NODE_SLICES)).items)

    @in_cluster
    async def test_a_running_controller_blocks_it(self, cluster: Cluster) -> None:
        meta = {"name": "podpool-controller", "namespace": SYSTEM}
        await cluster.kube.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": "host-1"}})
        with pytest.raises(InvalidInput, match="stop the agents, then the controller"):
            await cluster.migrator().revert(apply=True)

    @in_cluster
    async def test_an_expired_controller_lease_does_not_block_it(self, cluster: Cluster) -> None:
        """The Lease of a dead controller counts for its duration."""
        renewed = (AT - timedelta(seconds=16)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta = {"name": "podpool-controller", "namespace": SYSTEM}
        spec = {"holderIdentity": "host-1", "leaseDurationSeconds": 20, "renewTime": renewed}
        await cluster.kube.create(LEASES, {"metadata": meta, "spec": spec})
        with pytest.raises(InvalidInput, match="still the leader"):
            await cluster.migrator().revert(apply=True)
        shorter = {"spec": {"leaseDurationSeconds": 15}}
        await cluster.kube.merge_patch(LEASES, "podpool-controller", shorter, namespace=SYSTEM)
        report = await cluster.migrator().revert(apply=True)
        assert as_text(report, revert=True).endswith(
            "restore its plugin with `podpool cni uninstall --name podpool,whereabouts --conf-dir ''` on each node"
        )

    @in_cluster
    async def test_entries_that_whereabouts_cannot_read_are_reported(self, cluster: Cluster) -> None:
        far = network("fd00::8000:0:0:1-fd00::8000:0:0:9/64")
        await cluster.node("one").add(pod_interface("web"), far)
        text = as_text(await cluster.migrator().revert(), revert=True)
        assert "is out of range for Whereabouts, which would assign it again" in text


class TestCommand:
    def test_output_formats_and_exit_codes(self, tmp_path: Path) -> None:
        async def run() -> None:
            cluster = Cluster()
            await cluster.begin()
            await cluster.fill(RANGE, (2, pod_interface("gone")))
            async with serving(cluster.server.send, host="127.0.0.1", port=0) as port:
                config = tmp_path / "kubeconfig"
                config.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
                code, output = await _invoke("adopt", "whereabouts", "--kubeconfig", str(config))
                assert (0, "1 IPPools with 1 entries, 0 reservations") == (code, output.partition(", 2")[0])
                code, output = await _invoke("adopt", "whereabouts", "--kubeconfig", str(config), "-o", "json")
                assert ["leak"] == [each["problem"] for each in json.loads(output)["findings"]]
                code, output = await _invoke("adopt", "whereabouts", "--kubeconfig", str(config), "-o", "yaml")
                assert (0, 1) == (code, msgspec.yaml.decode(output)["pools"])
                flat = tmp_path / "whereabouts.conf"
                code, output = await _invoke(
                    "adopt", "whereabouts", "--kubeconfig", str(config), "--flat-file", str(flat)
                )
                assert (2, "") == (code, output)
                flat.write_text("{}")
                code, _ = await _invoke("adopt", "whereabouts", "--kubeconfig", str(config), "--flat-file", str(flat))
                assert 0 == code

        asyncio.run(run())


async def _invoke(*words: str) -> tuple[int, str]:
    """Run a command in a thread, while this loop serves the API."""
    output = io.StringIO()

    def run() -> int:
        with redirect_stdout(output), pytest.raises(SystemExit) as stopped:
            main(words)
        return int(stopped.value.code or 0)

    return await asyncio.to_thread(run), output.getvalue()
