"""The state of every component as text, which is printed with a violation."""

from collections.abc import Iterator, Mapping
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION
from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.lab.sim.cluster import SimCluster


def dump_state(cluster: SimCluster) -> str:
    """Return the state of API server, ledger, controllers and machines, and the addresses really in use."""
    return "\n".join(_lines(cluster))


def _lines(cluster: SimCluster) -> Iterator[str]:
    yield f"after {cluster.loop.time():.1f} s"
    yield f"API server: {_up(cluster.api.up)}, version {cluster.store.revision}"
    yield from _ledger(cluster)
    for name, process in cluster.controllers.items():
        paused = ", paused" if process.backlog is not None else ""
        yield f"{name}: {_up(process.alive)}{paused}"
    yield f"partitions: {', '.join(' - '.join(pair) for pair in cluster.network.partitions()) or 'none'}"
    for name in sorted({*cluster.hosts, *cluster.nodes(), *cluster.nncs()}):
        yield from _machine(cluster, name)
    for kind in (LEASES, IP_POOLS, NODE_SLICE_POOLS) if cluster.config.slices else ():
        for key, each in cluster.store.objects(kind.group, kind.plural).items():
            meta = each["metadata"]
            labels = {**meta.get("annotations", {}), **meta.get("labels", {})}
            fields = labels | each.get("spec", {}) | each.get("status", {})
            yield f"{kind.kind} {key}: {', '.join(f'{name} {value}' for name, value in fields.items())}"


def _ledger(cluster: SimCluster) -> Iterator[str]:
    subnet = cluster.ledger_host.subnet()
    frozen = ", frozen" if subnet.frozen else ""
    counts = f"{subnet.reserved} of {subnet.capacity} reserved, {subnet.waiting} Pods wait, batch {subnet.scaler.batch}"
    up = ", ".join(f"{each.name} {_up(each.up)}" for each in cluster.ledger_host.replicas)
    yield f"{up}; revision {subnet.revision}{frozen}; {counts}"
    for records in cluster.nc_records().values():
        for record in records:
            state = record.state
            node = f"{record.node}, UID {_short(record.node_uid)}, boot {_short(record.boot_id or 'unknown')}"
            grants = f"{len(state.grants)} grants, {record.wanted} wanted, {len(record.released)} pending release"
            yield f"  NC {_short(state.nc_id)} at version {state.version} of {node}: {grants}"


def _machine(cluster: SimCluster, name: str) -> Iterator[str]:
    host, node, nnc = cluster.hosts.get(name), cluster.nodes().get(name), cluster.nncs().get(name)
    yield f"{name}: {f'boot {_short(host.machine.boot_id)}' if host else 'no machine'}"
    if node:
        boot = _short(node["status"]["nodeInfo"]["bootID"])
        pods = len(cluster.pods_on(name))
        notes = "".join(f", {key} {value}" for key, value in node["metadata"].get("annotations", {}).items())
        yield f"  Node: UID {_short(node['metadata']['uid'])}, boot {boot}, {pods} Pods bound{notes}"
    if nnc:
        yield f"  NNC: {_nnc(nnc)}"
    if host and host.agent:
        pool = host.agent.pool
        fence = "fenced" if host.agent.fenced else "not fenced"
        up = _up(host.agent_process is not None and host.agent_process.alive)
        counts = f"{pool.granted} grants, {len(pool.assigned)} in use, {len(pool.pending_release)} pending release"
        yield f"  agent: {up}, {fence}; NC {_short(pool.adopted_nc or 'none')} at version {pool.version}, {counts}"
    uses = cluster.oracle.uses_on(name)
    if uses:
        yield f"  in use: {', '.join(f'{use.address} by {pod}' for pod, use in uses.items())}"


def _nnc(nnc: Mapping[str, Any]) -> str:
    meta, spec = nnc["metadata"], nnc.get("spec", {})
    owner = ", ".join(_short(each["uid"]) for each in meta.get("ownerReferences", ())) or "none"
    terminating = ", terminating" if "deletionTimestamp" in meta else ""
    request = f"{spec.get('requestedIPCount', 0)} wanted, {len(spec.get('ipsNotInUse', ()))} pending release"
    ncs = [
        f"NC {_short(each['id'])} at version {each['version']} with {len(each.get('ipAssignments', ()))} grants"
        for each in nnc.get("status", {}).get("networkContainers", ())
    ]
    report = meta.get("annotations", {}).get(AGENT_ANNOTATION, "none")
    return f"owner UID {owner}{terminating}; {request}; {', '.join(ncs) or 'no NC'}; agent report {report}"


def _up(up: bool) -> str:  # noqa: FBT001  the only argument
    return "up" if up else "down"


def _short(uuid: str) -> str:
    return uuid[:8]
