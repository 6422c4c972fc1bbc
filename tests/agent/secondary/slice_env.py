"""A node with secondary networks; tests act as the slice controller."""

import asyncio
import json
from typing import Any

from podpool.agent.secondary.router import AddressRequest
from podpool.api.builtin import LEASES, NODES, Lease
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    CONFIRMED_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    Allocation,
    IPPool,
)
from podpool.cni.protocol import PluginRequest, PluginResponse, decode_response, encode_request
from podpool.core.ranges import parse_prefix
from podpool.kube.errors import ApiNotFound
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.cni_json import NetworkConfig
from podpool.whereabouts.config import parse_ipam_config
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier
from tests.agent.node_env import NODE, SYSTEM, NodeEnv

V4, V6 = "10.1.0.0/16", "fd00::/64"
SLICE, SLICE6 = "10.1.4.0/28", "fd00::400/124"
IPAM: dict[str, Any] = {"type": "whereabouts", "range": V4, "node_slice_size": "/28"}
DUAL: dict[str, Any] = {"type": "podpool", "ipRanges": [{"range": V4}, {"range": V6}], "node_slice_size": "/28"}


def enable_slices(env: NodeEnv, *, confirming: bool = True) -> NodeEnv:
    """Let the next agents serve secondary networks; acknowledgements are confirmed at once."""
    env.options["whereabouts_namespace"] = SYSTEM
    if confirming:
        env.store.on_write.append(lambda event: _confirm(env.store, event))
    return env


def _confirm(store: ObjectStore, event: StoreEvent) -> None:
    """Confirm the acknowledgement of a Lease as the controller does."""
    acknowledgement = event.new["metadata"].get("annotations", {}).get(ACKNOWLEDGED_ANNOTATION)

    def confirmed(lease: Any) -> Any:  # noqa: ANN401  JSON
        annotations = {**lease["metadata"].get("annotations", {}), CONFIRMED_ANNOTATION: acknowledgement}
        return {**lease, "metadata": {**lease["metadata"], "annotations": annotations}}

    def confirm() -> None:
        if event.key in store.objects(LEASES.group, LEASES.plural):
            store.update(store.registry.find(LEASES.group, LEASES.version, LEASES.plural), event.key, confirmed)

    if acknowledgement and event.id == (LEASES.group, LEASES.plural) and not event.deleted:
        asyncio.get_running_loop().call_soon(confirm)


async def assign_slice(
    env: NodeEnv,
    slice_: str = SLICE,
    *,
    range_: str = V4,
    network: str = "",
    entries: dict[str, Allocation] | None = None,
) -> str:
    """Assign a slice as the controller does: an IPPool, then a Lease without a holder. Returns their name."""
    name = PoolIdentifier(range=parse_prefix(slice_), network=network, node=NODE).name
    uid = (await env.kube.get(NODES, NODE)).metadata.uid
    annotations = {NODE_ANNOTATION: NODE, NETWORK_ANNOTATION: network, RANGE_ANNOTATION: range_}
    meta = {"name": name, "namespace": SYSTEM, "labels": {NODE_UID_LABEL: uid}, "annotations": annotations}
    allocations = {
        key: {"id": each.id, "podref": each.podref, "ifname": each.ifname} for key, each in (entries or {}).items()
    }
    await env.kube.create(IP_POOLS, {"metadata": meta, "spec": {"range": slice_, "allocations": allocations}})
    await env.kube.create(LEASES, {"metadata": meta, "spec": {}})
    return name


async def start_with_slice(env: NodeEnv, *, network: str = "") -> str:
    """Start the agent with a slice of a network; return the name of its IPPool."""
    name = await assign_slice(enable_slices(env), network=network)
    await env.start()
    return name


async def pool_of(env: NodeEnv, name: str) -> IPPool:
    return await env.kube.get(IP_POOLS, name, namespace=SYSTEM)


async def pool_entries(env: NodeEnv, name: str) -> dict[str, str]:
    """Return the container IDs of an IPPool by key."""
    return {key: each.id for key, each in (await pool_of(env, name)).spec.allocations.items()}


async def lease_of(env: NodeEnv, name: str) -> Lease | None:
    try:
        return await env.kube.get(LEASES, name, namespace=SYSTEM)
    except ApiNotFound:
        return None


async def request_return(env: NodeEnv, name: str, reason: str = "the range changed") -> None:
    await env.kube.merge_patch(
        IP_POOLS, name, {"metadata": {"annotations": {RETURN_ANNOTATION: reason}}}, namespace=SYSTEM
    )


async def change_range(env: NodeEnv, name: str, range_: str, reason: str | None = None) -> None:
    """Set another range of a slice as the controller does, and optionally request its return."""
    change = {"metadata": {"annotations": {RANGE_ANNOTATION: range_, RETURN_ANNOTATION: reason}}}
    await env.kube.merge_patch(IP_POOLS, name, change, namespace=SYSTEM)


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
