"""How many Pods of the node still need an address.

A Pod counts from when it is bound until its sandbox has an address; a Pod that is being deleted gets no sandbox any
more. A Pod that has given its address back has most likely ended, and counts again only when its next sandbox asks:
counted at once, every Pod that ends would for a moment count twice, as resting and as waiting.
"""

from collections.abc import Iterable, Mapping

from podpool.agent.records import Holding, Owner, PodName
from podpool.api.builtin import Pod


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
        known = {_key(pod) for pod in (*held, *waiting.values())} | self._had
        count, present = len(waiting), set[str]()
        for pod in pods:
            keys = pod.metadata.uid, pod.key
            if self._had:
                present.update(keys)
            if known.isdisjoint(keys) and pod.needs_address and not pod.metadata.deletion_timestamp:
                count += not (pod.mirrored and any(_name(each) == pod.key for each in held))
        self._had &= present
        return count


def _key(pod: PodName) -> str:
    return pod.uid or _name(pod)


def _name(pod: PodName) -> str:
    return f"{pod.namespace}/{pod.name}"
