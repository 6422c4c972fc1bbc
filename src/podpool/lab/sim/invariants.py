"""The invariants that always hold, checked from outside the components.

One owner and cooldown are checked where an address is assigned (`address_use_oracle`). Here: containment and consent in
the ledger, the fence, and no silent rollback, each when its data changes. What must hold after the faults is in
`convergence`.
"""

import ipaddress
import math
from collections.abc import Mapping
from contextvars import Context
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from podpool.agent.pool import Pool
from podpool.agent.state import read_agent_journal
from podpool.api.azure import AGENT_ANNOTATION, NetworkContainer
from podpool.lab.apiserver.registry import Object
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim.address_use_oracle import AddressUse, Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.fence_checker import FenceChecker
from podpool.lab.sim.interceptor import CONFIRMING_READS
from podpool.lab.sim.ledger_cooldown_invariant import LedgerCooldownChecker
from podpool.ledger.messages import NetworkContainerRecord

if TYPE_CHECKING:
    from podpool.lab.sim.machine import SimMachine


NEVER = -math.inf
NO_NODE = (NEVER, frozenset[str]())
CHECK_DELAY = 1.0
"""Seconds within which a periodic check sees a change that causes no event."""
RESPONSE_DELAY = 0.01
"""Seconds between an agent's decision and the arrival of its response."""


class InvariantChecker:
    """Observes everything that changes in a cluster, from its start on."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._check_due = False
        self._granted: dict[str, dict[str, str]] = {}
        """The grants of each network container: addresses by grant."""
        self._records: dict[str, NetworkContainerRecord] = {}
        """The ledger's record of each network container."""
        self._released: set[str] = set()
        """Every grant that an agent, or a person in an NNC, has released."""
        self._known: dict[SimMachine, set[str]] = {}
        """Every grant that an agent has seen, by machine: a grant that no agent knows needs no consent."""
        self._recorded: dict[SimMachine, tuple[Object | None, NetworkContainer | None]] = {}
        """The NNC and the network container of each machine whose grants are recorded; neither is changed in place."""
        self._nodes: dict[str, tuple[float, frozenset[str]]] = {}
        """When a Node last had each boot ID, and the UIDs of all Nodes with it: re-registered, it is the same."""
        self._nncs: dict[str, float] = {}
        """When an NNC last showed each boot ID and its network container."""
        self._versions: dict[tuple[SimMachine, int, str], int] = {}
        """The highest accepted version, by machine, journal and network container."""
        self._seen: dict[str, float] = {}
        """When a Node last had each UID and each boot ID."""
        self._last_boot: dict[str, str] = {}
        """The boot ID that a Node last had, by its UID."""
        self._adopted: dict[str, str] = {}
        """The network container that the agent of each boot adopted last."""
        self._returned: dict[str, float] = {}
        """When a UID or boot ID was seen again after the node GC delay."""
        LedgerCooldownChecker(cluster)
        cluster.ledger_host.on_change.append(self._on_ledger_change)
        self._fences = FenceChecker(cluster, identified=self._is_identified)
        cluster.oracle.on_assign.append(self._on_assign)
        cluster.oracle.preferences.append(self._preferred_address)
        cluster.on_power_loss.append(self._on_power_loss)
        cluster.checks.append(self._check)
        cluster.store.on_write.append(self._on_write)

    def _check(self) -> None:
        """Check what changes without an event."""
        self._record_releases()
        nodes, nncs = self._cluster.nodes(), self._cluster.nncs()
        for node in nodes.values():
            self._record_node(node)
        for name, host in self._cluster.hosts.items():
            if host.agent and host.agent.pool.adopted_nc:
                self._adopted[host.machine.boot_id] = host.agent.pool.adopted_nc
            identified = self._record_identity(name, nodes.get(name), nncs.get(name))
            self._fences.record(name, identified=identified)
            if host.agent and host.agent_process and host.agent_process.alive:
                self._check_version(name, host.agent.pool.adopted_nc, host.agent.pool.version)

    def _on_write(self, event: StoreEvent) -> None:
        """Record the identity of machines before and after a write."""
        name = event.key.rpartition("/")[2]
        if event.id[1] == "nodes":
            for node in filter(None, (event.old, event.new)):
                self._record_node(node)
        if event.id[1] in {"nodes", "nodenetworkconfigs"} and name in self._cluster.hosts:
            now = {"nodes": self._cluster.nodes().get(name), "nodenetworkconfigs": self._cluster.nncs().get(name)}
            for each in (now | {event.id[1]: event.old}, now):
                self._record_identity(name, each["nodes"], each["nodenetworkconfigs"])

    def _is_identified(self, name: str) -> bool:
        cluster = self._cluster
        return self._record_identity(name, cluster.nodes().get(name), cluster.nncs().get(name))

    def _record_identity(self, name: str, node: Object | None, nnc: Object | None) -> bool:
        """Record whether Node and NNC may identify a machine; return whether confirming reads of both do so now.

        The Node may be registered again between the two reads: so the NNC of a former Node may identify it. Reads that
        are sent now show the NNC of a former Node until the controller has replaced it, and that confirms nothing.
        """
        host, now = self._cluster.hosts[name], self._cluster.loop.time()
        boot, uid = host.machine.boot_id, ""
        if node and node["status"]["nodeInfo"]["bootID"] == boot:
            uid = node["metadata"]["uid"]
            self._nodes[boot] = (now, self._nodes.get(boot, NO_NODE)[1] | {uid})
        if not nnc or host.agent is None or boot not in self._nodes:
            return False
        meta = nnc["metadata"]
        owners = {each["uid"] for each in meta.get("ownerReferences", ())}
        shown = {each["id"] for each in nnc.get("status", {}).get("networkContainers", ())}
        reported = _reported_boot(meta.get("annotations", {}).get(AGENT_ANNOTATION, "{}"))
        if reported != boot or not self._nodes[boot][1] & owners or host.agent.pool.adopted_nc not in shown:
            return False
        self._nncs[boot] = now
        return uid in owners

    def _record_node(self, node: Object) -> None:
        """Record that a Node exists; a restored API server may show one whose machine is removed."""
        if node["metadata"]["name"] not in self._cluster.hosts:
            return
        now, boot = self._cluster.loop.time(), node.get("status", {}).get("nodeInfo", {}).get("bootID", "")
        self._last_boot[node["metadata"]["uid"]] = boot
        for identity in (node["metadata"]["uid"], boot):
            if now - self._seen.get(identity, now) >= self._cluster.config.settings.node_gc_delay - CHECK_DELAY:
                self._returned[identity] = now
            self._seen[identity] = now

    def _on_power_loss(self, name: str) -> None:
        """Of the accepted versions, only the synced one must be known in the next boot."""
        machine, pool = self._cluster.hosts[name].machine, Pool()
        for record in read_agent_journal(machine.disk.synced()).records:
            pool.apply(record)
        self._versions = {key: version for key, version in self._versions.items() if key[0] is not machine}
        self._versions[machine, machine.journal_faults, pool.adopted_nc] = pool.version

    def _check_version(self, name: str, nc: str, version: int) -> None:
        machine = self._cluster.hosts[name].machine
        key = (machine, machine.journal_faults, nc)
        if version < self._versions.get(key, version):
            detail = f"the agent of {name} went back from version {self._versions[key]} to {version}"
            raise Violation("no silent rollback", f"{detail} of NC {nc}")
        self._versions[key] = version

    def _on_assign(self, use: AddressUse) -> None:
        """Check that an assigned address is granted to the node, and that its agent may assign."""
        cluster, name = self._cluster, use.machine
        if name not in cluster.hosts:
            return  # of another cluster
        if not cluster.ledger_host.subnet().frozen:
            _check_containment(use, cluster.owners())
        self._check_programmed(use)
        self._record_identity(name, cluster.nodes().get(name), cluster.nncs().get(name))
        boot = cluster.hosts[name].machine.boot_id
        confirmed = min(self._nodes.get(boot, NO_NODE)[0], self._nncs.get(boot, NEVER))
        if use.since - confirmed > cluster.config.settings.fence + CHECK_DELAY:
            age = f"{use.since - confirmed:.0f} s after Node and NNC last identified it"
            raise Violation("fenced", f"{name} assigned {use.address} to {use.pod} {age}")
        self._check_confirmation(use)

    def _check_confirmation(self, use: AddressUse) -> None:
        """Check that the agent sent its last answered confirming reads within the fence time."""
        reads = self._cluster.hosts[use.machine].reads
        sent = min(reads.get(each, NEVER) for each in CONFIRMING_READS)
        if use.since - sent > self._cluster.config.settings.fence + RESPONSE_DELAY:
            age = f"{use.since - sent:.1f} s after its last confirmation"
            raise Violation("fenced", f"{use.machine} assigned {use.address} to {use.pod} {age}")

    def _preferred_address(self, use: AddressUse, elapsed: float) -> str | None:
        """Return an address of the node that has been free for longer than this, since before the decision.

        When the underlay programmed an address is not known from outside: such clusters are not checked.
        """
        host = self._cluster.hosts.get(use.machine)
        if host is None or host.agent is None or self._cluster.underlay:
            return None
        pool, now = host.agent.pool, host.machine.clock.boot()
        free = () if pool.incomplete else (each for each in pool.grants.free() if each.id not in pool.lost)
        return next((each.address for each in free if now - each.since > elapsed), None)

    def _check_programmed(self, use: AddressUse) -> None:
        """Check that the underlay has programmed an assigned address."""
        underlay, agent = self._cluster.underlay, self._cluster.hosts[use.machine].agent
        if underlay and agent and not underlay.is_programmed(agent.pool.adopted_nc, use.address):
            detail = f"{use.machine} assigned {use.address} to {use.pod}, which the underlay has not programmed"
            raise Violation("programmed", detail)

    def _record_releases(self) -> None:
        nncs = self._cluster.nncs()
        for name, host in self._cluster.hosts.items():
            nnc, nc = nncs.get(name), host.agent.pool.nc if host.agent else None
            recorded = self._recorded.get(host.machine, (None, None))
            self._recorded[host.machine] = nnc, nc
            if nnc is not None and nnc is not recorded[0]:
                self._released.update(nnc["spec"].get("ipsNotInUse", ()))
            if host.agent:
                self._released.update(host.agent.pool.pending_release)
            if nc is not None and nc is not recorded[1]:
                self._known.setdefault(host.machine, set()).update(each.name for each in nc.ip_assignments)

    def _on_ledger_change(self) -> None:
        if not self._check_due:
            self._check_due = True
            self._cluster.loop.call_soon(self._check_ledger, context=Context())

    def _check_ledger(self) -> None:
        """Check the ledger's state, outside of the process that changed it."""
        self._check_due = False
        try:
            self._record_releases()
            recovered = not self._cluster.ledger_host.subnet().frozen  # a restored ledger must first recover
            if recovered:
                owners = self._cluster.owners()
                for use in self._cluster.oracle.uses():
                    if use.machine in self._cluster.hosts:
                        _check_containment(use, owners)
            self._check_consent(recovered=recovered)
        except Violation as violation:
            self._cluster.report(violation)

    def _check_consent(self, *, recovered: bool) -> None:
        """Check that grants are in the subnet, and that lost ones were released by their agents."""
        records = [record for each in self._cluster.nc_records().values() for record in each]
        granted = {each.state.nc_id: {grant.id: grant.address for grant in each.state.grants} for each in records}
        before, self._granted = self._granted, granted
        closed = [each for nc, each in self._records.items() if nc not in granted]
        self._records = {each.state.nc_id: each for each in records}
        if not recovered:
            return
        self._check_subnet(granted)
        for host in self._cluster.hosts.values():
            nc = host.agent.pool.adopted_nc if host.agent else ""
            had, has = before.get(nc, {}).keys(), granted.get(nc, {}).keys()
            lost = (had & self._known.get(host.machine, set())) - has - self._released
            if lost and nc in granted:
                raise Violation("consent", f"NC {nc} lost grant {min(lost)}, which no agent released")
        for record in closed:
            self._check_closed(record)

    def _check_subnet(self, granted: Mapping[str, Mapping[str, str]]) -> None:
        """Check that grants are inside the subnet, and not reserved addresses."""
        subnet = self._cluster.ledger_host.subnet()
        networks = tuple(ipaddress.ip_network(each) for each in (subnet.cidr, *subnet.additional_cidrs))
        excluded = {self._cluster.config.gateway, *(str(each[edge]) for each in networks for edge in (0, -1))}
        for nc, grants in granted.items():
            wrong = [each for each in grants.values() if each in excluded or not _is_inside(each, networks)]
            if wrong:
                raise Violation("containment", f"NC {nc} has {wrong[0]}, which cannot be granted")

    def _check_closed(self, record: NetworkContainerRecord) -> None:
        """Check that the Node of a closed NC was absent for the node GC delay, or that its machine has another NC.

        A machine that took the Node over, and has another NC, does not need that of its predecessor, whose boot ID was
        absent for as long.
        """
        host = self._cluster.hosts.get(record.node)
        adopted = host.agent.pool.adopted_nc if host and host.agent else ""
        identities = {record.node_uid, record.boot_id or record.node_uid}
        if host and adopted == record.state.nc_id and host.machine.boot_id in self._nncs:
            identities.add(host.machine.boot_id)  # reported by the agent, whether the ledger knows it or not
        successor = self._adopted.get(self._last_boot.get(record.node_uid, ""), record.state.nc_id)
        if record.boot_id and successor in self._records and self._was_absent(record.boot_id):
            return
        unused = not record.state.grants  # closing it takes nothing from anybody
        if not unused and adopted not in self._records and not all(map(self._was_absent, identities)):
            detail = f"NC {record.state.nc_id} of {record.node} was closed while its Node existed"
            raise Violation("consent", detail)

    def _was_absent(self, identity: str) -> bool:
        """Return whether no Node had a UID or boot ID for the node GC delay, until now or until the decision."""
        now, delay = self._cluster.loop.time(), self._cluster.config.settings.node_gc_delay
        absent = now - self._seen.get(identity, NEVER) >= delay - CHECK_DELAY
        return absent or now - self._returned.get(identity, NEVER) < delay


@lru_cache(maxsize=100)
def _reported_boot(annotation: str) -> str | None:
    """Return the boot ID in an agent's report."""
    boot: str | None = msgspec.json.decode(annotation).get("bootID")
    return boot


@lru_cache(maxsize=4096)
def _is_inside(address: str, networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]) -> bool:
    return any(ipaddress.ip_address(address) in network for network in networks)


def _check_containment(use: AddressUse, owners: Mapping[str, str]) -> None:
    """Check that a Pod's address is one of its node's grants in the ledger."""
    owner = owners.get(use.address)
    if owner != use.machine:
        detail = f"{use.pod} uses {use.address} on {use.machine}, but the ledger granted it to {owner or 'no node'}"
        raise Violation("containment", detail)
