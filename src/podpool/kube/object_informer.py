"""One object of the API server, as a watch last saw it: that it does not exist is knowledge too."""

import asyncio
import random
from collections.abc import Callable
from typing import Generic

from podpool.api.meta import Kind, T
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.kube.informer import RELIST_INTERVAL, Informer
from podpool.runtime.transport import Unreachable

KIND_POLL_INTERVAL = 10.0
"""Seconds between two looks whether a kind that the API server does not know has come."""


class ObjectInformer(Generic[T]):
    """Follows one object; `changed` is called whenever there is something new to see."""

    def __init__(
        self,
        kube: KubeClient,
        kind: Kind[T],
        name: str,
        *,
        rng: random.Random,
        namespace: str | None = None,
        relist_interval: float = RELIST_INTERVAL,
        on_change: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._rng = rng
        self._namespace = namespace
        self._on_change = on_change
        self._fields = f"metadata.name={name}"
        self._key = f"{namespace}/{name}" if namespace else name
        self._informer = Informer(
            kube,
            kind,
            rng=rng,
            namespace=namespace,
            fields=self._fields,
            relist_interval=relist_interval,
            on_restored=lambda _was, _is: on_change(),
        )
        self._kind_missing = False
        self._informer.cache.subscribe(lambda _old, _new: on_change())

    @property
    def last_contact(self) -> float | None:
        """When the server last told anything, by the loop's time."""
        return self._informer.last_contact

    @property
    def synced(self) -> bool:
        """Tell whether it is known what there is."""
        return self._kind_missing or self._informer.cache.synced.is_set()

    @property
    def object(self) -> T | None:
        """The object; None when there is none, as far as is known."""
        return self._informer.cache.get(self._key)

    async def run(self) -> None:
        """Follow it for ever."""
        await self._kind_is_there()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            await self._informer.cache.synced.wait()
            self._on_change()  # an empty list tells no subscriber

    async def _kind_is_there(self) -> None:
        """Wait until the API server knows the kind; that it does not is an answer."""
        failures = 0
        while True:
            try:
                await self._kube.list(self._kind, namespace=self._namespace, fields=self._fields, cached=True)
            except ApiNotFound:
                self._kind_missing = True
                self._on_change()
                await asyncio.sleep(KIND_POLL_INTERVAL)
            except (ApiError, Unreachable):
                failures += 1
                await asyncio.sleep(backoff(failures, rng=self._rng, base=0.2, most=30.0))
            else:
                self._kind_missing = False
                return
