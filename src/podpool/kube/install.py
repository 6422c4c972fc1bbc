"""Custom kinds, brought to a cluster and waited for."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from podpool.kube.client import KubeClient
from podpool.kube.errors import AlreadyExists
from podpool.resources.crds import DEFINITIONS

PAUSE = 0.1
"""Seconds between two looks whether a kind is served; it takes about one."""


async def install(client: KubeClient, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Define kinds, or bring their definitions up to date, and wait until they are in force."""
    names = [await _define(client, each) for each in manifests]
    for name in names:
        await _established(client, name)


async def _define(client: KubeClient, manifest: Mapping[str, Any]) -> str:
    name: str = manifest["metadata"]["name"]
    try:
        await client.create(DEFINITIONS, manifest)
    except AlreadyExists:
        await client.merge(DEFINITIONS, name, {"spec": manifest["spec"]})
    return name


async def _established(client: KubeClient, name: str) -> None:
    while True:
        if (await client.get(DEFINITIONS, name)).established:
            return
        await asyncio.sleep(PAUSE)
