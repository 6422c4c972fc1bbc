"""Installation of CustomResourceDefinitions.

A CRD may exist already, installed by its own project: its other versions and fields are kept.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from podpool.api.crds import CRDS
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiConflict

POLL_INTERVAL = 0.1
"""Seconds between two reads of a CRD until it is established, which takes about a second."""


async def install_crds(client: KubeClient, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Create or update CRDs and wait until they are established."""
    names = [await _create_or_update(client, each) for each in manifests]
    for name in names:
        await _wait_established(client, name)


async def _create_or_update(client: KubeClient, manifest: Mapping[str, Any]) -> str:
    name: str = manifest["metadata"]["name"]
    try:
        await client.create(CRDS, manifest)
    except ApiAlreadyExists:
        while not await _updated(client, name, manifest):
            continue
    return name


async def _updated(client: KubeClient, name: str, manifest: Mapping[str, Any]) -> bool:
    """Update a CRD; return False if the server wrote its status meanwhile."""
    existing = await client.get_raw(CRDS, name)
    try:
        await client.replace(CRDS, {**existing, "spec": merged_spec(existing["spec"], manifest["spec"])})
    except ApiConflict:
        return False
    return True


def merged_spec(existing: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return a CRD spec with our version: other versions stay, and the storage version does not change."""
    (version,) = ours["versions"]
    others = [each for each in existing["versions"] if each["name"] != version["name"]]
    stored = not any(each["storage"] for each in others)
    return {**existing, **ours, "versions": [*others, {**version, "storage": stored}]}


async def _wait_established(client: KubeClient, name: str) -> None:
    while True:
        if (await client.get(CRDS, name)).established:
            return
        await asyncio.sleep(POLL_INTERVAL)
