"""Output of the commands that inspect a cluster, for a small cluster that is always the same."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console

from podpool.api.crds import multus_crd_manifest
from podpool.cli.commands import history, status
from podpool.cli.errors import ComponentUnreachable, DoesNotExist
from podpool.cli.output import Printer
from podpool.cli.spec.model import Output
from podpool.lab.apiserver.registry import CRDS
from tests.cli.small_cluster import SERVER, run, small_cluster

if TYPE_CHECKING:
    from podpool.cli.context import ClusterContext
    from tests.cli.small_cluster import SmallCluster


def test_status(cluster: SmallCluster) -> None:
    code, lines, remark = run(cluster, status.status)
    assert (0, "") == (code, remark)
    assert [
        "Every Pod has an address.",
        "",
        "SUBNET     CIDR         CAPACITY  RESERVED  PODS  IDLE  COOLING  FREE  BATCH  STATE",
        "vnet.pods  10.0.0.0/26  61        32        4     26    0        29    16     ok",
        "",
        "COMPONENT   STATE",
        "nodes       2",
        "Pods        4 with an address, 0 waiting",
        "networks    no secondary networks",
    ] == lines[:9]
    assert ["controller", "ledger      reachable"] == [lines[9][:10], lines[10]]
    assert "renewed" in lines[9]


def test_without_a_ledger_status_shows_what_kubernetes_knows(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "ledger")
    code, lines, remark = run(cluster, status.status)
    assert 3 == code
    assert "vnet.pods  10.0.0.0/26  ?         32        4     26    ?        ?     16     ok" in lines
    assert "ledger      unreachable" in lines
    assert remark.startswith("podpool: the ledger cannot be reached: no response within 10 s: showing what Kubernetes")


def test_without_an_api_server_subnets_come_from_the_ledger(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "api")
    code, lines, remark = run(cluster, status.subnets, names=[])
    assert 3 == code
    assert "vnet.pods  10.0.0.0/26  61        32        0     0     0        29    16     ok" == lines[1]
    assert "showing what the ledger knows" in remark
    with pytest.raises(ComponentUnreachable, match="`podpool subnets` .* only need the ledger"):
        run(cluster, status.nodes, names=[], waiting=False)


def colored_status(cluster: SmallCluster) -> tuple[int, str]:
    """Run `status` in a terminal; return its exit code and output."""

    async def colored(context: ClusterContext) -> int:
        terminal = Console(file=out, force_terminal=True, color_system="standard", highlight=False)
        return await status.status(msgspec.structs.replace(context, printer=Printer(out=terminal, err=terminal)))

    out = io.StringIO()
    return run(cluster, colored)[0], out.getvalue()


def test_an_unreachable_cluster_is_red(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "api")
    code, shown = colored_status(cluster)
    assert 3 == code
    assert shown.startswith("\x1b[1;31mThe API server is not reachable.")


def test_an_exhausted_subnet_and_a_gone_node_are_yellow() -> None:
    with small_cluster() as cluster:
        for _ in range(45):
            cluster.bind("one")
        cluster.loop.run_until_complete(cluster.settle())
        assert colored_status(cluster)[1].startswith("\x1b[33mEvery Pod has an address; vnet.pods is exhausted.")
        cluster.store.delete(cluster.store.registry.find("", "v1", "nodes"), "two")
        assert "nodes       2, 1 gone" in run(cluster, status.status)[1]


def test_wide_has_more_columns(cluster: SmallCluster) -> None:
    _, lines, _ = run(cluster, status.nodes, Output.WIDE, names=[], waiting=False)
    assert [
        "NODE  SUBNET     PODS  IDLE  PENDING  RELEASING  WAITING  STATE  PRIMARIES  BATCH  LONGEST-WAIT  WAITING-PODS",
        "one   vnet.pods  3     12    0        0          0        ok     1          16     -             -",
        "two   vnet.pods  1     14    0        0          0        ok     1          16     -             -",
    ] == lines
    assert len(run(cluster, status.nodes, names=["two"], waiting=False)[1][0]) < len(lines[0])


def test_pods_can_be_filtered(cluster: SmallCluster) -> None:
    _, lines, _ = run(cluster, status.pods, names=[], namespace="default", node="two", waiting=False)
    pod = cluster.pods[3]
    assert [f"{'POD':{len(pod)}}  NODE  ADDRESS   STATE", f"{pod}  two   10.0.0.3  assigned"] == lines
    assert 1 == len(run(cluster, status.pods, names=[], namespace="", node="", waiting=True)[1])


def test_pods_are_named_as_in_kubectl(cluster: SmallCluster) -> None:
    pod = cluster.pods[3]
    for name in (pod, pod.partition("/")[2]):
        assert 2 == len(run(cluster, status.pods, names=[name], namespace="", node="", waiting=False)[1])
    with pytest.raises(DoesNotExist, match="POD 'other/none': does not exist; `podpool pods` lists all"):
        run(cluster, status.pods, names=["none"], namespace="other", node="", waiting=False)


def test_json_and_yaml_have_every_field(cluster: SmallCluster) -> None:
    _, lines, _ = run(cluster, status.nodes, Output.JSON, names=[], waiting=False)
    items = json.loads("\n".join(lines))["items"]
    assert [("one", 3, 12, 0, False), ("two", 1, 14, 0, False)] == [
        (each["name"], each["assigned"], each["idle"], each["waiting"], each["gone"]) for each in items
    ]
    _, lines, _ = run(cluster, status.nodes, Output.YAML, names=[], waiting=False)
    assert items == msgspec.yaml.decode("\n".join(lines))["items"]


def test_an_unknown_name_is_an_error_that_lists_the_known(cluster: SmallCluster) -> None:
    with pytest.raises(DoesNotExist, match="NODE 'three': does not exist; existing: one, two"):
        run(cluster, status.nodes, names=["three"], waiting=False)


def test_a_full_subnet_and_why() -> None:
    """80 Pods on a subnet of 61 addresses, of which 2 are primaries and 4 are kept for those of new nodes."""
    with small_cluster() as cluster:
        for _ in range(76):
            cluster.bind("one")
        cluster.loop.run_until_complete(cluster.settle())
        code, lines, _ = run(cluster, status.status)
        assert (0, "25 Pods wait for an address on 1 node.") == (code, lines[0])
        waiting = run(cluster, status.pods, names=[], namespace="", node="", waiting=True)[1]
        code, lines, _ = run(cluster, history.explain, pod=waiting[-1].split()[0], namespace="")
        assert 1 == code
        assert "and subnet vnet.pods is full" in lines[0]
        grow = "Grow it: `podpool ledger subnet grow vnet.pods CIDR`"
        assert f"{grow}; or run fewer Pods on it: no address is idle or cooling down." == lines[1]
        _, lines, _ = run(cluster, status.nodes, Output.WIDE, names=[], waiting=True)
        assert 2 == len(lines)
        assert lines[1].endswith(", +13"), "25 Pods wait, of which 12 are listed"


def test_watch_prints_changes() -> None:
    with small_cluster() as cluster:
        cluster.loop.call_later(5.0, cluster.bind, "two")
        cluster.loop.call_later(8.0, cluster.show, cluster.pods[0])
        cluster.loop.call_later(10.0, cluster.add_host, "three")
        code, lines, _ = run(cluster, status.watch, duration="20s")
        words = [line.partition("  ")[2] for line in lines]
        assert (0, "Cluster  Every Pod has an address.") == (code, words[0])
        assert f"Pod {cluster.pods[0]}  has 10.0.0.19 no more" in words
        assert "Node three  joined" in words
        assert any(line.endswith("waits for an address on node two") for line in words)
        _, lines, _ = run(cluster, status.watch, Output.JSON, duration="2s")
        assert ["Cluster"] == [json.loads(line)["subject"] for line in lines]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (3.0, f"podpool: the cluster at {SERVER} cannot be watched: Nodes have not been listed yet"),
        (20.0, "podpool: lost the cluster, retrying: no event from the API server"),
    ],
)
def test_watch_reports_an_unreachable_api_server(cluster: SmallCluster, seconds: float, said: str) -> None:
    cluster.network.partition("cli", "api")
    code, lines, remark = run(cluster, status.watch, duration=f"{seconds:g}s")
    assert (3, []) == (code, lines)
    assert remark.startswith(said)


def test_slices_of_a_network() -> None:
    with small_cluster() as cluster:
        whereabouts = ("whereabouts.cni.cncf.io", "v1alpha1")
        given = [{"nodeName": "one", "sliceRange": "10.9.0.0/28"}, {"nodeName": "", "sliceRange": "10.9.0.16/28"}]
        divided = {"spec": {"range": "10.9.0.0/24", "sliceSize": "/28"}, "status": {"allocations": given}}
        cluster.create(*whereabouts, "nodeslicepools", {"metadata": {"name": "storage"}, **divided})
        entry = {"id": "c", "podref": cluster.pods[0], "ifname": "net1"}
        pool = {"metadata": {"name": "storage-one-10.9.0.0-28"}}
        cluster.create(*whereabouts, "ippools", {**pool, "spec": {"range": "10.9.0.0/28", "allocations": {"1": entry}}})
        _, lines, _ = run(cluster, status.slices, Output.WIDE, network="")
        assert [
            "NETWORK RANGE SLICE SLICES ASSIGNED IN-USE RETURNING WAITING ADDRESSES SIZE LOST FULLEST",
            "storage 10.9.0.0/24 /28 16 1 1 0 0 1 14 0 one 1/14",
        ] == [" ".join(line.split()) for line in lines]
        _, lines, _ = run(cluster, status.slices, network="storage")
        assert [
            "NODE  SLICE        STATE   ADDRESSES  SIZE",
            "one   10.9.0.0/28  in use  1          14",
        ] == lines


def test_nodes_that_wait_for_slices_are_in_status_slices_and_why() -> None:
    with small_cluster() as cluster:
        whereabouts = ("whereabouts.cni.cncf.io", "v1alpha1")
        given = [{"nodeName": "two", "sliceRange": "10.9.0.0/28"}]
        divided = {"spec": {"range": "10.9.0.0/28", "sliceSize": "/28"}, "status": {"allocations": given}}
        meta = {"name": "storage", "annotations": {"podpool.io/waiting": "one"}}
        cluster.create(*whereabouts, "nodeslicepools", {"metadata": meta, **divided})
        _, lines, _ = run(cluster, status.status)
        assert "Every Pod has an address. 1 node waits for a slice of network storage." == lines[0]
        remedy = "use a larger range, such as 10.9.0.0/27, or node_slice_size /29 (6 addresses per node; a node keeps"
        assert lines[1].startswith(f"storage: 1 nodes have a slice; {remedy}")
        assert "nodes       2, 1 without a slice" in lines
        assert "networks    1 secondary, 0 addresses in use, nodes wait for slices of storage" in lines
        assert colored_status(cluster)[1].startswith("\x1b[1;31m")
        _, lines, _ = run(cluster, status.slices, network="")
        assert ("WAITING", "1") == (lines[0].split()[7], lines[1].split()[7])
        assert remedy in lines[3]
        _, lines, _ = run(cluster, status.slices, network="storage")
        assert ["one", "-", "waiting", "-", "-"] == lines[2].split()
        _, lines, _ = run(cluster, status.slices, Output.JSON, network="storage")
        assert ["one"] == json.loads("\n".join(lines))["waiting_nodes"]
        code, lines, _ = run(cluster, history.explain, pod="", namespace="", node="one")
        assert (1, "Node one waits for a slice of network storage: all slices are assigned.") == (
            code,
            lines[0],
        )
        pod = {"metadata": {"name": "db-0", "annotations": {"k8s.v1.cni.cncf.io/networks": "storage"}}}
        found = cluster.store.registry.find("", "v1", "pods")
        head = {"apiVersion": "v1", "kind": "Pod"}
        cluster.store.create(found, {**head, **pod, "spec": {"nodeName": "one"}}, namespace="default")
        _, lines, _ = run(cluster, history.explain, pod="db-0", namespace="default")
        assert "default/db-0: Node one waits for a slice of network storage: all slices are assigned." == lines[0]
        assert f"For storage, {remedy}" in lines[1]


@pytest.mark.parametrize(
    ("networks", "blamed"),
    [
        ("default/storage@net1", True),
        ('[{"name": "backup"}, {"name": "storage", "namespace": "default"}]', True),
        ("backup, default/backup@storage", False),
        ('[{"name": "backup"}]', False),
        ("[{", False),
    ],
)
def test_why_names_a_missing_slice_only_of_the_pods_own_networks(networks: str, *, blamed: bool) -> None:
    with small_cluster() as cluster:
        meta = {"name": "storage-10.9.0.0-28", "annotations": {"podpool.io/waiting": "one"}}
        divided = {"metadata": meta, "spec": {"range": "10.9.0.0/28", "sliceSize": "/28"}}
        cluster.create("whereabouts.cni.cncf.io", "v1alpha1", "nodeslicepools", divided)
        meta = {"name": "db-0", "annotations": {"k8s.v1.cni.cncf.io/networks": networks}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "one"}}
        cluster.store.create(cluster.store.registry.find("", "v1", "pods"), pod, namespace="default")
        _, lines, _ = run(cluster, history.explain, pod="db-0", namespace="default")
        assert blamed == ("waits for a slice" in lines[0])


@pytest.mark.parametrize(
    ("config", "blamed"),
    [
        ({"name": "storage"}, True),
        ({"name": "other", "ipam": {"network_name": "storage"}}, True),
        ({"name": "other"}, False),
        ({"name": "storage", "ipam": {"type": "host-local"}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_why_reads_the_network_of_a_nad_whose_configuration_names_it(
    config: dict[str, Any] | None, *, blamed: bool
) -> None:
    with small_cluster() as cluster:
        meta = {"name": "storage", "annotations": {"podpool.io/waiting": "one"}}
        divided = {"metadata": meta, "spec": {"range": "10.9.0.0/28", "sliceSize": "/28"}}
        cluster.create("whereabouts.cni.cncf.io", "v1alpha1", "nodeslicepools", divided)
        if config is not None:
            ipam = {"type": "podpool", "range": "10.9.0.0/28", "node_slice_size": "/28"} | config.get("ipam", {})
            spec = {"config": json.dumps({"cniVersion": "1.0.0", "type": "macvlan"} | config | {"ipam": ipam})}
            nad = {"metadata": {"name": "fast"}, "spec": spec}
            cluster.store.create(CRDS, multus_crd_manifest())
            cluster.create("k8s.cni.cncf.io", "v1", "network-attachment-definitions", nad)
        meta = {"name": "db-0", "annotations": {"k8s.v1.cni.cncf.io/networks": "kube-system/fast@net1"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "one"}}
        cluster.store.create(cluster.store.registry.find("", "v1", "pods"), pod, namespace="default")
        _, lines, _ = run(cluster, history.explain, pod="db-0", namespace="default")
        assert blamed == ("waits for a slice" in lines[0])


def test_without_a_ledger_nodes_are_not_unserved_and_why_blames_no_ledger() -> None:
    async def slices_only(context: ClusterContext) -> int:
        context = msgspec.structs.replace(context, ledger=None)
        await status.status(context)
        await status.nodes(context, names=[], waiting=False)
        return await history.explain(context, pod="early", namespace="default")

    with small_cluster() as cluster:
        cluster.stop_all()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "three"}}
        cluster.store.create(cluster.store.registry.find("", "v1", "nodes"), node)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "early"}, "spec": {"nodeName": "three"}}
        cluster.store.create(cluster.store.registry.find("", "v1", "pods"), pod, namespace="default")
        _, lines, _ = run(cluster, slices_only)
        assert "nodes       3" in lines
        assert ["-"] == [line.split()[-1] for line in lines if line.startswith("three ")]
        assert "without a ledger its CNI plugin assigns those of Pods" in lines[-2]
