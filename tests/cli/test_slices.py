"""Clusters in which podpool serves only secondary networks: they need no ledger, and a shortage of slices is shown."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import CONFIG_MAPS, NODES
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.whereabouts import NODE_SLICE_POOLS
from tests.cli.slice_cluster import SliceCluster, slice_cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cli.conftest import Invoke


def with_nodes(count: int) -> Callable[[Callable[[SliceCluster], Awaitable[None]]], Callable[[Path], None]]:
    """Run a test in a cluster with so many nodes."""

    def decorate(scenario: Callable[[SliceCluster], Awaitable[None]]) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            async def run() -> None:
                async with slice_cluster(tmp_path / "kubeconfig", nodes=count) as cluster:
                    await scenario(cluster)

            asyncio.run(run())

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate


@pytest.fixture(autouse=True)
def without_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ledger is configured, and no demo runs."""
    for name in ("PODPOOL_LEDGER", "PODPOOL_LEDGER_TOKEN_FILE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@with_nodes(2)
async def test_a_cluster_with_slices_only_needs_no_ledger(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    code, lines, errors = await cluster.invoke("status")
    assert (0, "") == (code, errors)
    assert "Every Pod has an address." == lines.splitlines()[0]
    assert "nodes       2\n" in lines
    assert "Pods        0 waiting\n" in lines
    assert "ledger      none\n" in lines
    code, lines, _ = await cluster.invoke("nodes")
    assert ["node-000", "1", "-", "0", "ok"] == lines.splitlines()[1].split()
    assert 0 == (await cluster.invoke("audit"))[0]
    assert 0 == (await cluster.invoke("who", "10.9.0.1"))[0]


@with_nodes(1)
async def test_a_cluster_with_an_nnc_needs_its_ledger(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    nnc = {"metadata": {"name": "node-000", "namespace": "kube-system"}, "spec": {"requestedIPCount": 1}}
    await cluster.kube.create(NODE_NETWORK_CONFIGS, nnc)
    code, lines, errors = await cluster.invoke("status")
    assert 3 == code
    assert "nodes       1, 1 unserved" in lines
    assert "--ledger-token-file" in errors


@with_nodes(1)
async def test_a_ledger_that_is_named_is_used(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    code, _, errors = await cluster.invoke("status", "--ledger", "http://127.0.0.1:1")
    assert 3 == code
    assert "ledger" in errors


@with_nodes(500)
async def test_500_nodes_in_256_slices(cluster: SliceCluster) -> None:
    """Two /16 networks by /24: 244 nodes have no slice, which every command shows with its remedy."""
    for number, name in enumerate(("storage", "backup")):
        await cluster.divide(name, f"10.{60 + number}.0.0/16", "/24")
    code, lines, _ = await cluster.invoke("status")
    first, second, third, *_ = lines.splitlines()
    assert (0, "Every Pod has an address. In 2 networks, up to 244 nodes wait for a slice.") == (code, first)
    remedy = "use a larger range, such as 10.60.0.0/15, or node_slice_size /25 (126 addresses per node;"
    assert second.startswith("backup: 256 nodes have a slice;")
    assert third.startswith(f"storage: 256 nodes have a slice; {remedy}")
    assert "nodes       500, 244 without a slice\n" in lines
    code, lines, _ = await cluster.invoke("slices")
    assert (0, "storage 10.60.0.0/16 /24 256 256 0 0 244 0 65024") == (code, " ".join(lines.splitlines()[2].split()))
    code, lines, _ = await cluster.invoke("slices", "-o", "json")
    assert [(256, 244), (256, 244)] == [(each["assigned"], each["waiting"]) for each in json.loads(lines)["items"]]
    code, lines, _ = await cluster.invoke("slices", "storage")
    assert 1 + 256 + 244 + 2 == len(lines.splitlines())
    await cluster.pod("db-0", "node-499", "default/storage")
    code, lines, _ = await cluster.invoke("why", "db-0", "-n", "default")
    assert (1, True, True) == (code, "waits for a slice of network storage" in lines, remedy in lines)
    code, lines, _ = await cluster.invoke("why", "--node", "node-499")
    assert (1, True) == (code, "waits for a slice of networks backup, storage" in lines)
    code, lines, _ = await cluster.invoke("why", "--node", "node-000")
    assert (0, "Node node-000 has the slices 10.60.0.0/24 (held), 10.61.0.0/24 (held).\n") == (code, lines)
    code, lines, _ = await cluster.invoke("adopt", "whereabouts")
    finding = "10.60.0.0/16 has 256 slices of /24 for 500 nodes, 244 get none: "
    assert f"insufficient slices: net-attach-def/default/storage: {finding}{remedy}" in lines
    assert "2 ranges have fewer slices than nodes" in lines.splitlines()[-1]
    assert "no inconsistencies" not in lines


@with_nodes(2)
async def test_an_empty_seal_is_no_network(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    await cluster.pool("storage-10.9.0.0-24", "10.9.0.0/24", sealed="leader", network="storage")
    await cluster.pool("10.8.0.0-24", "10.8.0.0/24", [3])
    _, lines, _ = await cluster.invoke("slices")
    assert ["10.8.0.0-24", "storage"] == [line.split()[0] for line in lines.splitlines()[1:]]
    _, lines, _ = await cluster.invoke("status")
    assert "networks    2 secondary, 1 addresses in use\n" in lines


@with_nodes(2)
async def test_slices_that_shared_addresses_withhold_have_another_remedy(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/28", "/28")
    await cluster.pool("storage-10.9.0.0-28", "10.9.0.0/28", [1, 2], sealed="leader", network="storage")
    _, lines, _ = await cluster.invoke("slices")
    assert "restart the Pods with the 2 addresses in IPPool storage-10.9.0.0-28" in lines


@with_nodes(5)
async def test_the_state_of_each_slice(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    at = ("storage", "10.9.0.0/24")
    await cluster.assign("node-000", *at, "10.9.0.0/28", inUse=True)
    await cluster.assign("node-001", *at, "10.9.0.16/28", returnReason="another size", inUse=True)
    await cluster.assign("node-002", *at, "10.9.0.32/28", held=False, acknowledgement="")
    await cluster.kube.merge_patch(NODE_SLICES, "node-003", {"spec": {"assignments": []}})
    _, lines, _ = await cluster.invoke("slices", "storage", "-o", "wide")
    assert [
        "node-000 10.9.0.0/28 in use 0 14 -",
        "node-001 10.9.0.16/28 returning 0 14 another size",
        "node-002 10.9.0.32/28 assigned 0 14 -",
        "node-003 10.9.0.48/28 lost 0 14 -",
        "node-004 10.9.0.64/28 held 0 14 -",
    ] == [" ".join(line.split()) for line in lines.splitlines()[1:]]
    _, lines, _ = await cluster.invoke("slices", "-o", "wide")
    assert "storage 10.9.0.0/24 /28 16 5 1 1 0 0 70 1" in " ".join(lines.splitlines()[1].split())
    code, lines, _ = await cluster.invoke("why", "--node", "node-002")
    assert (1, True) == (code, "The agent has not acknowledged slice 10.9.0.32/28 of node node-002" in lines)
    code, lines, _ = await cluster.invoke("why", "--node", "node-003")
    assert (1, True) == (code, "Nothing new is assigned from slice 10.9.0.48/28" in lines)
    await cluster.assign("node-002", *at, "10.9.0.32/28", held=False)
    await cluster.pod("db-0", "node-002", "default/storage")
    code, lines, _ = await cluster.invoke("why", "db-0", "-n", "default")
    assert (1, True) == (code, "The controller has not confirmed slice 10.9.0.32/28 of node node-002" in lines)


@with_nodes(1)
async def test_slices_of_a_network_that_ended_are_shown(cluster: SliceCluster) -> None:
    """Its NodeSlicePool is deleted at once; slices in use stay with their nodes."""
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    await cluster.assign("node-000", "storage", "10.9.0.0/24", "10.9.0.0/28", returnReason="no NAD uses it")
    await cluster.kube.delete(NODE_SLICE_POOLS, "storage", namespace="kube-system")
    _, lines, _ = await cluster.invoke("slices")
    assert ["storage-10.9.0.0-24", "10.9.0.0/24", "/28", "1", "1", "0", "1"] == lines.splitlines()[1].split()[:7]


@with_nodes(1)
async def test_why_names_a_nad_that_got_no_slice(cluster: SliceCluster) -> None:
    await cluster.divide("storage", "10.9.0.0/24", "/28")
    ipam = {"type": "whereabouts", "range": "10.9.0.0/25", "node_slice_size": "/28", "network_name": "storage"}
    nad = {"config": json.dumps({"name": "later", "type": "macvlan", "ipam": ipam})}
    await cluster.kube.create(NETWORK_ATTACHMENTS, {"metadata": {"name": "later", "namespace": "default"}, "spec": nad})
    await cluster.pod("db-0", "node-000", "later")
    code, lines, _ = await cluster.invoke("why", "db-0", "-n", "default")
    assert (1, True) == (code, "Node node-000 has no slice of default/later yet." in lines)
    assert "ledger" not in lines


@with_nodes(1)
async def test_why_takes_a_pod_or_a_node(cluster: SliceCluster) -> None:
    assert 2 == (await cluster.invoke("why"))[0]
    assert 2 == (await cluster.invoke("why", "web", "--node", "node-000"))[0]
    code, lines, _ = await cluster.invoke("why", "--node", "other")
    assert (1, True) == (code, "Node other does not exist." in lines)


async def inventory(cluster: SliceCluster, **data: str) -> None:
    """Write the ConfigMap as the controller does."""
    meta = {"name": INVENTORY_CONFIG_MAP, "namespace": "kube-system"}
    await cluster.kube.create(CONFIG_MAPS, {"metadata": meta, "data": data})


async def notes_of(cluster: SliceCluster) -> dict[str, str]:
    """Return the annotations of that ConfigMap."""
    found = await cluster.kube.get(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace="kube-system")
    return dict(found.metadata.annotations)


async def answer(cluster: SliceCluster, node: str, request: str) -> None:
    """Answer the inventory as an agent does."""
    await cluster.kube.merge_patch(NODE_SLICES, node, {"status": {"inventory": request}}, subresource="status")


class TestAudit:
    AT = ("storage", "10.9.0.0/24")

    @staticmethod
    async def findings(cluster: SliceCluster) -> list[tuple[str, str, str]]:
        """Return code, object and problem of each finding."""
        _, lines, _ = await cluster.invoke("audit", "--settle", "0s", "-o", "json")
        return [(each["code"], each["subject"], each["message"]) for each in json.loads(lines)["findings"]]

    @staticmethod
    @with_nodes(3)
    async def test_a_consistent_network(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await cluster.pool("storage-node-000-10.9.0.0-28", "10.9.0.0/28", [3], node="node-000", network="storage")
        await cluster.pod("pod-3", "node-000", phase="Running", podIPs=[{"ip": "10.1.0.3"}])
        code, lines, _ = await cluster.invoke("audit")
        assert (0, "No violations in 3 nodes, 0 grants, 1 Pod, 1 IPPool entry, 3 slices.\n") == (code, lines)

    @staticmethod
    @with_nodes(2)
    async def test_two_nodes_with_overlapping_slices(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await cluster.assign("node-001", *TestAudit.AT, "10.9.0.0/27", inUse=True)
        one = "in network storage, slice 10.9.0.0/27 of node node-001 (in use) overlaps"
        assert [
            ("slices-overlap", "nodeslices/node-001", f"{one} slice 10.9.0.0/28 of node node-000 (held)"),
            ("slice-shared", "nodeslicepool/storage", "slice 10.9.0.0/28 of node-000 is still held by node-001"),
        ] == (await TestAudit.findings(cluster))[:2]

    @staticmethod
    @with_nodes(2)
    async def test_a_former_node_of_the_same_name(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        before = {"id": "old", "network": "storage", "range": "10.9.0.0/24", "slice": "10.9.0.0/28"}
        former = {"spec": {"former": [{"nodeUID": "old", "bootID": "boot", "assignments": [before]}]}}
        await cluster.kube.merge_patch(NODE_SLICES, "node-000", former)
        ((code, subject, message),) = await TestAudit.findings(cluster)
        assert ("slices-overlap", "nodeslices/node-000") == (code, subject)
        assert (
            "slice 10.9.0.0/28 of former node node-000 (former) overlaps slice 10.9.0.0/28 of node node-000" in message
        )

    @staticmethod
    @with_nodes(2)
    async def test_a_row_that_differs(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await cluster.assign("node-001", *TestAudit.AT, "10.9.0.32/28")
        assert [
            (
                "slice-row-differs",
                "nodeslicepool/storage",
                "slice 10.9.0.32/28 is assigned to node-001, but not listed",
            ),
            (
                "slice-row-differs",
                "nodeslicepool/storage",
                "slice 10.9.0.16/28 is listed for node-001, but not assigned to it",
            ),
        ] == await TestAudit.findings(cluster)

    @staticmethod
    @with_nodes(1)
    async def test_entries_outside_of_the_nodes_slices(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await cluster.pool("storage-node-000-10.9.0.16-28", "10.9.0.16/28", [3], node="node-000", network="storage")
        await cluster.pod("pod-3", "node-000", phase="Running", podIPs=[{"ip": "10.1.0.3"}])
        message = "it lists 1 addresses of 10.9.0.16/28, which is not a slice of node node-000"
        assert [("pool-without-slice", "ippool/storage-node-000-10.9.0.16-28", message)] == await TestAudit.findings(
            cluster
        )


class TestDeclareComplete:
    @staticmethod
    @with_nodes(3)
    async def test_silent_nodes_are_shown_and_excused_after_a_confirmation(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await inventory(cluster, request="q1", scope="all")
        await answer(cluster, "node-000", "q1")
        await cluster.kube.delete(NODES, "node-002")
        code, lines, errors = await cluster.invoke("slices", "declare-complete")
        assert (1, "2 of 3 nodes have not answered slice inventory q1:") == (code, lines.splitlines()[0])
        assert ["node-001", "ready", "1", "0"] == lines.splitlines()[2].split()
        assert ["node-002", "missing", "1", "0"] == lines.splitlines()[3].split()
        assert "Excuse these nodes in the cluster at http://127.0.0.1:" in errors
        assert "slices      none is assigned before 2 nodes answer" in (await cluster.invoke("status"))[1]
        assert {} == await notes_of(cluster)
        code, lines, errors = await cluster.invoke("slices", "declare-complete", answer="y\n")
        assert (0, True) == (code, "The nodes are excused." in errors)
        assert {"podpool.io/inventory-complete": "q1"} == await notes_of(cluster)
        code, lines, _ = await cluster.invoke("slices", "declare-complete")
        assert (0, "The silent nodes of this inventory are excused already.\n") == (code, lines)

    @staticmethod
    @with_nodes(1)
    async def test_without_silent_nodes_nothing_is_asked(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        code, lines, _ = await cluster.invoke("slices", "declare-complete")
        assert (0, "No slice inventory was requested yet.\n") == (code, lines)
        await inventory(cluster, request="q1", scope="ready")
        code, lines, _ = await cluster.invoke("slices", "declare-complete")
        assert (0, "0 of 1 nodes have answered: the controller waits for no other.\n") == (code, lines)
        await answer(cluster, "node-000", "q1")
        code, lines, _ = await cluster.invoke("slices", "declare-complete")
        assert (0, "1 of 1 nodes have answered: the controller waits for no other.\n") == (code, lines)

    @staticmethod
    @with_nodes(1)
    async def test_output_for_programs(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await inventory(cluster, request="q1", scope="all")
        code, lines, _ = await cluster.invoke("slices", "declare-complete", "--yes", "-o", "json")
        assert (0, ["node-000"]) == (code, [each["node"] for each in json.loads(lines)["silent"]])


class TestConfirmLoss:
    @staticmethod
    @with_nodes(6)
    async def test_missing_nodes_are_shown_and_confirmed(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        code, lines, _ = await cluster.invoke("slices", "confirm-loss")
        assert (0, "Node GC of slices is not stopped.\n") == (code, lines)
        await inventory(cluster, request="q1", loss="l1")
        for node in cluster.names[1:]:
            await cluster.kube.delete(NODES, node)
        code, lines, _ = await cluster.invoke("slices", "confirm-loss", answer="n\n")
        assert (1, "5 of 6 nodes with slices are missing:") == (code, lines.splitlines()[0])
        assert {} == await notes_of(cluster)
        assert "slices      none of 5 missing nodes is released" in (await cluster.invoke("status"))[1]
        assert 0 == (await cluster.invoke("slices", "confirm-loss", "--yes"))[0]
        assert {"podpool.io/confirm-loss": "l1"} == await notes_of(cluster)
        code, lines, _ = await cluster.invoke("slices", "confirm-loss")
        assert (0, "The loss is confirmed already.\n") == (code, lines)

    @staticmethod
    @with_nodes(2)
    async def test_a_node_that_was_replaced_under_its_name_is_missing(cluster: SliceCluster) -> None:
        await cluster.divide("storage", "10.9.0.0/24", "/28")
        await inventory(cluster, request="q1", loss="l1")
        await cluster.kube.merge_patch(NODE_SLICES, "node-001", {"spec": {"nodeUID": "earlier"}})
        code, lines, _ = await cluster.invoke("slices", "confirm-loss")
        assert (1, ["node-001", "replaced", "1", "0"]) == (code, lines.splitlines()[2].split())


def test_a_command_with_commands_below_it(invoke: Invoke) -> None:
    """`slices NETWORK` and `slices confirm-loss` are told apart; help and completion list both."""
    shown = invoke("slices", "--help").stdout
    assert "Available Commands:\n  declare-complete   Excuse all nodes" in shown
    assert "podpool slices [NETWORK] [options]" in shown
    assert "Confirm that missing nodes are lost" in invoke("slices", "confirm-loss", "--help").stdout
    assert invoke("__complete", "slices", "c").stdout.startswith("confirm-loss\t")
