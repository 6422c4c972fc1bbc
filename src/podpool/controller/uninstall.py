"""Deletes podpool's objects from a cluster, after its nodes were cleaned up and its controllers have stopped.

Objects with a finalizer of podpool could otherwise not be deleted, nor could their CRDs. What others may use stays:
CRDs of other installations, and those of Whereabouts while an IPPool or reservation of a shared range is left, because
its Pods may run on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import Any

from podpool.api import azure, node_slices
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import CONFIG_MAPS, LEASES, NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.crds import CRDS, crd_manifests
from podpool.api.meta import ApiStruct, Kind, KubeObject
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.rbac import CONTROLLER, NAMESPACE
from podpool.api.whereabouts import (
    GROUP,
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    SEALED_ANNOTATION,
)
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiConflict, ApiNotFound

OWN_LABEL, OWN_NAME = "app.kubernetes.io/part-of", "podpool"
"""Of the CRDs that podpool's chart and manifests install."""
POLL_INTERVAL = 0.5


class DaemonSetStatus(ApiStruct, frozen=True, kw_only=True):
    """On how many nodes it is, and is ready."""

    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0


class DaemonSet(KubeObject, frozen=True, kw_only=True):
    """A DaemonSet."""

    status: DaemonSetStatus = DaemonSetStatus()

    @property
    def complete(self) -> bool:
        """Whether it is ready on every node."""
        status = self.status
        return (
            0 < self.metadata.generation <= status.observed_generation
            and status.number_ready >= status.desired_number_scheduled
        )


DAEMON_SETS = Kind(group="apps", version="v1", plural="daemonsets", kind="DaemonSet", type=DaemonSet)


class NodesNotCleaned(PodpoolError):
    """Not every node was cleaned up in time."""

    def __init__(self, name: str, found: DaemonSetStatus, *, timeout: float) -> None:
        super().__init__(
            f"{found.number_ready} of {found.desired_number_scheduled} nodes were cleaned up within {timeout:g} s: "
            f"see the Pods of the DaemonSet {NAMESPACE}/{name} that are not ready; delete Nodes whose machines are "
            "gone, and repeat"
        )


async def wait_for_nodes(client: KubeClient, name: str, *, within: float) -> int:
    """Wait until the DaemonSet that cleans up has done so on every node; return on how many."""
    found = DaemonSet()
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while True:
                found = await client.get(DAEMON_SETS, name, namespace=NAMESPACE)
                if found.complete:
                    return found.status.desired_number_scheduled
                await asyncio.sleep(POLL_INTERVAL)
    raise NodesNotCleaned(name, found.status, timeout=within)


async def delete_objects(client: KubeClient, *, whereabouts_namespace: str) -> AsyncIterator[str]:
    """Delete everything that podpool has written; yield what was deleted, and what stays because others may use it."""
    for kind, finalizer in ((NODE_NETWORK_CONFIGS, azure.FINALIZER), (NODE_SLICES, node_slices.FINALIZER)):
        namespace = NAMESPACE if kind.namespaced else None
        count = 0
        for each in await _listed(client, kind, namespace=namespace):
            if finalizer in each.metadata.finalizers:
                await _delete_finalized(client, kind, each, finalizer=finalizer)
                count += 1
        yield f"{count} {kind.kind}"
    yield f"{await _delete_pools(client, whereabouts_namespace)} IPPools and NodeSlicePools"
    yield f"{await _delete_leases(client, whereabouts_namespace)} Leases"
    await _ignoring_absence(client.delete(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=whereabouts_namespace))
    yield f"taint and condition of {await _restore_nodes(client)} Nodes"
    async for text in _delete_crds(client):
        yield text


async def _delete_finalized(client: KubeClient, kind: Kind[Any], obj: Any, *, finalizer: str) -> None:  # noqa: ANN401  an object of the kind
    """Remove our finalizer, whatever else changes, and delete the object."""
    name, namespace = obj.metadata.name, obj.metadata.namespace or None
    while True:
        found = await client.find(kind, name, namespace=namespace)
        if found is None:
            return
        others = [each for each in found.metadata.finalizers if each != finalizer]
        patch = {"metadata": {"finalizers": others}}
        try:
            version = found.metadata.resource_version
            await client.merge_patch(kind, name, patch, namespace=namespace, precondition=version)
        except ApiConflict:
            continue
        except ApiNotFound:
            return
        await _ignoring_absence(client.delete(kind, name, namespace=namespace))
        return


async def _delete_pools(client: KubeClient, namespace: str) -> int:
    """Delete the IPPools of slices, those that only seal a range, and the NodeSlicePools."""
    pools = await _listed(client, IP_POOLS, namespace=namespace)
    ours = [
        each
        for each in pools
        if NODE_UID_LABEL in each.metadata.labels
        or (SEALED_ANNOTATION in each.metadata.annotations and not each.spec.allocations)
    ]
    tables = await _listed(client, NODE_SLICE_POOLS, namespace=namespace)
    found: tuple[tuple[Kind[Any], Sequence[Any]], ...] = ((IP_POOLS, ours), (NODE_SLICE_POOLS, tables))
    for kind, objects in found:
        for each in objects:
            await _ignoring_absence(client.delete(kind, each.metadata.name, namespace=namespace))
    return len(ours) + len(tables)


async def _delete_leases(client: KubeClient, namespace: str) -> int:
    slices = [each.metadata.name for each in await _listed(client, LEASES, namespace=namespace, labels=NODE_UID_LABEL)]
    for name, inside in (*((each, namespace) for each in slices), (CONTROLLER, NAMESPACE)):
        await _ignoring_absence(client.delete(LEASES, name, namespace=inside))
    return len(slices) + 1


async def _restore_nodes(client: KubeClient) -> int:
    """Remove the taint and the condition of nodes that were short of addresses."""
    changed = 0
    for each in await _listed(client, NODES):
        node = await client.get_raw(NODES, each.metadata.name)
        for fields, of, subresource in (("taints", "spec", None), ("conditions", "status", "status")):
            key, value = ("key", SHORT_TAINT) if of == "spec" else ("type", SHORT_CONDITION)
            for index, entry in enumerate(node.get(of, {}).get(fields) or ()):
                if entry[key] == value:
                    path = f"/{of}/{fields}/{index}"
                    test = {"op": "test", "path": f"{path}/{key}", "value": value}
                    remove = {"op": "remove", "path": path}
                    await client.json_patch(NODES, each.metadata.name, [test, remove], subresource=subresource)
                    changed += 1
    return changed


async def _delete_crds(client: KubeClient) -> AsyncIterator[str]:
    used = [kind.kind for kind in (IP_POOLS, IP_RESERVATIONS) if await _listed(client, kind)]  # in any namespace
    for manifest in crd_manifests():
        name, group = manifest["metadata"]["name"], manifest["spec"]["group"]
        found = await client.find(CRDS, name)
        if found is None:
            continue
        if found.metadata.labels.get(OWN_LABEL) != OWN_NAME:
            yield f"kept: CRD {name}, which podpool did not install"
        elif group == GROUP and used:
            yield f"kept: CRD {name}, because {' and '.join(used)} objects of shared ranges are left"
        else:
            await _ignoring_absence(client.delete(CRDS, name))
            yield f"CRD {name}"


async def _listed(
    client: KubeClient, kind: Kind[Any], *, namespace: str | None = None, labels: str | None = None
) -> Sequence[Any]:
    """Return all objects; none if there is no such kind."""
    try:
        return (await client.list(kind, namespace=namespace, labels=labels)).items
    except ApiNotFound:
        return ()


async def _ignoring_absence(deletion: Awaitable[None]) -> None:
    with suppress(ApiNotFound):
        await deletion
