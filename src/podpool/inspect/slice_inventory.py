"""What blocks the assignment and withdrawal of slices: nodes that have not answered, or a decision of an operator.

The request is in a ConfigMap that all agents watch; each answers in the status of its NodeSlices. While many nodes that
have slices are missing, node GC releases nothing: the ConfigMap then has the ID of that loss.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from podpool.api.builtin import CONFIG_MAPS, NODES, ConfigMap, Node
from podpool.api.node_slices import (
    CONFIRM_LOSS_ANNOTATION,
    INVENTORY_COMPLETE_ANNOTATION,
    INVENTORY_CONFIG_MAP,
    NODE_SLICES,
    NodeSlices,
)
from podpool.inspect.node_slices import NodeSliceState, slices_of
from podpool.inspect.view_models import ViewModel
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound

REQUEST, SCOPE, LOSS = "request", "scope", "loss"
"""Keys of the ConfigMap."""
ALL = "all"
"""The scope of an inventory for which all nodes are awaited, as after a restore; else those that are ready."""

READY, NOT_READY, MISSING, REPLACED = "ready", "not ready", "missing", "replaced"
"""States of a Node."""


class AwaitedNode(ViewModel, frozen=True, kw_only=True):
    """A node that has not answered, or that is missing."""

    node: str
    state: str = ""
    """ready, not ready, missing, or replaced by another Node of its name."""
    slices: int = 0
    in_use: int = 0


class InventoryStatus(ViewModel, frozen=True, kw_only=True):
    """The state of the inventory, and of a mass loss."""

    request: str = ""
    """Empty if there was none yet."""
    scope: str = ""
    nodes: int = 0
    """Nodes that exist or have a NodeSlices."""
    silent: tuple[AwaitedNode, ...] = ()
    declared_complete: bool = False
    """An operator has excused the silent nodes of this request."""
    loss: str = ""
    """The mass loss that stops node GC; empty if there is none."""
    missing: tuple[AwaitedNode, ...] = ()
    """Nodes with slices whose Node does not exist, or not with that UID."""
    loss_confirmed: bool = False

    @property
    def waits_for_nodes(self) -> bool:
        """Whether the controller assigns nothing before silent nodes have answered, or an operator excuses them."""
        return self.scope == ALL and bool(self.silent) and not self.declared_complete

    @property
    def waits_for_confirmation(self) -> bool:
        """Whether node GC releases nothing before an operator confirms a mass loss."""
        return bool(self.loss) and not self.loss_confirmed


async def read_inventory(kube: KubeClient, namespace: str) -> tuple[ConfigMap, InventoryStatus]:
    """Read the ConfigMap, which is empty if there is none, and its meaning."""
    config = await kube.find(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=namespace) or ConfigMap()
    slices: Sequence[NodeSlices] = ()
    with suppress(ApiNotFound):  # the CRD is not installed
        slices = (await kube.list(NODE_SLICES)).items
    return config, view_inventory(config, slices, (await kube.list(NODES)).items)


def view_inventory(config: ConfigMap, slices: Iterable[NodeSlices], nodes: Iterable[Node]) -> InventoryStatus:
    """Return what the controller waits for."""
    known = {each.metadata.name: each for each in nodes}
    objects: dict[str, NodeSlices | None] = dict.fromkeys(known) | {each.metadata.name: each for each in slices}
    data, notes = config.data, config.metadata.annotations
    request, scope, loss = (data.get(key, "") for key in (REQUEST, SCOPE, LOSS))
    unanswered = {name: each for name, each in objects.items() if request and _answer(each) != request}
    return InventoryStatus(
        request=request,
        scope=scope,
        nodes=len(objects),
        silent=tuple(_awaited(unanswered, known)),
        declared_complete=bool(request) and notes.get(INVENTORY_COMPLETE_ANNOTATION) == request,
        loss=loss,
        missing=tuple(_missing(objects, known)),
        loss_confirmed=bool(loss) and notes.get(CONFIRM_LOSS_ANNOTATION) == loss,
    )


def _answer(slices: NodeSlices | None) -> str:
    return slices.status.inventory if slices else ""


def _awaited(objects: Mapping[str, NodeSlices | None], nodes: Mapping[str, Node]) -> Iterator[AwaitedNode]:
    for name, each in objects.items():
        node = nodes.get(name)
        own = list(slices_of(each)) if each else []
        state = MISSING if node is None else NOT_READY if node.not_ready else READY
        yield AwaitedNode(
            node=name,
            state=state,
            slices=len(own),
            in_use=sum(one.state is NodeSliceState.IN_USE for one in own),
        )


def _missing(objects: Mapping[str, NodeSlices | None], nodes: Mapping[str, Node]) -> Iterator[AwaitedNode]:
    """Return the nodes that node GC would release: it knows them by the UID of their Node."""
    for each in _awaited(objects, nodes):
        slices, node = objects[each.node], nodes.get(each.node)
        replaced = slices and node and (slices.spec.former or slices.spec.node_uid not in ("", node.metadata.uid))
        if each.slices and (node is None or replaced):
            yield msgspec.structs.replace(each, state=REPLACED) if replaced else each


async def declare_complete(kube: KubeClient, config: ConfigMap, namespace: str) -> None:
    """Excuse the silent nodes of the request that was read; fails if there is a newer one."""
    await _annotate(kube, config, namespace, INVENTORY_COMPLETE_ANNOTATION, config.data[REQUEST])


async def confirm_loss(kube: KubeClient, config: ConfigMap, namespace: str) -> None:
    """Confirm the mass loss that was read; fails if the ConfigMap has changed since."""
    await _annotate(kube, config, namespace, CONFIRM_LOSS_ANNOTATION, config.data[LOSS])


async def _annotate(kube: KubeClient, config: ConfigMap, namespace: str, key: str, value: str) -> None:
    version = config.metadata.resource_version
    patch = {"metadata": {"annotations": {key: value}}}
    await kube.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, patch, namespace=namespace, precondition=version)
