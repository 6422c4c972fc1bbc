"""What must hold after the faults: nothing leaked, all components agree, all Pods are served, nothing is written.

Checked from outside. Free addresses are read at that moment: a cooldown ends without a write.
"""

from collections.abc import Mapping

from podpool.controller.controller import LEASE
from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.ledger.messages import NetworkContainerRecord

NCRecords = Mapping[str, list[NetworkContainerRecord]]
"""Network containers by node name."""


def check_converged(cluster: SimCluster) -> None:
    """Check a cluster after some time without faults."""
    records = cluster.nc_records()
    _check_not_frozen(cluster)
    _check_one_nc_each(cluster, records)
    _check_nnc_nodes(cluster)
    _check_agreement(cluster, records)
    _check_ledger_counts(cluster)
    _check_served(cluster)
    _check_aligned(cluster, records)


def _check_not_frozen(cluster: SimCluster) -> None:
    subnet = cluster.ledger_host.subnet()
    if subnet.frozen:
        raise Violation("not frozen", f"subnet {subnet.subnet} still grants nothing")


def _check_one_nc_each(cluster: SimCluster, records: NCRecords) -> None:
    for name in sorted({*records, *cluster.nodes()}):
        found = len(records.get(name, []))
        expected = 1 if name in cluster.nodes() else 0
        if found != expected:
            raise Violation("no leaks", f"the ledger has {found} network containers for {name}, expected {expected}")


def _check_nnc_nodes(cluster: SimCluster) -> None:
    for name in cluster.nncs():
        if name not in cluster.nodes():
            raise Violation("no leaks", f"NNC {name} exists without a Node")


def _check_agreement(cluster: SimCluster, records: NCRecords) -> None:
    """Ledger, NNC and agent have the same grants, no agent is fenced, and each knows its assignments."""
    for name in cluster.nodes():
        in_ledger = sorted(grant.id for grant in records[name][0].state.grants)
        ncs = cluster.nncs().get(name, {}).get("status", {}).get("networkContainers", [])
        in_nnc = sorted(grant["name"] for each in ncs for grant in each.get("ipAssignments", []))
        host = cluster.hosts[name]
        in_agent = _agent_grants(host)
        if not in_ledger == in_nnc == in_agent:
            detail = f"{name}: ledger {len(in_ledger)}, NNC {len(in_nnc)}, agent {len(in_agent)} grants differ"
            raise Violation("agreement", detail)
        if host.agent is None or host.agent.fenced:
            raise Violation("agreement", f"{name}: its agent is fenced")
        _check_assignments(cluster, name)


def _agent_grants(host: SimHost) -> list[str]:
    ncs = host.agent.pool.ncs if host.agent else ()
    return sorted(grant.name for each in ncs for grant in each.ip_assignments)


def _check_assignments(cluster: SimCluster, name: str) -> None:
    """The agent's assignments are those of its sandboxes; a damaged journal may lack some.

    Without the runtime's socket, a former sandbox of a Pod that lives is not found.
    """
    agent = cluster.hosts[name].agent
    if agent is None:
        return
    uses = {use.address: use.sandbox for use in cluster.oracle.uses() if use.machine == name}
    assigned = {each.grant.address: each.attachment.container_id for each in agent.pool.assigned.values()}
    if not cluster.config.runtime_socket:
        present, dels = cluster.pods_on(name), cluster.hosts[name].runtime.lost.items()
        former = {sandbox for sandbox, each in dels if each.pod_uid in present}
        assigned = {address: sandbox for address, sandbox in assigned.items() if sandbox not in former}
    lost = {grant.address for grant in agent.pool.unassigned_lost()}
    if assigned != {address: sandbox for address, sandbox in uses.items() if address not in lost}:
        detail = f"{name}: sandboxes use {', '.join(sorted(uses))}, its agent assigned {', '.join(sorted(assigned))}"
        raise Violation("agreement", detail)


def _check_ledger_counts(cluster: SimCluster) -> None:
    """Reserved addresses of the subnet are those granted in all clusters and those cooling down."""
    subnet, granted = cluster.ledger_host.subnet_now(), cluster.ledger_host.granted()
    if subnet.reserved != granted + subnet.cooling_down:
        counts = f"{subnet.reserved} reserved, {granted} granted, {subnet.cooling_down} cooling down"
        raise Violation("no leaks", f"subnet {subnet.subnet}: {counts}")
    for error in cluster.ledger_host.fsck_errors():
        raise Violation("no leaks", error)


def _check_served(cluster: SimCluster) -> None:
    """No Pod waits while an address is free, or idle on a node without a scaler override."""
    subnet = cluster.ledger_host.subnet_now()
    free = subnet.capacity - subnet.reserved - subnet.reserved_for_primaries
    agents = [host.agent for host in cluster.hosts.values() if host.agent]
    used = {use.address for use in cluster.oracle.uses()}  # after a loss of the journal an agent has no record of some
    unused = sum(grant.address not in used for agent in agents for grant in agent.pool.grants.free())
    idle = 0 if cluster.has_scaler_override() else unused
    for name in cluster.nodes():
        served = cluster.oracle.uses_on(name)
        waiting = [pod for pod in cluster.pods_on(name).values() if pod not in served]
        if waiting and (free > 0 or idle > 0):
            detail = f"{', '.join(waiting)} on {name} without an address, with {free} free and {idle} idle"
            raise Violation("all served", detail)


def _check_aligned(cluster: SimCluster, records: NCRecords) -> None:
    """A node's addresses, with its primary, are whole batches, unless it was granted less than it requested."""
    batch = cluster.batch()
    for name in cluster.nodes():
        state = records[name][0].state
        total = len(state.grants) + 1
        if total % batch and not state.shortage:
            raise Violation("aligned", f"{name} has {total} addresses, and the batch is {batch}")


def write_state(cluster: SimCluster) -> dict[str, str]:
    """Return the versions of all objects and of the ledger, and the count of write requests to the API server.

    Without the leader's Lease, and without Events, whose counts are written minutes later; without IPPools while Pods
    retry to get addresses of all their networks. Calls of the ledger do not count: some only compare.
    """
    retrying = cluster.config.networks > 1 and any(map(cluster.waiting_pods, cluster.hosts))
    found = ((resource.plural, key, obj["metadata"]) for resource, key, obj in cluster.store.everything())
    versions = {
        f"{cluster.name}{plural} {key}": "" if plural == "events" else meta["resourceVersion"]
        for plural, key, meta in found
        if not (retrying and plural == "ippools") and key != f"kube-system/{LEASE}"
    }
    ignored = ("/events/", f"/leases/{LEASE}", *(("/ippools",) if retrying else ()))
    requests = {
        f"requests of {source}, {what}": str(count)
        for (source, target, what), count in cluster.network.writes.items()
        if target == cluster.api.name and not any(each in what for each in ignored)
    }
    return {**versions, **requests, "ledger": str(cluster.ledger_host.subnet().revision)}


def check_quiet(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check that nothing was written between two states, and no write was requested."""
    changed = [each for each in sorted({*before, *after}) if before.get(each) != after.get(each)]
    if changed:
        raise Violation("quiescence", f"{', '.join(changed)} changed without a cause")
