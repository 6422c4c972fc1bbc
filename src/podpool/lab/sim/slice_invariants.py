"""The invariants of node slices that always hold, checked from outside the components.

One owner and cooldown are checked where an address is assigned (`oracle`). Here: an assigned address is in a slice that
the node holds (containment), a slice has one node, a slice leaves a machine only with its consent, and the fence. What
must hold after the faults is in `slice_convergence`.
"""

import ipaddress
from collections.abc import Mapping

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    BOOT_ANNOTATION,
    CONFIRMED_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SLICE_ANNOTATION,
)
from podpool.lab.apiserver.registry import Object
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim import nads
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.invariants import CHECK_DELAY, NEVER
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.oracle import AddressUse, Violation

RECONNECT_SECONDS = 60.0
"""Seconds after which an agent that was partitioned during a restore of the API server has noticed it."""
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class SliceInvariantChecker:
    """Observes everything that changes in a cluster with slices, from its start on."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._networks = nads.networks(cluster.config)
        self._was_shared: set[str] = set()
        """Addresses that were last assigned while their range was shared."""
        self._nodes: dict[str, float] = {}
        """When a Node last had each boot ID and each UID."""
        self._held_leases: dict[str, Object] = {}
        """The last state of every Lease that had a holder, by UID."""
        self._confirmed_at: dict[str, float] = {}
        """When the controller confirmed the last acknowledgement of each Lease, by UID."""
        cluster.oracle.on_assign.append(self._on_assign)
        cluster.oracle.needs_no_cooldown = self._needs_no_cooldown
        cluster.oracle.may_be_shared = self._may_be_lost
        cluster.checks.append(self._check)
        cluster.store.on_write.append(self._on_write)

    def _is_shared(self, address: str) -> bool:
        """Return whether an address is in a shared range, or in use since its range was shared; such have no fence."""
        networks = (each for each in self._networks if each.has(address))
        return any(each.shared or address in shared_entries(self._cluster, each) for each in networks)

    def _needs_no_cooldown(self, address: str) -> bool:
        return address in self._was_shared or self._is_shared(address)

    def _may_be_lost(self, address: str) -> bool:
        """Return whether a restored API server may lack an entry that is not written back yet."""
        cluster = self._cluster
        until = cluster.restored_at + cluster.config.settings.relist_interval + RECONNECT_SECONDS
        return self._is_shared(address) and cluster.loop.time() < until

    def _check(self) -> None:
        for name in self._cluster.hosts:
            self._record_identity(name, self._cluster.nodes().get(name))

    def _record_identity(self, name: str, node: Object | None) -> None:
        host = self._cluster.hosts.get(name)
        if node and (host or not self._cluster.restores):  # a restored API server may show a removed machine
            self._nodes[node["metadata"]["uid"]] = self._cluster.loop.time()
        if host and node and node["status"]["nodeInfo"]["bootID"] == host.machine.boot_id:
            self._nodes[host.machine.boot_id] = self._cluster.loop.time()

    def _on_write(self, event: StoreEvent) -> None:
        plural, name = event.id[1], event.key.rpartition("/")[2]
        if plural == "nodes":
            for each in (event.old, self._cluster.nodes().get(name)):
                self._record_identity(name, each)
        elif plural == LEASES.plural and SLICE_ANNOTATION in annotations(event.new):
            uid = event.new["metadata"]["uid"]
            if holder(event.new):
                self._held_leases[uid] = event.new
            if is_confirmed(event.new) and not (event.old and is_confirmed(event.old)):
                self._confirmed_at[uid] = self._cluster.loop.time()
            if event.deleted:
                self._check_lease_deletion(event.new)
            else:
                self._check_one_owner(event.new)
        elif plural == IP_POOLS.plural and event.deleted:
            self._check_pool_deletion(event.new)

    def _check_one_owner(self, lease: Object) -> None:
        """Check that no two nodes are offered overlapping slices, and none has two that it keeps.

        After a restore or a journal fault, agents report slices that were offered to others meanwhile: then only
        confirmed ones must not overlap. A node may have a slice beside another that it is to return.
        """
        name = lease["metadata"]["name"]
        for other in [each for each in leases(self._cluster).values() if _slice(each).overlaps(_slice(lease))]:
            two_nodes = annotations(lease)[NODE_ANNOTATION] != annotations(other).get(NODE_ANNOTATION)
            if not two_nodes:
                counts = self._is_kept
            else:
                counts = self._is_confirmed_since_restore if self._may_have_lost_state() else self._is_offered
            if counts(lease) and counts(other) and other["metadata"]["name"] != name:
                self._cluster.report(Violation("one owner", f"{name} and {other['metadata']['name']} overlap"))

    def _is_confirmed_since_restore(self, lease: Object) -> bool:
        """Return whether it was confirmed after the last restore: a restored copy shows former confirmations."""
        confirmed_at = self._confirmed_at.get(lease["metadata"]["uid"], NEVER)
        return is_confirmed(lease) and confirmed_at > self._cluster.restored_at

    def _may_have_lost_state(self) -> bool:
        damaged = any(each.machine.journal_faults for each in self._cluster.hosts.values())
        return bool(self._cluster.restores) or damaged

    def _is_kept(self, lease: Object) -> bool:
        meta = lease["metadata"]
        pool = ippools(self._cluster).get(f"{meta['namespace']}/{meta['name']}")
        return is_confirmed(lease) and pool is not None and is_kept(pool)

    def _is_offered(self, lease: Object) -> bool:
        """Return whether an agent may take it; no agent takes a Lease without its IPPool."""
        meta = lease["metadata"]
        return bool(holder(lease)) or f"{meta['namespace']}/{meta['name']}" in ippools(self._cluster)

    def _check_lease_deletion(self, lease: Object) -> None:
        """Check that a deleted Lease has no holder, or its Node was absent for the node GC delay.

        A restored copy may show a Node that another machine has replaced: then the holder's boot ID counts.
        """
        holder_, uid = holder(lease), lease["metadata"]["labels"][NODE_UID_LABEL]
        identity = annotations(lease).get(BOOT_ANNOTATION, "") if self._cluster.restores else uid
        seen = self._nodes.get(identity, NEVER)
        if holder_ and self._cluster.loop.time() - seen < self._cluster.config.settings.node_gc_delay:
            detail = f"Lease {lease['metadata']['name']} was deleted while {holder_} holds it"
            self._cluster.report(Violation("consent", detail))

    def _check_pool_deletion(self, pool: Object) -> None:
        """Check that no address of a deleted IPPool is in use, unless another slice of the node has it.

        A pool that a person deleted still has its Lease, and is not checked.
        """
        key = f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"
        slice_, node = ipaddress.ip_network(pool["spec"]["range"]), annotations(pool).get(NODE_ANNOTATION)
        uses = [each for each in self._cluster.oracle.uses() if each.machine == node and _is_within(each, slice_)]
        own = [each for each in leases(self._cluster).values() if annotations(each).get(NODE_ANNOTATION) == node]
        confirmed = [_slice(each) for each in own if is_confirmed(each)]
        used = [use for use in uses if not any(_is_within(use, each) for each in confirmed)]
        if used and key not in leases(self._cluster):
            detail = f"IPPool {key} was deleted while {used[0].pod} uses {used[0].address}"
            self._cluster.report(Violation("consent", detail))

    def _on_assign(self, use: AddressUse) -> None:
        """Check that an assigned address is in a slice of the node, and that its agent may assign.

        An agent may notice late that a restored API server has lost its Lease.
        """
        name, cluster = use.machine, self._cluster
        if self._is_shared(use.address):
            self._was_shared.add(use.address)
            return
        self._was_shared.discard(use.address)
        self._record_identity(name, cluster.nodes().get(name))
        found = (*leases(cluster).values(), *(self._held_leases.values() if cluster.restores else ()))
        own = [each for each in found if annotations(each).get(NODE_ANNOTATION) == name]
        if not any(_is_within(use, _slice(each)) and holder(each) for each in own):
            raise Violation("containment", f"{use.pod} got {use.address} on {name}, which holds no slice with it")
        confirmed = self._nodes.get(cluster.hosts[name].machine.boot_id, NEVER)
        if use.since - confirmed > cluster.config.settings.fence + CHECK_DELAY:
            age = f"{use.since - confirmed:.0f} s after its Node last had its boot ID"
            raise Violation("fenced", f"{name} assigned {use.address} to {use.pod} {age}")


def shared_entries(cluster: SimCluster, network: AttachedNetwork) -> dict[str, str]:
    """Return the Pods by address in the shared IPPool of a network."""
    pool = ippools(cluster).get(f"kube-system/{network.shared_pool}")
    base = ipaddress.ip_network(network.range)[0]
    return {str(base + int(key)): each["podref"] for key, each in pool["spec"]["allocations"].items()} if pool else {}


def ippools(cluster: SimCluster) -> Mapping[str, Object]:
    """Return the IPPools by key."""
    return cluster.store.objects(IP_POOLS.group, IP_POOLS.plural)


def leases(cluster: SimCluster) -> Mapping[str, Object]:
    """Return the Leases by key."""
    return cluster.store.objects(LEASES.group, LEASES.plural)


def annotations(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def is_kept(pool: Object) -> bool:
    """Return whether a slice need not be returned."""
    return RETURN_ANNOTATION not in annotations(pool)


def holder(lease: Object) -> str:
    """Return the holder of a Lease; empty if it has none."""
    return lease.get("spec", {}).get("holderIdentity") or ""


def is_confirmed(lease: Object) -> bool:
    """Return whether the controller has confirmed the acknowledgement: the agent may assign addresses."""
    acknowledged, confirmed = (annotations(lease).get(each) for each in (ACKNOWLEDGED_ANNOTATION, CONFIRMED_ANNOTATION))
    return bool(holder(lease)) and acknowledged == confirmed


def _slice(lease: Object) -> IPNetwork:
    return ipaddress.ip_network(annotations(lease).get(SLICE_ANNOTATION) or "255.255.255.255/32")


def _is_within(use: AddressUse, slice_: IPNetwork) -> bool:
    return ipaddress.ip_address(use.address) in slice_
