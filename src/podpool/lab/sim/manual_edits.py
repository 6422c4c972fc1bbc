"""Edits of a cluster's objects by people: NNCs, ClusterSubnets and their deletion. An absent object is left alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.meta import Kind
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.sim.ledger_host import SUBNET

SUBNET_KEY = f"kube-system/{SUBNET.name}"


def edit_request(store: ObjectStore, node: str, requested: int, *, released: Sequence[str] | None = None) -> None:
    """Set a node's request, and optionally its released grants."""
    spec = {"requestedIPCount": requested} | ({} if released is None else {"ipsNotInUse": list(released)})
    edit_nnc(store, node, lambda nnc: {**nnc, "spec": {**nnc["spec"], **spec}})


def edit_nnc(store: ObjectStore, node: str, change: Callable[[Any], Any], *, subresource: str | None = None) -> None:
    """Change a node's NNC."""
    key = f"kube-system/{node}"
    if key in _objects(store, NODE_NETWORK_CONFIGS):
        store.update(store.registry.of(NODE_NETWORK_CONFIGS), key, change, subresource=subresource)


def clear_nnc_status(store: ObjectStore, node: str) -> None:
    """Empty the status of a node's NNC."""
    edit_nnc(store, node, lambda nnc: {**nnc, "status": {}}, subresource="status")


def strip_nnc_metadata(store: ObjectStore, node: str) -> None:
    """Remove owner and finalizers of a node's NNC."""
    bare: dict[str, list[str]] = {"ownerReferences": [], "finalizers": []}
    edit_nnc(store, node, lambda nnc: {**nnc, "metadata": {**nnc["metadata"], **bare}})


def delete_nnc(store: ObjectStore, node: str) -> None:
    """Delete a node's NNC."""
    _delete(store, NODE_NETWORK_CONFIGS, f"kube-system/{node}")


def edit_scaler(store: ObjectStore, scaler: Mapping[str, float]) -> None:
    """Override the batch and buffer of the ClusterSubnet; an empty mapping removes the override."""
    if SUBNET_KEY in _objects(store, CLUSTER_SUBNETS):
        resource = store.registry.of(CLUSTER_SUBNETS)
        store.update(resource, SUBNET_KEY, lambda subnet: {**subnet, "spec": {"scaler": dict(scaler)}})


def delete_subnet(store: ObjectStore) -> None:
    """Delete the ClusterSubnet and the ClusterSubnetState."""
    for kind in (CLUSTER_SUBNETS, CLUSTER_SUBNET_STATES):
        _delete(store, kind, SUBNET_KEY)


def _delete(store: ObjectStore, kind: Kind[Any], key: str) -> None:
    if key in _objects(store, kind):
        store.delete(store.registry.of(kind), key)


def _objects(store: ObjectStore, kind: Kind[Any]) -> Mapping[str, Any]:
    return store.objects(kind.group, kind.plural)
