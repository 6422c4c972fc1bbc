"""What a cluster is and which kinds it serves."""

import asyncio
import random
from collections.abc import Callable

from podpool.api.builtin import NAMESPACES
from podpool.api.meta import Kind, T
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import Backoff
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

BACKOFF_BASE, BACKOFF_MAX = 0.2, 30.0
KIND_POLL_INTERVAL = 10.0
"""Seconds between two requests for a kind that the API server does not serve."""

log = get_logger(__name__)


async def cluster_uid(client: KubeClient, *, rng: random.Random) -> str:
    """Return the cluster's ID: the UID of its kube-system namespace. Waits while the API server is unreachable."""
    backoff = Backoff(rng=rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
    while True:
        try:
            return (await client.get(NAMESPACES, "kube-system")).metadata.uid
        except PodpoolError as error:
            log.info("cannot read the cluster ID, retrying", error=error)
            await backoff.wait()


async def wait_until_served(
    client: KubeClient,
    kind: Kind[T],
    *,
    rng: random.Random,
    namespace: str | None = None,
    fields: str | None = None,
    interval: float = KIND_POLL_INTERVAL,
    missing: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the API server serves a kind; `missing` is called each time that it does not.

    `namespace` and `fields` narrow the list that is requested, to what the account may read.
    """
    backoff = Backoff(rng=rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
    while True:
        try:
            await client.list(kind, namespace=namespace, fields=fields, cached=True)
        except ApiNotFound:
            missing()
            await asyncio.sleep(interval)
        except (ApiError, Unreachable):
            await backoff.wait()
        else:
            return
