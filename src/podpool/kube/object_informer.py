"""Informer for one object. That the object, or its kind, does not exist counts as known."""

import asyncio
import random
from collections.abc import Callable
from typing import Generic

from podpool.api.meta import Kind, T
from podpool.kube.client import KubeClient
from podpool.kube.discovery import wait_until_served
from podpool.kube.informer import RELIST_INTERVAL, Informer


class ObjectInformer(Generic[T]):
    """Watches one object by name; `on_change` is called after each change of what is known."""

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
            on_restored=lambda _before, _now: on_change(),
        )
        self._kind_missing = False
        self._informer.cache.subscribe(lambda _old, _new: on_change())

    @property
    def last_contact(self) -> float | None:
        """Loop time of the last message of the API server."""
        return self._informer.last_contact

    @property
    def synced(self) -> bool:
        """Whether it is known if the object exists."""
        return self._kind_missing or self._informer.cache.synced.is_set()

    @property
    def object(self) -> T | None:
        """The object; None if it does not exist or is not known yet."""
        return self._informer.cache.get(self._key)

    async def run(self) -> None:
        """Watch until cancelled."""
        await wait_until_served(
            self._kube,
            self._kind,
            rng=self._rng,
            namespace=self._namespace,
            fields=self._fields,
            missing=self._missing,
        )
        self._kind_missing = False
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            await self._informer.cache.synced.wait()
            self._on_change()  # an empty list reaches no subscriber

    def _missing(self) -> None:
        self._kind_missing = True
        self._on_change()
