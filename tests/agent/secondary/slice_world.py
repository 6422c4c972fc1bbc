"""One node's env with secondary networks: what the slice controller does, by hand."""

import asyncio
import json
from typing import Any

from podpool.api.builtin import LEASES, NODES, Lease
from podpool.api.whereabouts import (
    GRANTED_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SIGNATURE_ANNOTATION,
    Allocation,
    IPPool,
)
from podpool.cni.protocol import PluginRequest, PluginResponse, decode_response, encode_request
from podpool.core.ranges import parse_prefix
from podpool.kube.errors import ApiNotFound
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier
from tests.agent.node_env import NODE, SYSTEM, NodeEnv

V4, V6 = "10.1.0.0/16", "fd00::/64"
SLICE, SLICE6 = "10.1.4.0/28", "fd00::400/124"
IPAM: dict[str, Any] = {"type": "whereabouts", "range": V4, "node_slice_size": "/28"}
DUAL: dict[str, Any] = {"type": "podpool", "ipRanges": [{"range": V4}, {"range": V6}], "node_slice_size": "/28"}


def with_slices(env: NodeEnv, *, agreeing: bool = True) -> NodeEnv:
    """Tell the next agents to serve secondary networks; whoever signs a Lease is agreed to at once."""
    env.options["pools"] = SYSTEM
    if agreeing:
        env.store.on_write.append(lambda event: _agree(env.store, event))
    return env


def _agree(store: ObjectStore, event: StoreEvent) -> None:
    """Agree to the signature of a Lease as the controller does."""
    signature = event.new["metadata"].get("annotations", {}).get(SIGNATURE_ANNOTATION)

    def agreed(lease: Any) -> Any:  # noqa: ANN401  JSON
        notes = {**lease["metadata"].get("annotations", {}), GRANTED_ANNOTATION: signature}
        return {**lease, "metadata": {**lease["metadata"], "annotations": notes}}

    def agree() -> None:
        if event.key in store.objects(LEASES.group, LEASES.plural):
            store.update(store.registry.find(LEASES.group, LEASES.version, LEASES.plural), event.key, agreed)

    if signature and event.id == (LEASES.group, LEASES.plural) and not event.deleted:
        asyncio.get_running_loop().call_soon(agree)


async def offer(
    env: NodeEnv,
    slice_: str = SLICE,
    *,
    range_: str = V4,
    network: str = "",
    entries: dict[str, Allocation] | None = None,
) -> str:
    """Offer a slice as the controller does: an IPPool, then a Lease without a holder. Gives their name."""
    name = PoolIdentifier(range=parse_prefix(slice_), network=network, node=NODE).name
    uid = (await env.kube.get(NODES, NODE)).metadata.uid
    notes = {NODE_ANNOTATION: NODE, NETWORK_ANNOTATION: network, RANGE_ANNOTATION: range_}
    meta = {"name": name, "namespace": SYSTEM, "labels": {NODE_UID_LABEL: uid}, "annotations": notes}
    allocations = {
        key: {"id": each.id, "podref": each.podref, "ifname": each.ifname} for key, each in (entries or {}).items()
    }
    await env.kube.create(IP_POOLS, {"metadata": meta, "spec": {"range": slice_, "allocations": allocations}})
    await env.kube.create(LEASES, {"metadata": meta, "spec": {}})
    return name


async def pool_of(env: NodeEnv, name: str) -> IPPool:
    return await env.kube.get(IP_POOLS, name, namespace=SYSTEM)


async def shown(env: NodeEnv, name: str) -> dict[str, str]:
    """Who has what in an IPPool: containers by key."""
    return {key: each.id for key, each in (await pool_of(env, name)).spec.allocations.items()}


async def lease_of(env: NodeEnv, name: str) -> Lease | None:
    try:
        return await env.kube.get(LEASES, name, namespace=SYSTEM)
    except ApiNotFound:
        return None


async def ask_to_leave(env: NodeEnv, name: str, reason: str = "the range changed") -> None:
    await env.kube.merge_patch(IP_POOLS, name, {"metadata": {"annotations": {RETURN_ANNOTATION: reason}}}, namespace=SYSTEM)


async def ranged(env: NodeEnv, name: str, range_: str, reason: str | None = None) -> None:
    """Let a slice be of another range, as the controller does, and perhaps ask it back."""
    change = {"metadata": {"annotations": {RANGE_ANNOTATION: range_, RETURN_ANNOTATION: reason}}}
    await env.kube.merge_patch(IP_POOLS, name, change, namespace=SYSTEM)


async def call(
    env: NodeEnv,
    command: str,
    container: str,
    ipam: dict[str, Any] | None = None,
    *,
    ifname: str = "net1",
    version: str = "1.0.0",
    network: str = "net",
    **config: Any,  # noqa: ANN401  JSON
) -> PluginResponse:
    """Ask as the plugin does."""
    assert env.agent
    stdin = {"cniVersion": version, "name": network, "type": "macvlan", "ipam": ipam or IPAM, **config}
    request = PluginRequest(
        command=command,
        container_id=container,
        ifname=ifname,
        netns="/run/netns/x",
        args=f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-{container};K8S_POD_INFRA_CONTAINER_ID=x",
        stdin=json.dumps(stdin).encode(),
    )
    return decode_response(await env.agent.handle(encode_request(request)))


async def add(env: NodeEnv, container: str, ipam: dict[str, Any] | None = None, **options: Any) -> list[str]:  # noqa: ANN401  JSON
    """ADD that must succeed; gives the addresses."""
    answer = await call(env, "ADD", container, ipam, **options)
    assert 0 == answer.exit_code, answer.stdout
    return [each["address"] for each in json.loads(answer.stdout)["ips"]]


async def refused(
    env: NodeEnv,
    command: str,
    container: str,
    ipam: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401  JSON
) -> dict[str, Any]:
    """Ask what must fail; gives the error."""
    answer = await call(env, command, container, ipam, **options)
    assert 1 == answer.exit_code, answer.stdout
    error: dict[str, Any] = json.loads(answer.stdout)
    return error
