"""Objects as they are on the wire."""

from decimal import Decimal

import msgspec
import pytest

from podpool.resources.acn import NETWORK_CONFIGS, ClusterSubnet, NetworkContainer, NodeNetworkConfig
from podpool.resources.builtin import LEASES, NODES, PODS, Node, Pod


def test_a_network_config_has_azures_names() -> None:
    told = {
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
    config = msgspec.convert(told, NodeNetworkConfig)
    assert (16, ("a",), 250) == (config.spec.requested, config.spec.released, config.status.scaler.max_ip_count)
    assert "s" == config.status.network_containers[0].subscription_id
    assert "kube-system/n" == config.key
    del told["metadata"]["managedFields"]  # type: ignore[attr-defined]  # a dict of this test's own
    assert told == msgspec.json.decode(msgspec.json.encode(config))


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


def test_a_node_tells_its_boot_and_address() -> None:
    status = {"nodeInfo": {"bootID": "b"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node)
    assert ("b", "10.0.0.4", "n") == (node.boot_id, node.internal_address, node.key)
    assert ("", "") == (Node().boot_id, Node().internal_address)


def test_paths() -> None:
    assert "/api/v1/nodes/a" == NODES.path(name="a")
    assert "/api/v1/pods" == PODS.path()
    assert "/apis/coordination.k8s.io/v1/namespaces/n/leases" == LEASES.path(namespace="n")
    assert "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs/a/status" == NETWORK_CONFIGS.path(
        namespace="kube-system", name="a", sub="status"
    )
    assert ("v1", "acn.azure.com/v1alpha") == (NODES.api_version, NETWORK_CONFIGS.api_version)
