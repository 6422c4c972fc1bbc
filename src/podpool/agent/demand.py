"""How many Pods of the node still need an address.

A Pod counts from when it is bound until its sandbox has an address; a Pod that is being deleted gets no sandbox any
more. A Pod that has given its address back has most likely ended, and counts again only when its next sandbox asks:
counted at once, every Pod that ends would for a moment count twice, as resting and as waiting.
"""

from collections.abc import Iterable, Mapping

from podpool.agent.records import Holding, Owner, PodName
from podpool.resources.builtin import Pod


class Demand:
    """Pods without an address."""

    def __init__(self) -> None:
        self._had: set[str] = set()

    def gave_back(self, pod: PodName) -> None:
        """Remember a Pod whose sandbox gave its address back."""
        self._had.add(_key(pod))

    def unserved(self, pods: Iterable[Pod], *, holdings: Iterable[Holding], waiting: Mapping[Owner, PodName]) -> int:
        """Count Pods that need an address and have none, and sandboxes that wait for one."""
        held = [each.pod for each in holdings]
        served = {_key(pod) for pod in held}
        by_name = {f"{pod.namespace}/{pod.name}" for pod in held}
        asking = {_key(pod) for pod in waiting.values()}
        count, present = 0, set()
        for pod in pods:
            keys = {pod.metadata.uid, pod.key}
            present |= keys
            if keys & asking:
                continue  # counted as waiting
            done = pod.metadata.deletion_timestamp or not pod.needs_address
            mirrored = pod.mirrored and pod.key in by_name
            count += not (done or mirrored or keys & served or keys & self._had)
        self._had &= present
        return count + len(waiting)


def _key(pod: PodName) -> str:
    return pod.uid or f"{pod.namespace}/{pod.name}"
