"""Objects as they are on the wire."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS, ClusterSubnet, NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import EVENTS, LEASES, NODES, PODS, Event, Node, Pod
from podpool.api.meta import Kind
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_SLICE_POOLS,
    Allocation,
    IPPool,
    IPPoolSpec,
    NodeSlicePoolStatus,
    SliceAllocation,
)
from tests.api.sample_objects import WHOLE


def test_a_network_config_has_azures_names() -> None:
    manifest = {
        "metadata": {"name": "n", "namespace": "kube-system", "managedFields": [{}]},
        "spec": {"requestedIPCount": 16, "ipsNotInUse": ["a"]},
        "status": {
            "assignedIPCount": 1,
            "scaler": {"batchSize": 16, "maxIPCount": 250},
            "networkContainers": [
                {"id": "x", "primaryIP": "10.0.0.4", "subcriptionID": "s", "ipAssignments": [{"name": "a", "ip": "b"}]}
            ],
        },
    }
    config = msgspec.convert(manifest, NodeNetworkConfig)
    assert (16, ("a",), 250) == (config.spec.requested, config.spec.pending_release, config.status.scaler.max_ip_count)
    assert "s" == config.status.network_containers[0].subscription_id
    assert "kube-system/n" == config.key
    del manifest["metadata"]["managedFields"]  # type: ignore[attr-defined]  # a dict of this test's own
    assert manifest == msgspec.json.decode(msgspec.json.encode(config))


def test_words_that_we_do_not_know_are_read() -> None:
    manifest = {
        "status": {"status": "Dreaming", "networkContainers": [{"status": "NCUpdateLater", "assignmentMode": "odd"}]}
    }
    config = msgspec.convert(manifest, NodeNetworkConfig)
    assert ("Dreaming", "NCUpdateLater") == (config.status.status, config.status.network_containers[0].status)


@pytest.mark.parametrize("kind", [IP_POOLS, IP_RESERVATIONS, NODE_SLICE_POOLS])
def test_objects_of_whereabouts_go_through_unchanged(kind: Kind[Any]) -> None:
    manifest = {"metadata": {"name": "x"}, **WHOLE[kind.kind]}
    assert manifest == msgspec.json.decode(msgspec.json.encode(msgspec.convert(manifest, kind.type)))


def test_what_their_schema_demands_is_always_written() -> None:
    assert {"range": "10.0.0.0/8", "allocations": {}} == msgspec.to_builtins(IPPoolSpec(range="10.0.0.0/8"))
    assert {"id": "c", "podref": "n/p", "ifname": ""} == msgspec.to_builtins(Allocation(id="c", podref="n/p"))
    assert b'{"allocations":[]}' == msgspec.json.encode(NodeSlicePoolStatus())
    assert {"nodeName": "", "sliceRange": "10.0.0.0/10"} == msgspec.to_builtins(
        SliceAllocation(slice_range="10.0.0.0/10")
    )


def test_one_bad_object_of_another_is_no_reason_to_read_none() -> None:
    assert IPPoolSpec() == msgspec.convert({"metadata": {"name": "x"}}, IPPool).spec


def test_a_network_attachment_is_its_configuration() -> None:
    manifest = {"metadata": {"name": "n", "namespace": "default"}, "spec": {"config": '{"type": "macvlan"}'}}
    assert '{"type": "macvlan"}' == msgspec.convert(manifest, NetworkAttachmentDefinition).spec.config
    place = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/n"
    assert place == NETWORK_ATTACHMENTS.path(namespace="default", name="n")


def test_an_event_has_the_names_of_events_k8s_io() -> None:
    manifest = {
        "metadata": {"name": "n.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "podpool-agent",
        "reportingInstance": "n",
        "action": "Scaling",
        "reason": "InsufficientAddresses",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        "note": "no address left",
        "type": "Warning",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"},
    }
    assert manifest == msgspec.json.decode(msgspec.json.encode(msgspec.convert(manifest, Event)))
    assert "/apis/events.k8s.io/v1/namespaces/default/events" == EVENTS.path(namespace="default")


def test_nothing_is_written_that_is_not_set() -> None:
    assert {} == msgspec.to_builtins(NetworkContainer())


def test_a_buffer_is_never_a_float() -> None:
    subnet = msgspec.json.decode(b'{"spec":{"scaler":{"buffer":0.29}}}', type=ClusterSubnet)
    assert Decimal("0.29") == subnet.spec.scaler.buffer


@pytest.mark.parametrize(
    ("spec", "phase", "needs"),
    [({}, "Pending", True), ({}, "Running", True), ({"hostNetwork": True}, "Running", False), ({}, "Failed", False)],
)
def test_a_pod_needs_an_address_unless_it_is_on_the_host_or_finished(
    spec: dict[str, bool], phase: str, needs: bool
) -> None:
    assert needs == msgspec.convert({"spec": spec, "status": {"phase": phase}}, Pod).needs_address


def test_a_node_has_a_boot_id_and_an_address() -> None:
    status = {"nodeInfo": {"bootID": "b"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node)
    assert ("b", "10.0.0.4", "n") == (node.boot_id, node.internal_address, node.key)
    assert ("", "") == (Node().boot_id, Node().internal_address)


def test_paths() -> None:
    assert "/api/v1/nodes/a" == NODES.path(name="a")
    assert "/api/v1/pods" == PODS.path()
    assert "/apis/coordination.k8s.io/v1/namespaces/n/leases" == LEASES.path(namespace="n")
    assert (
        "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs/a/status"
        == NODE_NETWORK_CONFIGS.path(namespace="kube-system", name="a", subresource="status")
    )
    assert ("v1", "acn.azure.com/v1alpha") == (NODES.api_version, NODE_NETWORK_CONFIGS.api_version)
