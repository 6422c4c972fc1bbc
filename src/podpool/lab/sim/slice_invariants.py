"""The invariants of node slices that always hold, checked from outside the components.

One owner and cooldown are checked where an address is assigned (`address_use_oracle`). Here: an assigned address is in
a slice that the controller confirmed to the machine (containment), no two nodes are offered the same addresses (one
owner), a slice leaves a machine only with its consent, and the fence. What the journals of all machines hold decides,
also after restores. What must hold after the faults is in `slice_convergence`.
"""

import ipaddress
import math
from collections.abc import Iterable

import msgspec

from podpool.api.node_slices import CONFIRM_LOSS_ANNOTATION, INVENTORY_CONFIG_MAP, NODE_SLICES, NodeSlices
from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION
from podpool.lab.apiserver.registry import Object
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim import nads
from podpool.lab.sim.address_use_oracle import AddressUse, Violation
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.lab.sim.fence_checker import FenceChecker
from podpool.lab.sim.interceptor import SLICE_CONFIRMING_READS
from podpool.lab.sim.invariants import CHECK_DELAY, NEVER, RESPONSE_DELAY
from podpool.lab.sim.machine import SimMachine
from podpool.lab.sim.slice_state import (
    IPNetwork,
    OwnedAssignment,
    all_owned,
    annotations,
    decode,
    held_slices,
    node_slices,
    owned,
    shared_entries,
)

RECONNECT_SECONDS = 60.0
"""Seconds after which an agent that was partitioned during a restore of the API server has noticed it."""
MASS_LOSS_NODES, MASS_LOSS_SHARE = 5, 0.3


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The last time that the controller confirmed an assignment."""

    node: str
    slice: IPNetwork
    acknowledgement: str
    at: float


class SliceInvariantChecker:
    """Observes everything that changes in a cluster with slices, from its start on."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._networks = nads.networks(cluster.config)
        self._was_shared: set[str] = set()
        """Addresses that were last assigned while their range was shared."""
        self._seen: dict[str, float] = {}
        """When a Node last had each boot ID and each UID."""
        self._returned_at: dict[str, float] = {}
        """When a Node had a boot ID or UID again after the node GC delay."""
        self._identified: dict[str, float] = {}
        """When Node and NodeSlices last identified each boot."""
        self._fenced: dict[str, float] = {}
        """When the fence of each boot was last closed, by the reads that its agent sent."""
        self._fences = FenceChecker(cluster, identified=self._is_identified)
        self._confirmations: dict[str, Confirmation] = {}
        """The last confirmation of each assignment, by ID."""
        self._returned: set[tuple[SimMachine | None, str]] = set()
        """Every assignment that a status has shown as returned, with the machine that returned it.

        A copy may show an assignment to a Node whose name another machine has by now: that one may take it.
        """
        cluster.oracle.on_assign.append(self._on_assign)
        cluster.oracle.needs_no_cooldown = self._needs_no_cooldown
        cluster.oracle.may_be_shared = self._may_be_lost
        cluster.checks.append(self._check)
        cluster.store.on_write.append(self._on_write)

    # shared ranges

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

    # identity of machines

    def _check(self) -> None:
        nodes, slices = self._cluster.nodes(), node_slices(self._cluster)
        for name in self._cluster.hosts:
            self._record_node(name, nodes.get(name))
            identified = self._record_identity(name, nodes.get(name), slices.get(name))
            self._fences.record(name, identified=identified)
            self._record_fence(name)

    def _record_node(self, name: str, node: Object | None) -> None:
        """Record that a Node exists; a restored API server may show one whose machine is removed."""
        if node is None or (name not in self._cluster.hosts and self._cluster.restores):
            return
        now, delay = self._cluster.loop.time(), self._cluster.config.settings.node_gc_delay
        boot = node.get("status", {}).get("nodeInfo", {}).get("bootID", "")
        for identity in (node["metadata"]["uid"], boot):
            if now - self._seen.get(identity, now) >= delay - CHECK_DELAY:
                self._returned_at[identity] = now
            self._seen[identity] = now

    def _is_identified(self, name: str) -> bool:
        cluster = self._cluster
        return self._record_identity(name, cluster.nodes().get(name), node_slices(cluster).get(name))

    def _record_identity(self, name: str, node: Object | None, slices: NodeSlices | None) -> bool:
        """Record whether Node and NodeSlices identify a machine; return whether they do."""
        host = self._cluster.hosts.get(name)
        if host is None or node is None or slices is None:
            return False
        boot = host.machine.boot_id
        same: bool = node["status"]["nodeInfo"]["bootID"] == boot and slices.spec.node_uid == node["metadata"]["uid"]
        if same:
            self._identified[boot] = self._cluster.loop.time()
        return same

    def _record_fence(self, name: str) -> None:
        """Record that the fence of a machine must be closed by now, whatever its agent concludes.

        Until it has a slice, its Node alone is read.
        """
        host, now = self._cluster.hosts[name], self._cluster.loop.time()
        if now - _last_confirmation(host, has_slice_since=now) > self._cluster.config.settings.fence + RESPONSE_DELAY:
            self._fenced[host.machine.boot_id] = now

    def _was_absent(self, identity: str) -> bool:
        """Return whether no Node had a UID or boot ID for the node GC delay, until now or until the decision."""
        now, delay = self._cluster.loop.time(), self._cluster.config.settings.node_gc_delay
        absent = now - self._seen.get(identity, NEVER) >= delay - CHECK_DELAY
        return absent or now - self._returned_at.get(identity, NEVER) < delay

    def _is_gone(self, of: OwnedAssignment) -> bool:
        """Return whether node GC may release it: neither its Node nor one of its boot existed for the delay.

        A restored copy may show a Node that another machine has replaced: then the boot ID alone counts.
        """
        uid = () if self._cluster.restores and of.boot_id else (of.node_uid,)
        return all(map(self._was_absent, filter(None, (*uid, of.boot_id))))

    # changes of NodeSlices

    def _on_write(self, event: StoreEvent) -> None:
        plural, name = event.id[1], event.key.rpartition("/")[2]
        if plural == "nodes":
            for each in (event.old, self._cluster.nodes().get(name)):
                self._record_node(name, each)
                self._record_identity(name, each, node_slices(self._cluster).get(name))
        elif plural == NODE_SLICES.plural:
            old, new = decode(event.old), decode(event.new)
            new = msgspec.structs.replace(new, spec=NodeSlices().spec) if event.deleted else new
            for each in (old, new):
                self._record_identity(name, self._cluster.nodes().get(name), each)
            self._check_returns(name, old, new)
            self._check_removals(name, old, new)
            self._check_one_owner(name, new)
            self._check_confirmations(name, new)
        elif plural == IP_POOLS.plural and event.deleted and event.key not in self._cluster.edited_ippools:
            self._check_pool_deletion(event.new)

    def _report(self, invariant: str, detail: str) -> None:
        self._cluster.report(Violation(invariant, detail))

    def _check_returns(self, name: str, old: NodeSlices, new: NodeSlices) -> None:
        """Check that no agent withdraws a return; one with a damaged journal may have lost it."""
        before = {each.id: each for each in old.status.slices}
        for each in new.status.slices:
            if each.returned:
                if each.id not in before or not before[each.id].returned:  # else another machine may have returned it
                    self._returned.add((self._machine(name), each.id))
            elif self._was_returned(name, each.id) and each != before.get(each.id) and not self._is_damaged(name):
                self._report("consent", f"{name} withdrew the return of {each.slice} (assignment {each.id})")

    def _machine(self, name: str) -> SimMachine | None:
        host = self._cluster.hosts.get(name)
        return host.machine if host else None

    def _was_returned(self, name: str, assignment: str) -> bool:
        return (self._machine(name), assignment) in self._returned

    def _is_damaged(self, name: str) -> bool:
        host = self._cluster.hosts.get(name)
        return host is not None and host.machine.journal_faults > 0

    def _check_removals(self, name: str, old: NodeSlices, new: NodeSlices) -> None:
        """Check that an assignment is removed after its return, or if it was never shown, or if the node is gone.

        A status without a protocol version holds everything. Whatever the status shows, the journal of the machine
        must not hold the slice: a copy may show a status from before it was acknowledged.
        """
        left = {each.assignment.id for each in owned(name, new)}
        gone = []
        for each in owned(name, old):
            id_ = each.assignment.id
            if id_ in left:
                continue
            if self._is_gone(each):
                gone.append(each)
                continue
            unknown = each.former or old.status.protocol == 0
            if unknown or (each.status and not each.status.returned and not self._was_returned(name, id_)):
                self._report("consent", f"{each.assignment.slice} was taken from {name}, which had not returned it")
            elif id_ in self._held_by(name):
                self._report("consent", f"{each.assignment.slice} was taken from {name}, whose journal holds it")
        if gone:
            self._check_mass_loss(gone)

    def _held_by(self, name: str) -> set[str]:
        """Return the assignments that the journal of a machine holds; of one that may be damaged, none."""
        host = self._cluster.hosts.get(name)
        return {each.assignment for each in held_slices(host)} if host and not self._is_damaged(name) else set()

    def _check_mass_loss(self, released: Iterable[OwnedAssignment]) -> None:
        """Check that node GC releases nothing while too many nodes are missing, unless an operator confirmed this."""
        uids = {each["metadata"]["uid"] for each in self._cluster.nodes().values()}
        owners = {each.node_uid for each in (*all_owned(self._cluster), *released)}
        missing = owners - uids
        if len(missing) < MASS_LOSS_NODES or len(missing) <= MASS_LOSS_SHARE * len(owners):
            return
        inventory = self._cluster.store.objects("", "configmaps").get(f"kube-system/{INVENTORY_CONFIG_MAP}", {})
        loss = inventory.get("data", {}).get("loss")
        if not loss or annotations(inventory).get(CONFIRM_LOSS_ANNOTATION) != loss:
            self._report("mass loss", f"slices were released while {len(missing)} of {len(owners)} nodes are missing")

    def _check_one_owner(self, name: str, new: NodeSlices) -> None:
        """Check that no two nodes are offered overlapping slices, and none has two that it keeps.

        A machine that was collected, or has lost a part of its journal, shows a slice that others have by now: it is
        listed, to be returned, and not confirmed. After a restore only what is confirmed since must not overlap. A
        node may have a slice beside another that it is to return.
        """
        own = list(owned(name, new))
        others = [each for each in all_owned(self._cluster) if each.node != name]
        for number, one in enumerate(own):
            for other in (*own[number + 1 :], *others):
                if not one.overlaps(other):
                    continue
                same = (one.node, one.node_uid) == (other.node, other.node_uid)
                counts = self._is_kept if same else self._is_offered
                if counts(one) and counts(other):
                    pair = f"{one.assignment.slice} of {one.node} and {other.assignment.slice} of {other.node}"
                    self._report("one owner", f"{pair} overlap")

    def _is_kept(self, each: OwnedAssignment) -> bool:
        return each.is_confirmed and each.is_kept

    def _is_offered(self, each: OwnedAssignment) -> bool:
        """Return whether its node may use it, as far as anyone can know."""
        if self._cluster.restores:
            confirmation = self._confirmations.get(each.assignment.id)
            return each.is_confirmed and confirmation is not None and confirmation.at > self._cluster.restored_at
        return each.former or each.is_confirmed or each.is_kept

    def _check_confirmations(self, name: str, new: NodeSlices) -> None:
        """Record new confirmations; check that no other machine's journal holds the addresses."""
        for each in owned(name, new):
            assignment = each.assignment
            before = self._confirmations.get(assignment.id)
            if not each.is_confirmed or (before and before.acknowledgement == assignment.confirmed):
                continue
            at = self._cluster.loop.time()
            confirmation = Confirmation(node=name, slice=each.slice, acknowledgement=assignment.confirmed, at=at)
            self._confirmations[assignment.id] = confirmation
            if each.is_kept:
                self._check_not_held(each)

    def _check_not_held(self, confirmed: OwnedAssignment) -> None:
        """Check that no other machine, whose Node is not gone, holds addresses of a confirmed slice."""
        others = [*self._cluster.cut_off_hosts.values()]
        others += (host for name, host in self._cluster.hosts.items() if name != confirmed.node)
        for host in others:
            if host.machine.journal_faults or self._was_absent(host.machine.boot_id):
                continue
            for each in held_slices(host):
                if each.network == confirmed.assignment.network and each.slice.overlaps(confirmed.slice):
                    what = f"{confirmed.slice} was confirmed to {confirmed.node}"
                    self._report("one owner", f"{what}, and {host.machine.name} holds {each.slice}")

    def _check_pool_deletion(self, pool: Object) -> None:
        """Check that no address of a deleted IPPool is in use, unless another slice of the node has it."""
        slice_, node = ipaddress.ip_network(pool["spec"]["range"]), annotations(pool).get(NODE_ANNOTATION, "")
        host = self._cluster.hosts.get(node)
        if host is None or self._was_absent(host.machine.boot_id):
            return
        own = owned(node, node_slices(self._cluster).get(node, NodeSlices()))
        confirmed = [each.slice for each in own if each.is_confirmed and each.slice != slice_]
        for use in self._cluster.oracle.uses():
            address = ipaddress.ip_address(use.address)
            if use.machine == node and address in slice_ and not any(address in each for each in confirmed):
                self._report("consent", f"IPPool {pool['metadata']['name']} was deleted while {use.pod} uses {address}")

    # assignment of addresses

    def _on_assign(self, use: AddressUse) -> None:
        """Check that an assigned address is in a slice of the node, and that its agent may assign."""
        name, cluster = use.machine, self._cluster
        if self._is_shared(use.address):
            self._was_shared.add(use.address)
            return
        self._was_shared.discard(use.address)
        host = cluster.hosts.get(name) or cluster.cut_off_hosts[name]
        confirmed_at = self._check_containment(use, host)
        boot, fence = host.machine.boot_id, cluster.config.settings.fence
        self._record_identity(name, cluster.nodes().get(name), node_slices(cluster).get(name))
        identified = self._identified.get(boot, NEVER)
        if use.since - identified > fence + CHECK_DELAY:
            age = f"{use.since - identified:.0f} s after Node and NodeSlices last identified it"
            raise Violation("fenced", f"{name} assigned {use.address} to {use.pod} {age}")
        sent = _last_confirmation(host, has_slice_since=confirmed_at)
        if use.since - sent > fence + RESPONSE_DELAY:
            age = f"{use.since - sent:.1f} s after its last confirmation"
            raise Violation("fenced", f"{name} assigned {use.address} to {use.pod} {age}")

    def _check_containment(self, use: AddressUse, host: SimHost) -> float:
        """Check that the address is in a slice that was confirmed since the boot, and since the fence was closed.

        An agent may notice late that a restored API server has lost its assignment. What it returned it never uses.
        Returns when it was confirmed.
        """
        name, machine = host.node, host.machine
        address, since = ipaddress.ip_address(use.address), machine.clock.booted_at
        found = [
            (id_, each) for id_, each in self._confirmations.items() if each.node == name and address in each.slice
        ]
        if not self._cluster.restores:
            listed = {each.assignment.id for each in owned(name, node_slices(self._cluster).get(name, NodeSlices()))}
            found = [(id_, each) for id_, each in found if id_ in listed]
        open_ = [each for id_, each in found if (machine, id_) not in self._returned or machine.journal_faults]
        where = f"{use.pod} got {use.address} on {use.machine}"
        if not open_:
            raise Violation("containment", f"{where}, which holds no slice with it")
        confirmed_at = max(each.at for each in open_)
        if confirmed_at < since:
            raise Violation("containment", f"{where}, whose slice was not confirmed in this boot")
        if confirmed_at < self._fenced.get(machine.boot_id, -math.inf):
            raise Violation("containment", f"{where}, whose slice was not confirmed since the fence was closed")
        return confirmed_at


def _last_confirmation(host: SimHost, *, has_slice_since: float) -> float:
    """Return when the agent sent the older of its last answered confirming reads."""
    defaults = dict.fromkeys(SLICE_CONFIRMING_READS, NEVER) | {NODE_SLICES.plural: has_slice_since}
    return min(host.reads.get(each, default) for each, default in defaults.items())
