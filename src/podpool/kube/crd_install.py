"""Custom kinds, brought to a cluster and waited for.

A kind may be there already, brought by the project that it comes from: what that has beyond ours is left in place.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from podpool.api.crds import CRDS
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiConflict

PAUSE = 0.1
"""Seconds between two looks whether a kind is served; it takes about one."""


async def install_crds(client: KubeClient, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Define kinds, or bring their definitions up to date, and wait until they are in force."""
    names = [await _define(client, each) for each in manifests]
    for name in names:
        await _established(client, name)


async def _define(client: KubeClient, manifest: Mapping[str, Any]) -> str:
    name: str = manifest["metadata"]["name"]
    try:
        await client.create(CRDS, manifest)
    except ApiAlreadyExists:
        while not await _updated(client, name, manifest):
            continue
    return name


async def _updated(client: KubeClient, name: str, manifest: Mapping[str, Any]) -> bool:
    """Bring a definition up to date, unless the server itself, which keeps its status, came in between."""
    there = await client.read(CRDS, name)
    try:
        await client.replace(CRDS, {**there, "spec": merged_spec(there["spec"], manifest["spec"])})
    except ApiConflict:
        return False
    return True


def merged_spec(there: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a definition up to date: versions that are not ours stay, and objects are stored in the one they were."""
    (version,) = ours["versions"]
    others = [each for each in there["versions"] if each["name"] != version["name"]]
    stored = not any(each["storage"] for each in others)
    return {**there, **ours, "versions": [*others, {**version, "storage": stored}]}


async def _established(client: KubeClient, name: str) -> None:
    while True:
        if (await client.get(CRDS, name)).established:
            return
        await asyncio.sleep(PAUSE)
