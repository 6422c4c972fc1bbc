"""The agent's informers: Pods, Node and NNC of its node, and the objects of its subnet."""

import asyncio
import math
from collections.abc import Callable

from podpool.agent.deps import NAMESPACE, AgentDeps
from podpool.agent.subnet_informer import SubnetInformer
from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS, Pod
from podpool.kube.informer import Informer
from podpool.kube.object_informer import ObjectInformer


class AgentInformers:
    """Informers that the API server filters by node or name, so that their cost does not grow with the cluster."""

    def __init__(self, deps: AgentDeps, *, on_node: Callable[[], None], on_nnc: Callable[[], None]) -> None:
        kube, rng, node, relist = deps.kube, deps.rng, deps.node, deps.settings.relist_interval
        self._changes = deps.changes
        self.subnet = SubnetInformer(deps)
        self.pods: Informer[Pod] = Informer(kube, PODS, rng=rng, fields=f"spec.nodeName={node}", relist_interval=relist)
        self.pods.cache.subscribe(self._on_pod)
        self.node = ObjectInformer(kube, NODES, node, rng=rng, relist_interval=relist, on_change=on_node)
        self.nnc = ObjectInformer(
            kube, NODE_NETWORK_CONFIGS, node, rng=rng, namespace=NAMESPACE, relist_interval=relist, on_change=on_nnc
        )

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.pods, self.node, self.nnc, self.subnet):
                group.create_task(informer.run())
            await self.pods.cache.synced.wait()
            self._changes.notify()  # an empty list calls no subscriber

    def lag(self, others: dict[str, float | None]) -> dict[str, float]:
        """Return the seconds since each watch last received anything; infinite before the first time."""
        received = {
            "pods": self.pods.last_contact,
            "node": self.node.last_contact,
            "nnc": self.nnc.last_contact,
            "subnet": self.subnet.last_contact,
            **others,
        }
        now = asyncio.get_running_loop().time()
        return {watch: math.inf if at is None else now - at for watch, at in received.items()}

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is None or new is None or _relevant(old) != _relevant(new):
            self._changes.notify()


def _relevant(pod: Pod) -> tuple[bool, bool, str]:
    """Return what of a Pod changes demand: other updates are ignored."""
    return pod.needs_address, pod.metadata.deletion_timestamp is not None, pod.metadata.uid
