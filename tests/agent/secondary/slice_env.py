"""A node with secondary networks; tests act as the slice controller."""

import asyncio
import itertools
import json
from typing import Any

import msgspec

from podpool.agent.secondary.router import AddressRequest
from podpool.api.builtin import CONFIG_MAPS, LEASES, NODES, Lease
from podpool.api.node_slices import (
    INVENTORY_CONFIG_MAP,
    NODE_SLICES,
    Assignment,
    NodeSlices,
    NodeSlicesSpec,
    SliceStatus,
)
from podpool.api.whereabouts import IP_POOLS, Allocation, IPPool
from podpool.cni.protocol import PluginRequest, PluginResponse, decode_response, encode_request
from podpool.core.ranges import parse_prefix
from podpool.kube.errors import ApiNotFound
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.cni_json import NetworkConfig
from podpool.whereabouts.config import parse_ipam_config
from podpool.whereabouts.object_names import PoolIdentifier
from tests.agent.node_env import NODE, SYSTEM, NodeEnv

V4, V6 = "10.1.0.0/16", "fd00::/64"
SLICE, SLICE6 = "10.1.4.0/28", "fd00::400/124"
IPAM: dict[str, Any] = {"type": "whereabouts", "range": V4, "node_slice_size": "/28"}
_numbers = itertools.count(1)
DUAL: dict[str, Any] = {"type": "podpool", "ipRanges": [{"range": V4}, {"range": V6}], "node_slice_size": "/28"}


def enable_slices(env: NodeEnv, *, confirming: bool = True) -> NodeEnv:
    """Let the next agents serve secondary networks; acknowledgements are confirmed at once."""
    env.options["whereabouts_namespace"] = SYSTEM
    if confirming:
        env.store.on_write.append(lambda event: _confirm(env.store, event))
    return env


def _confirm(store: ObjectStore, event: StoreEvent) -> None:
    """Confirm acknowledgements as the controller does."""
    status = event.new.get("status", {}).get("slices", [])
    acknowledged = {each["id"]: each["acknowledgement"] for each in status if each.get("acknowledgement")}

    def confirmed(found: Any) -> Any:  # noqa: ANN401  JSON
        assignments = found["spec"].get("assignments", [])
        return {
            **found,
            "spec": {
                **found["spec"],
                "assignments": [
                    {**each, "confirmed": acknowledged[each["id"]]} if each["id"] in acknowledged else each
                    for each in assignments
                ],
            },
        }

    def confirm() -> None:
        found = store.objects(NODE_SLICES.group, NODE_SLICES.plural).get(event.key)
        if found and confirmed(found) != found:
            kind = store.registry.find(NODE_SLICES.group, NODE_SLICES.version, NODE_SLICES.plural)
            store.update(kind, event.key, confirmed)

    if acknowledged and event.id == (NODE_SLICES.group, NODE_SLICES.plural) and not event.deleted:
        asyncio.get_running_loop().call_soon(confirm)


async def node_slices(env: NodeEnv) -> NodeSlices:
    """Return NodeSlices; an empty one if it does not exist."""
    try:
        return await env.kube.get(NODE_SLICES, NODE)
    except ApiNotFound:
        return NodeSlices()


async def write_spec(env: NodeEnv, spec: NodeSlicesSpec) -> None:
    """Write the spec as the controller does."""
    body = {"former": [], "assignments": [], **msgspec.to_builtins(spec)}
    if (await node_slices(env)).metadata.name:
        await env.kube.merge_patch(NODE_SLICES, NODE, {"spec": body})
    else:
        await env.kube.create(NODE_SLICES, {"metadata": {"name": NODE}, "spec": body})


async def own_node(env: NodeEnv) -> None:
    """Set the UID of the Node as the controller does."""
    uid, spec = (await env.kube.get(NODES, NODE)).metadata.uid, (await node_slices(env)).spec
    await write_spec(env, msgspec.structs.replace(spec, node_uid=uid))


def pool_name(slice_: str = SLICE, network: str = "") -> str:
    """Return the name of a slice's IPPool and Lease."""
    return PoolIdentifier(range=parse_prefix(slice_), network=network, node=NODE).name


async def assign_slice(
    env: NodeEnv,
    slice_: str = SLICE,
    *,
    range_: str = V4,
    network: str = "",
    entries: dict[str, Allocation] | None = None,
    id_: str = "",
    **fields: str,
) -> str:
    """Assign a slice as the controller does. Returns the name of its IPPool, which is created only for its entries."""
    name, number = pool_name(slice_, network), next(_numbers)
    if entries:
        allocations = {key: msgspec.to_builtins(each) for key, each in entries.items()}
        meta = {"name": name, "namespace": SYSTEM}
        await env.kube.create(IP_POOLS, {"metadata": meta, "spec": {"range": slice_, "allocations": allocations}})
    id_ = id_ or f"assignment-{number}"
    assignment = Assignment(id=id_, network=network, range=range_, slice=slice_, **fields)
    spec, uid = (await node_slices(env)).spec, (await env.kube.get(NODES, NODE)).metadata.uid
    assignments = (*spec.assignments, assignment)
    await write_spec(env, msgspec.structs.replace(spec, node_uid=spec.node_uid or uid, assignments=assignments))
    return name


async def start_with_slice(env: NodeEnv, *, network: str = "") -> str:
    """Start the agent with a slice of a network; return the name of its IPPool."""
    name = await assign_slice(enable_slices(env), network=network)
    await env.start()
    return name


async def pool_of(env: NodeEnv, name: str) -> IPPool | None:
    try:
        return await env.kube.get(IP_POOLS, name, namespace=SYSTEM)
    except ApiNotFound:
        return None


async def pool_entries(env: NodeEnv, name: str) -> dict[str, str]:
    """Return the container IDs of an IPPool by key; nothing if there is none."""
    pool = await pool_of(env, name)
    return {key: each.id for key, each in pool.spec.allocations.items()} if pool else {}


async def lease_of(env: NodeEnv, name: str) -> Lease | None:
    try:
        return await env.kube.get(LEASES, name, namespace=SYSTEM)
    except ApiNotFound:
        return None


async def reported(env: NodeEnv, name: str) -> SliceStatus | None:
    """Return the last entry of the status for the slice with this IPPool."""
    slices = (await node_slices(env)).status.slices
    return next((each for each in reversed(slices) if name == pool_name(each.slice, each.network)), None)


async def is_held(env: NodeEnv, name: str) -> bool:
    entry = await reported(env, name)
    return entry is not None and entry.held and not entry.returned


async def is_returned(env: NodeEnv, name: str) -> bool:
    entry = await reported(env, name)
    return entry is not None and entry.returned


async def change_assignment(env: NodeEnv, name: str, **fields: str) -> None:
    """Change the last assignment of the slice with this IPPool."""
    spec = (await node_slices(env)).spec
    last = [each for each in spec.assignments if name == pool_name(each.slice, each.network)][-1]
    changed = (msgspec.structs.replace(last, **fields) if each is last else each for each in spec.assignments)
    await write_spec(env, msgspec.structs.replace(spec, assignments=tuple(changed)))


async def request_return(env: NodeEnv, name: str, reason: str = "the range changed") -> None:
    await change_assignment(env, name, return_reason=reason)


async def change_range(env: NodeEnv, name: str, range_: str, reason: str = "") -> None:
    """Set another range of a slice as the controller does, and optionally request its return."""
    await change_assignment(env, name, range=range_, return_reason=reason)


async def withdraw(env: NodeEnv, name: str) -> None:
    """Remove the assignments of the slice with this IPPool, as a restored API server does."""
    spec = (await node_slices(env)).spec
    kept = tuple(each for each in spec.assignments if name != pool_name(each.slice, each.network))
    await write_spec(env, msgspec.structs.replace(spec, assignments=kept))


async def request_inventory(env: NodeEnv, request: str, *, scope: str = "ready") -> None:
    """Request an inventory as the controller does."""
    data = {"request": request, "scope": scope}
    try:
        await env.kube.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, {"data": data}, namespace=SYSTEM)
    except ApiNotFound:
        meta = {"name": INVENTORY_CONFIG_MAP, "namespace": SYSTEM}
        await env.kube.create(CONFIG_MAPS, {"metadata": meta, "data": data}, namespace=SYSTEM)


async def call(
    env: NodeEnv,
    command: str,
    container_id: str,
    ipam: dict[str, Any] | None = None,
    *,
    ifname: str = "net1",
    version: str = "1.0.0",
    network: str = "net",
    **config: Any,  # noqa: ANN401  JSON
) -> PluginResponse:
    """Send a request as the plugin does."""
    assert env.agent
    stdin = {"cniVersion": version, "name": network, "type": "macvlan", "ipam": ipam or IPAM, **config}
    request = PluginRequest(
        command=command,
        container_id=container_id,
        ifname=ifname,
        netns="/run/netns/x",
        args=f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-{container_id};K8S_POD_INFRA_CONTAINER_ID=x",
        stdin=json.dumps(stdin).encode(),
    )
    return decode_response(await env.agent.handle(encode_request(request)))


async def add(env: NodeEnv, container_id: str, ipam: dict[str, Any] | None = None, **options: Any) -> list[str]:  # noqa: ANN401  JSON
    """Return the addresses of an ADD that must succeed."""
    response = await call(env, "ADD", container_id, ipam, **options)
    assert 0 == response.exit_code, response.stdout
    return [each["address"] for each in json.loads(response.stdout)["ips"]]


async def failed(
    env: NodeEnv,
    command: str,
    container_id: str,
    ipam: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401  JSON
) -> dict[str, Any]:
    """Return the error of a request that must fail."""
    response = await call(env, command, container_id, ipam, **options)
    assert 1 == response.exit_code, response.stdout
    error: dict[str, Any] = json.loads(response.stdout)
    return error


def address_request(
    container_id: str,
    *ranges: str,
    ifname: str = "net1",
    name: str = "net",
    **ipam: Any,  # noqa: ANN401  JSON
) -> AddressRequest:
    """Return a request for an address of each range, with slices of 16 addresses unless `ipam` sets another size."""
    section = {"type": "podpool", "ipRanges": [{"range": each} for each in ranges], "node_slice_size": "28", **ipam}
    config = parse_ipam_config(NetworkConfig(name=name, ipam=section))
    owner = PodInterface(podref=f"default/pod-of-{container_id}", container_id=container_id, ifname=ifname)
    return AddressRequest(config=config, owner=owner, deadline=1e9)
