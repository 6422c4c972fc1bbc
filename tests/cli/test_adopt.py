"""Moving in where Whereabouts was, and back: what is said, what is changed, and what is not."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool.api.builtin import LEASES, NODES, PODS
from podpool.api.crds import multus_crd_manifest
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.cli.commands.adopt import WhereaboutsMigrator, as_text
from podpool.core.errors import InvalidInput
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.http import serving
from tests.agent.secondary.commons import SYSTEM, Commons, ForeignPlugin, network, played_in, sandbox
from tests.ledger.offices import HandClock

if TYPE_CHECKING:
    from podpool.whereabouts.cni_args import PodInterface

PODPOOL = Path(sys.executable).parent / "podpool"
RANGE = "10.0.0.0/24"
SLICES = "10.8.0.0/16"
AT = datetime(2026, 11, 16, 9, 0, 0, tzinfo=UTC)


class Cluster(Commons):
    """A cluster that Whereabouts was in: one network with a shared range, one with slices."""

    async def begin(self) -> None:
        await super().start()
        await install_crds(self.kube, [multus_crd_manifest()])
        await self.attach("shared", range=RANGE)
        await self.attach("sliced", range=SLICES, node_slice_size="/24", network_name="fast")
        await self.kube.create(NODES, {"metadata": {"name": "one"}})

    async def attach(self, name: str, **ipam: object) -> None:
        told = {"name": name, "type": "macvlan", "ipam": {"type": "whereabouts", **ipam}}
        meta = {"name": name, "namespace": "default"}
        await self.kube.create(NETWORK_ATTACHMENTS, {"metadata": meta, "spec": {"config": json.dumps(told)}})

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
        return WhereaboutsMigrator(self.kube, SYSTEM, clock=HandClock(AT.timestamp()), flat=flat)


in_cluster = played_in(Cluster)


async def owners(cluster: Cluster) -> dict[str, PodInterface]:
    return {str(address): owner for (_, address), owner in (await cluster.entries()).items()}


class TestIn:
    @in_cluster
    async def test_a_cluster_in_order_is_said_to_be_so_and_nothing_is_changed(self, cluster: Cluster) -> None:
        plugin = ForeignPlugin(cluster, "whereabouts")
        await plugin.add(sandbox("web"), network(RANGE))
        await cluster.run("web", shared="10.0.0.1")
        before = await cluster.entries()
        report = await cluster.migrator().adopt(apply=True)
        assert report.consistent
        assert (1, 1, 1, 2) == (report.pools, report.entries, report.reservations, report.attachments)
        assert () == report.findings
        assert "all is well: running Pods keep their addresses" in as_text(report)
        assert before == await cluster.entries()

    @in_cluster
    async def test_duplicates_and_leaks_are_told_and_left_alone(self, cluster: Cluster) -> None:
        await cluster.fill(RANGE, (1, sandbox("web")), (2, sandbox("gone")))
        await cluster.fill("10.0.0.0/28", (1, sandbox("other")))
        for pod in ("web", "other"):
            await cluster.run(pod, shared="10.0.0.1")
        before = await cluster.entries()
        report = await cluster.migrator().adopt(apply=True)
        assert not report.consistent
        told = as_text(report)
        assert "duplicate: ippool/10.0.0.0-24: 10.0.0.1 has 2 owners" in told
        assert "10.0.0.2 of default/gone net1 in ippool/10.0.0.0-24: there is no such Pod" in told
        assert before == await cluster.entries()

    @in_cluster
    async def test_what_a_running_pod_has_and_no_pool_knows_is_written_down_only_on_demand(
        self, cluster: Cluster
    ) -> None:
        """Or the next ADD, theirs or ours, would give it again."""
        await cluster.run("web", shared="10.0.0.1")
        looked = await cluster.migrator().adopt()
        assert not looked.consistent
        assert {} == await cluster.entries()
        assert "with --apply: ippool/10.0.0.0-24: 10.0.0.1 of default/web net1 is written down" in as_text(looked)
        assert (await cluster.migrator().adopt(apply=True)).consistent
        assert "default/web" == (await owners(cluster))["10.0.0.1"].podref
        assert ("10.0.0.2",) == await cluster.node("one").add(sandbox("next"), network(RANGE))
        assert (await cluster.migrator().adopt()).consistent

    @in_cluster
    async def test_an_address_of_a_slice_goes_into_its_nodes_pool(self, cluster: Cluster) -> None:
        spec = {"range": "10.8.3.0/24", "allocations": {}}
        meta = {"name": "fast-one-10.8.3.0-24", "namespace": SYSTEM}
        await cluster.kube.create(IP_POOLS, {"metadata": meta, "spec": spec})
        await cluster.run("web", sliced="10.8.3.7")
        await cluster.migrator().adopt(apply=True)
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert {"7": "default/web"} == {key: each.podref for key, each in pool.spec.allocations.items()}

    @in_cluster
    async def test_nobody_is_told_to_go_on_while_an_address_would_be_given_again(self, cluster: Cluster) -> None:
        """There is no pool for the slice, so that nothing can be written down."""
        await cluster.run("web", sliced="10.8.3.7")
        report = await cluster.migrator().adopt(apply=True)
        assert not report.consistent
        assert "delete the Pod, then look again" in as_text(report).splitlines()[-1]
        assert "go on" not in as_text(report, revert=True)

    @in_cluster
    async def test_attachments_that_cannot_be_read_are_named(self, cluster: Cluster) -> None:
        await cluster.attach("broken", range="10.0.0.0")
        report = await cluster.migrator().adopt()
        assert 2 == report.attachments
        assert report.unreadable[0].startswith("default/broken: ")

    @in_cluster
    async def test_a_flat_file_fills_what_attachments_leave_empty(self, cluster: Cluster) -> None:
        await cluster.attach("plain")
        await cluster.run("web", plain="10.3.0.1")
        assert (await cluster.migrator().adopt()).consistent
        report = await cluster.migrator(b'{"range": "10.3.0.0/24"}').adopt()
        assert ["pod/default/web"] == [each.where for each in report.findings]


class TestGoingOn:
    @in_cluster
    async def test_entries_of_the_old_plugin_are_freed_by_the_new_ones_del_and_the_other_way_round(
        self, cluster: Cluster
    ) -> None:
        old, new = ForeignPlugin(cluster, "whereabouts"), cluster.node("one")
        await old.add(sandbox("before"), network(RANGE))
        await new.add(sandbox("after"), network(RANGE))
        await new.delete(sandbox("before"), network(RANGE))
        await old.delete(sandbox("after"), network(RANGE))
        assert ({}, {}) == (await cluster.entries(), await cluster.reservations())


class TestBack:
    async def take(self, cluster: Cluster) -> None:
        """A slice as our controller and agent leave it."""
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
        await cluster.run("web", sliced="10.8.3.7")

    @in_cluster
    async def test_our_marks_come_off_and_entries_stay(self, cluster: Cluster) -> None:
        await self.take(cluster)
        looked = await cluster.migrator().revert()
        assert ["ippool/fast-one-10.8.3.0-24", "lease/fast-one-10.8.3.0-24"] == [each.where for each in looked.steps]
        before = await cluster.entries()
        assert (await cluster.migrator().revert(apply=True)).consistent
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        lease = await cluster.kube.get(LEASES, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert ({"kept": "yes"}, {}) == (pool.metadata.labels, pool.metadata.annotations)
        assert ("", {}) == (lease.spec.holder_identity or "", lease.metadata.annotations)
        assert before == await cluster.entries()
        assert () == (await cluster.migrator().revert()).steps

    @in_cluster
    async def test_they_come_off_node_slice_pools_and_nodes_too(self, cluster: Cluster) -> None:
        notes = {"podpool.io/network": "fast", "podpool.io/waiting": "two", "kept": "yes"}
        meta = {"name": "fast", "namespace": SYSTEM, "annotations": notes}
        table = {"metadata": meta, "spec": {"range": SLICES, "sliceSize": "/24"}, "status": {"allocations": []}}
        await cluster.kube.create(NODE_SLICE_POOLS, table)
        talk = {"podpool.io/slice-inventory": "word", "podpool.io/slice-report": "{}", "podpool.io/mine": "yes"}
        await cluster.kube.merge_patch(NODES, "one", {"metadata": {"annotations": talk}})
        assert ["nodeslicepool/fast", "node/one"] == [each.where for each in (await cluster.migrator().revert()).steps]
        assert (await cluster.migrator().revert(apply=True)).consistent
        fast = await cluster.kube.get(NODE_SLICE_POOLS, "fast", namespace=SYSTEM)
        assert {"kept": "yes"} == fast.metadata.annotations
        assert {"podpool.io/mine": "yes"} == (await cluster.kube.get(NODES, "one")).metadata.annotations

    @in_cluster
    async def test_not_while_an_agent_that_holds_a_slice_answers(self, cluster: Cluster) -> None:
        await self.take(cluster)

        async def agent() -> None:
            while True:
                await asyncio.sleep(0.5)
                asked = (await cluster.kube.get(NODES, "one")).metadata.annotations.get("podpool.io/slice-inventory")
                if asked:
                    told = json.dumps({"listed": asked})
                    await cluster.kube.merge_patch(
                        NODES, "one", {"metadata": {"annotations": {"podpool.io/slice-report": told}}}
                    )

        working = asyncio.get_running_loop().create_task(agent())
        with pytest.raises(InvalidInput, match="'one': still answer: stop them first"):
            await cluster.migrator().revert(apply=True)
        working.cancel()
        pool = await cluster.kube.get(IP_POOLS, "fast-one-10.8.3.0-24", namespace=SYSTEM)
        assert NODE_UID_LABEL in pool.metadata.labels

    @in_cluster
    async def test_not_while_our_controller_is_at_work(self, cluster: Cluster) -> None:
        meta = {"name": "podpool-controller", "namespace": SYSTEM}
        await cluster.kube.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": "host-1"}})
        with pytest.raises(InvalidInput, match="stop the agents and then the controller first"):
            await cluster.migrator().revert(apply=True)

    @in_cluster
    async def test_a_controller_that_died_keeps_nobody_from_it(self, cluster: Cluster) -> None:
        """Its Lease still names it, and counts for as long as it says."""
        renewed = (AT - timedelta(seconds=16)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        meta = {"name": "podpool-controller", "namespace": SYSTEM}
        spec = {"holderIdentity": "host-1", "leaseDurationSeconds": 20, "renewTime": renewed}
        await cluster.kube.create(LEASES, {"metadata": meta, "spec": spec})
        with pytest.raises(InvalidInput, match="still leads"):
            await cluster.migrator().revert(apply=True)
        shorter = {"spec": {"leaseDurationSeconds": 15}}
        await cluster.kube.merge_patch(LEASES, "podpool-controller", shorter, namespace=SYSTEM)
        report = await cluster.migrator().revert(apply=True)
        assert as_text(report, revert=True).endswith(
            "put its plugin back with `podpool cni uninstall --name podpool,whereabouts --conf-dir ''` on each node"
        )

    @in_cluster
    async def test_entries_that_whereabouts_cannot_read_are_told(self, cluster: Cluster) -> None:
        far = network("fd00::8000:0:0:1-fd00::8000:0:0:9/64")
        await cluster.node("one").add(sandbox("web"), far)
        told = as_text(await cluster.migrator().revert(), revert=True)
        assert "is too far for Whereabouts, which would give the address again" in told


class TestTyped:
    def test_people_read_sentences_and_programs_json(self, tmp_path: Path) -> None:
        async def story() -> None:
            cluster = Cluster()
            await cluster.start()
            await cluster.fill(RANGE, (2, sandbox("gone")))
            async with serving(cluster.server.send, host="127.0.0.1", port=0) as port:
                config = tmp_path / "kubeconfig"
                config.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
                code, said = await _typed("adopt", "whereabouts", "--kubeconfig", str(config))
                assert (0, "1 IPPools with 1 entries, 0 reservations") == (code, said.partition(", 2")[0])
                code, said = await _typed("adopt", "whereabouts", "--kubeconfig", str(config), "-o", "json")
                assert ["leak"] == [each["trouble"] for each in json.loads(said)["findings"]]
                code, said = await _typed("adopt", "whereabouts", "--kubeconfig", str(config), "-o", "yaml")
                assert (0, 1) == (code, msgspec.yaml.decode(said)["pools"])
                flat = tmp_path / "whereabouts.conf"
                code, said = await _typed("adopt", "whereabouts", "--kubeconfig", str(config), "--flat-file", str(flat))
                assert (2, "") == (code, said)
                flat.write_text("{}")
                code, _ = await _typed("adopt", "whereabouts", "--kubeconfig", str(config), "--flat-file", str(flat))
                assert 0 == code

        asyncio.run(story())


async def _typed(*words: str) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(PODPOOL, *words, stdout=pipe, env=dict(os.environ))
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()
