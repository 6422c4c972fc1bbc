"""What must always be true, looked at from outside.

One owner and rest are checked where an address is given (`oracle`). Here: what the books may say (containment, consent),
whether whoever gives an address may (the fence), that nothing goes back to the past; each looked at when what it is
about has changed. What must be true once the faults are over is in `settled`.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING

import msgspec

from podpool.agent.state import read_agent_journal
from podpool.agent.pool import Pool
from podpool.api.azure import AGENT_ANNOTATION
from podpool.lab.apiserver.watch_cache import StoreEvent, Object
from podpool.lab.sim.interceptor import CONFIRMING
from podpool.lab.sim.oracle import AddressUse, Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.ledger.messages import NetworkContainerRecord

if TYPE_CHECKING:
    from podpool.lab.sim.machine import Machine


NEVER = -math.inf
NO_NODE = (NEVER, frozenset[str]())
LOOK = 1.0
"""Seconds within which what changes unnoticed is looked at."""
MOMENT = 0.01
"""Seconds between an agent's word and its being heard."""


class InvariantChecker:
    """Looks at everything that changes in a cluster, from the beginning on."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._due = False
        self._held: dict[str, dict[str, str]] = {}
        """What each container had: addresses by grant;"""
        self._records: dict[str, NetworkContainerRecord] = {}
        """and what the books had of it."""
        self._let_go: set[str] = set()
        """Every grant that an agent, or whoever wrote into an NNC, has named,"""
        self._known: dict[Machine, set[str]] = {}
        """and every one that a machine's agent was told of: what nobody knows is nobody's."""
        self._nodes: dict[str, tuple[float, frozenset[str]]] = {}
        """When a Node last had each boot id, and the UIDs of all that had it: registered again, it is the same one;"""
        self._configs: dict[str, float] = {}
        """and when its NNC last showed boot id and container."""
        self._versions: dict[tuple[Machine, int, str], int] = {}
        """The highest version of a container that an agent had accepted, by machine, journal and container."""
        self._seen: dict[str, float] = {}
        """When there was last a Node with each UID, and each boot id,"""
        self._back: dict[str, float] = {}
        """and when one came back after the gone time."""
        cluster.ledger_host.changed.append(self._books_changed)
        self._exhausted = False
        self._exhausted_at = NEVER
        """When the books last said that the subnet is exhausted."""
        cluster.oracle.given.append(self._given)
        cluster.oracle.exhausted.append(self._was_exhausted)
        cluster.losing_power.append(self._loses_power)
        cluster.looks.append(self._look)
        cluster.store.on_write.append(self._written)

    def _look(self) -> None:
        """Look at what changes unnoticed."""
        self._note_words()
        for node in self._cluster.nodes().values():
            self._see(node)
        for name, host in self._cluster.hosts.items():
            self._identify(name, self._cluster.nodes().get(name), self._cluster.configs().get(name))
            if host.agent and host.agent_process and host.agent_process.alive:
                self._only_rises(name, host.agent.pool.adopted_nc, host.agent.pool.version)

    def _written(self, event: StoreEvent) -> None:
        """Note who is who, until a write and from then on."""
        name = event.key.rpartition("/")[2]
        if event.id[1] == "nodes":
            for node in filter(None, (event.old, event.new)):
                self._see(node)
        if event.id[1] in {"nodes", "nodenetworkconfigs"} and name in self._cluster.hosts:
            now = {"nodes": self._cluster.nodes().get(name), "nodenetworkconfigs": self._cluster.configs().get(name)}
            for each in (now | {event.id[1]: event.old}, now):
                self._identify(name, each["nodes"], each["nodenetworkconfigs"])

    def _identify(self, name: str, node: Object | None, config: Object | None) -> None:
        """Note whether Node and NNC show a machine for what it is: what confirming reads would see at this moment."""
        host, now = self._cluster.hosts[name], self._cluster.loop.time()
        boot = host.machine.boot_id
        if node and node["status"]["nodeInfo"]["bootID"] == boot:
            self._nodes[boot] = (now, self._nodes.get(boot, NO_NODE)[1] | {node["metadata"]["uid"]})
        if not config or host.agent is None or boot not in self._nodes:
            return
        meta = config["metadata"]
        owners = {each["uid"] for each in meta.get("ownerReferences", ())}
        shown = {each["id"] for each in config.get("status", {}).get("networkContainers", ())}
        told = msgspec.json.decode(meta.get("annotations", {}).get(AGENT_ANNOTATION, "{}")).get("bootID")
        if told == boot and self._nodes[boot][1] & owners and host.agent.pool.adopted_nc in shown:
            self._configs[boot] = now

    def _see(self, node: Object) -> None:
        """Note that a Node is there; a restored server may show one whose machine has left."""
        if node["metadata"]["name"] not in self._cluster.hosts:
            return
        now, boot = self._cluster.loop.time(), node.get("status", {}).get("nodeInfo", {}).get("bootID", "")
        for word in (node["metadata"]["uid"], boot):
            if now - self._seen.get(word, now) >= self._cluster.shape.settings.node_gc_delay - LOOK:
                self._back[word] = now
            self._seen[word] = now

    def _loses_power(self, name: str) -> None:
        """Of the versions that an agent has accepted, only what is synced is to be known in the next boot."""
        machine, pool = self._cluster.hosts[name].machine, Pool()
        for record in read_agent_journal(machine.disk.synced()).records:
            pool.apply(record)
        self._versions = {key: version for key, version in self._versions.items() if key[0] is not machine}
        self._versions[machine, machine.spoilt, pool.adopted_nc] = pool.version

    def _only_rises(self, machine: str, container: str, version: int) -> None:
        on = self._cluster.hosts[machine].machine
        key = (on, on.spoilt, container)
        if version < self._versions.get(key, version):
            story = f"the agent of {machine} went back from version {self._versions[key]} to {version}"
            raise Violation("no silent return", f"{story} of container {container}")
        self._versions[key] = version

    def _given(self, use: AddressUse) -> None:
        """Look at an address that was given: is it the node's, and may its agent give any at all."""
        cluster = self._cluster
        if use.machine not in cluster.hosts:
            return  # another cluster's
        if not cluster.ledger_host.subnet().frozen:
            _contained(use, cluster.owners())
        name = use.machine
        self._programmed(use)
        self._identify(name, cluster.nodes().get(name), cluster.configs().get(name))
        boot = cluster.hosts[name].machine.boot_id
        known = min(self._nodes.get(boot, NO_NODE)[0], self._configs.get(boot, NEVER))
        if use.since - known > cluster.shape.settings.fence + LOOK:
            story = f"{name} gave {use.address} to {use.pod}, {use.since - known:.0f} s after it was last its Node"
            raise Violation("fenced", story)
        self._confirmed(use)

    def _confirmed(self, use: AddressUse) -> None:
        """Look whether an agent that gave an address had asked who it is within the fence time, and was answered."""
        reads = self._cluster.hosts[use.machine].reads
        asked = min(reads.get(each, NEVER) for each in CONFIRMING)
        if use.since - asked > self._cluster.shape.settings.fence + MOMENT:
            story = f"{use.machine} gave {use.address} to {use.pod}, {use.since - asked:.1f} s after it last asked"
            raise Violation("fenced", story)

    def _was_exhausted(self, use: AddressUse, since: float) -> bool:
        """Tell whether the books said so since some moment, or whoever gave the address has heard so last."""
        host = self._cluster.hosts.get(use.machine)
        terms = host.agent.metrics_snapshot().parameters if host and host.agent else None
        return self._exhausted or self._exhausted_at >= since or bool(terms and terms.exhausted)

    def _programmed(self, use: AddressUse) -> None:
        """Look whether an address that was given works."""
        fabric, agent = self._cluster.underlay, self._cluster.hosts[use.machine].agent
        if fabric and agent and not fabric.works(agent.pool.adopted_nc, use.address):
            story = f"{use.machine} gave {use.address} to {use.pod}, and the underlay does not know it"
            raise Violation("programmed", story)

    def _note_words(self) -> None:
        for name, host in self._cluster.hosts.items():
            self._let_go.update(_named(self._cluster, name))
            if host.agent and host.agent.pool.nc:
                told = (each.name for each in host.agent.pool.nc.ip_assignments)
                self._known.setdefault(host.machine, set()).update(told)

    def _books_changed(self) -> None:
        if not self._due:
            self._due = True
            self._cluster.loop.call_soon(self._examine, context=Context())

    def _examine(self) -> None:
        """Look at the books as they are now, outside of whoever changed them."""
        self._due = False
        before, self._exhausted = self._exhausted, self._cluster.ledger_host.subnet().exhausted
        if before:
            self._exhausted_at = self._cluster.loop.time()
        try:
            self._note_words()
            settled = not self._cluster.ledger_host.subnet().frozen  # restored ones must first be mended
            if settled:
                owners = self._cluster.owners()
                for use in self._cluster.oracle.uses():
                    if use.machine in self._cluster.hosts:
                        _contained(use, owners)
            self._consented(settled=settled)
        except Violation as violation:
            self._cluster.loop.call_exception_handler({"message": "looked at the books", "exception": violation})

    def _consented(self, *, settled: bool) -> None:
        """What a machine's container has no more was named; what it has is the subnet's to give."""
        records = [record for each in self._cluster.records().values() for record in each]
        subnet = self._cluster.ledger_host.subnet()
        held = {each.state.container: {grant.id: grant.address for grant in each.state.grants} for each in records}
        before, self._held = self._held, held
        networks = [ipaddress.ip_network(each) for each in (subnet.cidr, *subnet.further)]
        kept_back = {self._cluster.shape.gateway, *(str(each[edge]) for each in networks for edge in (0, -1))}
        for container, grants in held.items() if settled else ():
            wrong = [each for each in grants.values() if each in kept_back or not _inside(each, networks)]
            if wrong:
                raise Violation("containment", f"container {container} has {wrong[0]}, which is nobody's to have")
        for host in self._cluster.hosts.values() if settled else ():
            container = host.agent.pool.adopted_nc if host.agent else ""
            had, has = before.get(container, {}).keys(), held.get(container, {}).keys()
            lost = (had & self._known.get(host.machine, set())) - has - self._let_go
            if lost and container in held:
                raise Violation("consent", f"container {container} lost {min(lost)}, and nobody let go of it")
        closed = [each for container, each in self._records.items() if container not in held]
        self._records = {each.state.container: each for each in records}
        for record in closed if settled else ():
            self._gone(record)

    def _gone(self, record: NetworkContainerRecord) -> None:
        """A container is closed when its Node was not seen for the gone time, or its machine has another."""
        host = self._cluster.hosts.get(record.node)
        own = host.agent.pool.adopted_nc if host and host.agent else ""
        words = {record.node_uid, record.boot_id or record.node_uid}
        if host and own == record.state.container and host.machine.boot_id in self._configs:
            words.add(host.machine.boot_id)  # which its agent has told, whether the books know it or not
        if own not in self._records and not all(map(self._was_missed, words)):
            story = f"container {record.state.container} of {record.node} was closed, whose Node was there"
            raise Violation("consent", story)

    def _was_missed(self, word: str) -> bool:
        """Tell whether no Node had a UID or boot id for the gone time, by now or when it may have been decided."""
        now, gone = self._cluster.loop.time(), self._cluster.shape.settings.node_gc_delay
        return now - self._seen.get(word, NEVER) >= gone - LOOK or now - self._back.get(word, NEVER) < gone


def _inside(address: str, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    return any(ipaddress.ip_address(address) in network for network in networks)


def _contained(use: AddressUse, owners: Mapping[str, str]) -> None:
    """A Pod's address is among its node's grants, in the books of the ledger."""
    owner = owners.get(use.address)
    if owner != use.machine:
        story = f"{use.pod} uses {use.address} on {use.machine}, and the ledger has it for {owner or 'nobody'}"
        raise Violation("containment", story)


def _named(cluster: SimCluster, name: str) -> tuple[str, ...]:
    """List the grants that a node's NNC or its agent lets go of."""
    config, agent = cluster.configs().get(name), cluster.hosts[name].agent
    spelled = config["spec"].get("ipsNotInUse", ()) if config else ()
    return (*spelled, *(agent.pool.pending_release if agent else ()))
