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
INSTALL_COMMAND = "podpool controller install-crds"
INSTALLED_GROUPS = frozenset({"acn.azure.com", "whereabouts.cni.cncf.io"})
"""API groups of the CustomResourceDefinitions that this command installs."""

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


def not_served_reason(kind: Kind[T]) -> str:
    """Return that the API server does not serve a kind, and what to do."""
    action = f"run `{INSTALL_COMMAND}`" if kind.group in INSTALLED_GROUPS else "install its CustomResourceDefinition"
    return f"the API server does not serve {kind.plural}.{kind.group or 'core'}: {action}"


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
    logged = ""
    while True:
        try:
            await client.list(kind, namespace=namespace, fields=fields, cached=True)
        except (ApiError, Unreachable) as error:
            served = not isinstance(error, ApiNotFound)
            reason = str(error) if served else not_served_reason(kind)
            if reason != logged:
                log.warning("cannot list this kind, retrying", kind=kind.plural, reason=reason)
            logged = reason
            if served:
                await backoff.wait()
            else:
                missing()
                await asyncio.sleep(interval)
        else:
            return
