"""The state of every component as text, which is printed with a violation."""

from collections.abc import Iterator, Mapping
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION
from podpool.api.builtin import LEASES
from podpool.api.node_slices import Assignment
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.lab.apiserver.registry import CONFIG_MAPS
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.lab.sim.slice_state import held_slices, node_slices, owned


def dump_state(cluster: SimCluster) -> str:
    """Return the state of API server, ledger, controllers and machines, and the addresses really in use.

    It never fails, because a violation may leave a component in a state that cannot be read.
    """
    parts = [_control_plane(cluster), _ledger(cluster), _controllers(cluster)]
    parts += (_machine(cluster, name) for name in sorted({*cluster.hosts, *cluster.nodes(), *cluster.nncs()}))
    if cluster.config.slices:
        parts += (_node_slices(cluster), *_journals(cluster), _slice_objects(cluster))
    return "\n".join(line for part in parts for line in _readable(part))


def _readable(lines: Iterator[str]) -> Iterator[str]:
    """Return the lines up to the first that cannot be made, and the reason for that."""
    try:
        yield from lines
    except Exception as error:  # noqa: BLE001  an unreadable part must not hide the others, nor the violation
        yield f"  not readable: {type(error).__name__}: {error}"


def _control_plane(cluster: SimCluster) -> Iterator[str]:
    yield f"after {cluster.loop.time():.1f} s"
    yield f"API server: {_up(cluster.api.up)}, version {cluster.store.revision}"


def _controllers(cluster: SimCluster) -> Iterator[str]:
    for name, process in cluster.controllers.items():
        paused = ", paused" if process.backlog is not None else ""
        yield f"{name}: {_up(process.alive)}{paused}"
    yield f"partitions: {', '.join(' - '.join(pair) for pair in cluster.network.partitions()) or 'none'}"


def _node_slices(cluster: SimCluster) -> Iterator[str]:
    for name, of in node_slices(cluster).items():
        spec, status = of.spec, of.status
        terminating = ", terminating" if of.metadata.deletion_timestamp else ""
        yield f"NodeSlices {name}: UID {_short(spec.node_uid)}{terminating}, version {of.metadata.resource_version}"
        for each in owned(name, of):
            former = f"former {_short(each.node_uid)}: " if each.former else ""
            yield f"  {former}{_assignment(each.assignment)}"
        rolled_back = f", rolled back from {status.rolled_back}" if status.rolled_back else ""
        boot = f"boot {_short(status.boot_id)}, UID {_short(status.node_uid)}"
        yield f"  status: protocol {status.protocol}, {boot}, inventory {_short(status.inventory)}{rolled_back}"
        for shown in status.slices:
            states = [name for name in ("held", "in_use", "returned") if getattr(shown, name)]
            acknowledgement = _short(shown.acknowledgement) or "none"
            yield f"    {_short(shown.id)} {shown.slice}: acknowledgement {acknowledgement}, {' '.join(states)}"


def _journals(cluster: SimCluster) -> list[Iterator[str]]:
    return [_journal(name, host) for name, host in cluster.hosts.items()]


def _journal(name: str, host: SimHost) -> Iterator[str]:
    try:
        held = ", ".join(f"{_short(each.assignment)} {each.slice}" for each in held_slices(host))
    except PodpoolError as error:
        held = f"not readable: {error}"
    yield f"journal of {name}: {held or 'no slice'}"


def _slice_objects(cluster: SimCluster) -> Iterator[str]:
    for kind in (IP_POOLS, NODE_SLICE_POOLS, CONFIG_MAPS, LEASES):
        for key, obj in cluster.store.objects(kind.group, kind.plural).items():
            meta = obj["metadata"]
            labels = {**meta.get("annotations", {}), **meta.get("labels", {})}
            fields = labels | obj.get("spec", {}) | obj.get("status", {}) | obj.get("data", {})
            yield f"{kind.kind} {key}: {', '.join(f'{name} {value}' for name, value in fields.items())}"


def _assignment(each: Assignment) -> str:
    leaves = f", to be returned: {each.return_reason}" if each.return_reason else ""
    confirmed = f"confirmed {_short(each.confirmed)}" if each.confirmed else "not confirmed"
    return f"{_short(each.id)} {each.network} {each.slice} of {each.range}: {confirmed}{leaves}"


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
