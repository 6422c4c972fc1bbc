"""Who a cluster is: the UID of kube-system, which lives as long as the cluster does."""

import asyncio
import logging
import random

from podpool.api.builtin import NAMESPACES
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient

BACKOFF_BASE, BACKOFF_MOST = 0.2, 30.0

_log = logging.getLogger(__name__)


async def cluster_uid(client: KubeClient, *, rng: random.Random) -> str:
    """Ask until it is told."""
    failures = 0
    while True:
        try:
            return (await client.get(NAMESPACES, "kube-system")).metadata.uid
        except PodpoolError as error:
            failures += 1
            _log.info("the cluster does not tell who it is: %s", error)
            await asyncio.sleep(backoff(failures, rng=rng, base=BACKOFF_BASE, most=BACKOFF_MOST))
