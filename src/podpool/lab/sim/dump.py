"""The state of every part, in words: what a person reads beside a violation."""

from collections.abc import Iterator, Mapping
from typing import Any

from podpool.api.azure import AGENT_ANNOTATION
from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.lab.sim.cluster import SimCluster


def describe(cluster: SimCluster) -> str:
    """Tell what the API server, the ledger, the controllers, and each machine believe, and what is really so."""
    return "\n".join(_lines(cluster))


def _lines(cluster: SimCluster) -> Iterator[str]:
    now = cluster.loop.time()
    yield f"after {now:.1f} s"
    yield f"API server: {_up(cluster.api.up)}, version {cluster.store.revision}"
    subnet = cluster.ledger_host.subnet()
    frozen = ", frozen" if subnet.frozen else ""
    counts = f"{subnet.reserved} of {subnet.capacity} reserved, {subnet.waiting} Pods wait, batch {subnet.scaler.batch}"
    up = ", ".join(f"{each.name} {_up(each.up)}" for each in cluster.ledger_host.replicas)
    yield f"{up}; revision {subnet.revision}{frozen}; {counts}"
    for records in cluster.records().values():
        for record in records:
            state = record.state
            told = f"for {record.node}, UID {_brief(record.node_uid)}, boot {_brief(record.boot_id or 'unknown')}"
            grants = f"{len(state.grants)} grants, {record.wanted} wanted, {len(record.released)} named"
            yield f"  container {_brief(state.container)} at version {state.version} {told}: {grants}"
    for name, process in cluster.controllers.items():
        paused = ", paused" if process.backlog is not None else ""
        yield f"{name}: {_up(process.alive)}{paused}"
    yield f"cut: {', '.join(' from '.join(pair) for pair in cluster.network.cuts()) or 'nothing'}"
    for name in sorted({*cluster.hosts, *cluster.nodes(), *cluster.configs()}):
        yield from _machine(cluster, name)
    for kind in (LEASES, IP_POOLS, NODE_SLICE_POOLS) if cluster.shape.slices else ():
        for key, each in cluster.store.objects(kind.group, kind.plural).items():
            meta = each["metadata"]
            told = {**meta.get("annotations", {}), **meta.get("labels", {}), **each.get("spec", {})} | each.get(
                "status", {}
            )
            yield f"{kind.kind} {key}: {', '.join(f'{name} {value}' for name, value in told.items())}"


def _machine(cluster: SimCluster, name: str) -> Iterator[str]:
    host, node, config = cluster.hosts.get(name), cluster.nodes().get(name), cluster.configs().get(name)
    yield f"{name}: {f'boot {_brief(host.machine.boot_id)}' if host else 'no machine'}"
    if node:
        boot = _brief(node["status"]["nodeInfo"]["bootID"])
        pods = len(cluster.pods_on(name))
        told = "".join(f", {key} {value}" for key, value in node["metadata"].get("annotations", {}).items())
        yield f"  Node: UID {_brief(node['metadata']['uid'])}, boot {boot}; {pods} Pods are bound to it{told}"
    if config:
        yield f"  NNC: {_config(config)}"
    if host and host.agent:
        pool = host.agent.pool
        state = "fenced" if host.agent.fenced else "open"
        up = _up(host.agent_process is not None and host.agent_process.alive)
        has = f"{pool.granted} grants, {len(pool.assigned)} in use, {len(pool.pending_release)} named"
        yield f"  agent: {up}, {state}; container {_brief(pool.adopted_nc or 'none')} at version {pool.version}, {has}"
    uses = cluster.oracle.of_machine(name)
    if uses:
        yield f"  in use: {', '.join(f'{use.address} by {pod}' for pod, use in uses.items())}"


def _config(config: Mapping[str, Any]) -> str:
    meta, spec = config["metadata"], config.get("spec", {})
    owner = ", ".join(_brief(each["uid"]) for each in meta.get("ownerReferences", ())) or "nobody"
    dying = ", being deleted" if "deletionTimestamp" in meta else ""
    asks = f"{spec.get('requestedIPCount', 0)} wanted, {len(spec.get('ipsNotInUse', ()))} named"
    shown = [
        f"container {_brief(each['id'])} at version {each['version']} with {len(each.get('ipAssignments', ()))} grants"
        for each in config.get("status", {}).get("networkContainers", ())
    ]
    told = meta.get("annotations", {}).get(AGENT_ANNOTATION, "nothing")
    return f"of UID {owner}{dying}; {asks}; {', '.join(shown) or 'no container'}; its agent told {told}"


def _up(up: bool) -> str:  # noqa: FBT001  the one thing that it is about
    return "up" if up else "down"


def _brief(uuid: str) -> str:
    return uuid[:8]
