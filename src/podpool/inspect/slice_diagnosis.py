"""Why a node has no slice that a Pod needs: all are assigned, it may not be used yet, or none was assigned. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from podpool.api.builtin import Event
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.api.whereabouts import NodeSlicePool
from podpool.core.errors import InvalidInput
from podpool.inspect.activity import activity_of
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.node_slices import NodeSlice, NodeSliceState, slices_of
from podpool.inspect.secondary_networks import is_slice_of, networks_of
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.nad import parse_nad

Explanation = tuple[str, str]
"""Cause and recommended action."""


def missing_slice(model: ClusterModel, node: str, nads: Iterable[str]) -> Explanation | None:
    """Return why a Pod with these NADs gets no address of a slice; None if its node has all slices."""
    keys = sorted(nads)
    networks = {_slice_pool_of(model.caches.nads.get(key), key) for key in keys}
    pools = [each for each in _wanted_pools(model, node) if not networks.isdisjoint(_network_names(each))]
    found = _waits_for_slices(model, node, pools) or _slices_in_doubt(model, node, networks)
    return found or _no_slice(model, node, keys)


def missing_slice_of_node(model: ClusterModel, node: str) -> Explanation | None:
    """Return why a node lacks a slice of any network; None if it lacks none."""
    return _waits_for_slices(model, node, _wanted_pools(model, node)) or _slices_in_doubt(model, node)


def _wanted_pools(model: ClusterModel, node: str) -> list[NodeSlicePool]:
    return sorted(model.short_of_slices.get(node), key=lambda each: each.metadata.name)


def _waits_for_slices(model: ClusterModel, node: str, pools: Sequence[NodeSlicePool]) -> Explanation | None:
    """Return that the node has no slice of some networks, because all are assigned."""
    if not pools:
        return None
    names = [each.metadata.name for each in pools]
    networks = f"network {names[0]}" if len(names) == 1 else f"networks {', '.join(names)}"
    remedies = {each.name: each.remedy for each in model.networks}
    remedy = remedies.get(names[0]) or "use a larger range or a smaller node_slice_size"
    action = f"For {names[0]}, {remedy}; or remove nodes. `podpool slices` shows the usage."
    return f"Node {node} waits for a slice of {networks}: all slices are assigned.", action


def _slices_in_doubt(model: ClusterModel, node: str, networks: Collection[str] | None = None) -> Explanation | None:
    """Return that the node has a slice and may not use it: its agent, or the controller, has not agreed to it."""
    own = model.caches.node_slices.get(node)
    for each in slices_of(own) if own else ():
        pools = (pool for pool in model.caches.node_slice_pools.values() if is_slice_of(each, pool))
        names = {name for pool in pools for name in _network_names(pool)}
        if (networks is None or not names.isdisjoint(networks)) and (found := _in_doubt(each)):
            return found
    return None


def _in_doubt(each: NodeSlice) -> Explanation | None:
    where = f"slice {each.slice} of node {each.node}"
    if each.state is NodeSliceState.LOST:
        message = f"Nothing new is assigned from {where}: it is not assigned to the node any more."
        return message, "Check that the controller runs: `podpool status`. It assigns the slice again, or another one."
    if each.state not in (NodeSliceState.ASSIGNED, NodeSliceState.SUSPENDED):
        return None
    if not each.acknowledged:
        action = f"Check that the agent runs on {each.node} and reaches the API server: see its log."
        return f"The agent has not acknowledged {where} yet.", action
    action = "Check that it runs: `podpool status`. `podpool slices declare-complete` lists nodes that it waits for."
    return f"The controller has not confirmed {where} yet.", action


def _no_slice(model: ClusterModel, node: str, keys: Sequence[str]) -> Explanation | None:
    """Return that a sliced network of a Pod has assigned nothing to the node."""
    own = model.caches.node_slices.get(node)
    held = {(each.network, each.range) for each in slices_of(own)} if own else set()
    for key in keys:
        definition = model.caches.nads.get(key)
        config = _config(definition) if definition else None
        if config is None or not config.sliced:
            continue
        ranges = {str(each.prefix) for each in config.ranges}
        if {(config.network_name, each) for each in ranges} & (held | _rows(model, node, config.network_name)):
            continue
        because = last_event(model, "NetworkAttachmentDefinition", key)
        action = f"Check that the controller runs: `podpool status`; see also the Events of net-attach-def {key}."
        return f"Node {node} has no slice of {key} yet.{because}", action
    return None


def _rows(model: ClusterModel, node: str, network: str) -> set[tuple[str, str]]:
    """Return the ranges of a network of which a NodeSlicePool lists a slice of the node."""
    pools = (each for each in model.caches.node_slice_pools.values() if network in networks_of(each))
    listed = (each for each in pools if any(row.node_name == node for row in each.status.allocations))
    return {(network, each.spec.range) for each in listed}


def _config(definition: NetworkAttachmentDefinition) -> IpamConfig | None:
    with suppress(InvalidInput):  # for example, its ranges are in a flat file on the nodes
        parsed = parse_nad(definition)
        return parsed.config if parsed else None
    return None


def _slice_pool_of(nad: NetworkAttachmentDefinition | None, key: str) -> str:
    """Return the name of a network's NodeSlicePool: that of its configuration, else of the NAD; empty without one."""
    if nad is None:  # deleted since, or not allowed to be read
        return key.rpartition("/")[2]
    with suppress(InvalidInput):  # for example, its ranges are in a flat file on the nodes
        parsed = parse_nad(nad)
        return parsed.pool_name if parsed else ""
    return nad.metadata.name


def _network_names(pool: NodeSlicePool) -> tuple[str, ...]:
    """Return the network that a pool may be of: it has the network's name, a further one with the range appended."""
    name, range_ = pool.metadata.name, re.sub("[:/]", "-", pool.spec.range)
    return name, name.removesuffix(f"-{range_}")


def last_event(model: ClusterModel, kind: str, key: str) -> str:
    """Return the last podpool Event about an object as a sentence, or nothing."""
    about = (each for each in model.caches.events.values() if _is_about(each, kind, key))
    notes = [activity.message for each in about if (activity := activity_of(each))]
    return f" Last Event: {notes[-1]}." if notes else ""


def _is_about(event: Event, kind: str, key: str) -> bool:
    namespace, _, name = key.rpartition("/")
    regarding = event.regarding
    return (regarding.kind, regarding.name) == (kind, name) and (regarding.namespace or "") in (namespace, "")
