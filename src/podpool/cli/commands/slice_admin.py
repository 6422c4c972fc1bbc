"""`podpool slices declare-complete` and `confirm-loss`: decisions about slices that only an operator can take."""

from collections.abc import Iterable

from rich.text import Text

from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED
from podpool.cli.output import BAD, GOOD, StyledText, TextTable, ask
from podpool.inspect.slice_inventory import ALL, AwaitedNode, InventoryStatus, read_inventory
from podpool.inspect.slice_inventory import confirm_loss as write_loss
from podpool.inspect.slice_inventory import declare_complete as write_complete

EXCUSED = (
    "A slice that an excused node still uses, and that the API server does not show, may be assigned to another node."
)
LOST = "If a machine still runs, Pods of two nodes will have the same addresses."


async def declare_complete(context: ClusterContext, *, whereabouts_namespace: str, yes: bool) -> int:
    """Excuse the nodes that have not answered the controller's slice inventory."""
    config, inventory = await read_inventory(context.kube, whereabouts_namespace)
    done = _no_inventory(inventory)
    if done:
        context.printer.result(inventory, Text(done, style=GOOD))
        return 0
    count = len(inventory.silent)
    context.printer.result(
        inventory,
        Text(f"{count} of {inventory.nodes} nodes have not answered slice inventory {inventory.request}:", style=BAD),
        _node_table(inventory.silent),
        f"The controller waits for their answers before it assigns or withdraws slices. {EXCUSED}",
    )
    if not (yes or ask(f"Excuse these nodes in the cluster at {context.server}?")):
        return FAILED
    await write_complete(context.kube, config, whereabouts_namespace)
    context.printer.note("The nodes are excused. The controller continues without them.")
    return 0


def _no_inventory(inventory: InventoryStatus) -> str:
    """Return why no node needs to be excused; empty if one does."""
    if not inventory.request:
        return "No slice inventory was requested yet."
    if inventory.declared_complete:
        return "The silent nodes of this inventory are excused already."
    if inventory.silent and inventory.scope == ALL:
        return ""
    answered = inventory.nodes - len(inventory.silent)
    return f"{answered} of {inventory.nodes} nodes have answered: the controller waits for no other."


async def confirm_loss(context: ClusterContext, *, whereabouts_namespace: str, yes: bool) -> int:
    """Confirm that missing nodes are lost, so that node GC releases their slices."""
    config, inventory = await read_inventory(context.kube, whereabouts_namespace)
    if not inventory.loss or inventory.loss_confirmed:
        done = "The loss is confirmed already." if inventory.loss else "Node GC of slices is not stopped."
        context.printer.result(inventory, Text(done, style=GOOD))
        return 0
    context.printer.result(
        inventory,
        Text(f"{len(inventory.missing)} of {inventory.nodes} nodes with slices are missing:", style=BAD),
        _node_table(inventory.missing),
        f"Node GC releases no slice until the loss is confirmed or the Nodes exist again. {LOST}",
    )
    if not (yes or ask(f"Release the slices of these nodes in the cluster at {context.server}?")):
        return FAILED
    await write_loss(context.kube, config, whereabouts_namespace)
    context.printer.note("The loss is confirmed. Node GC continues.")
    return 0


def _node_table(nodes: Iterable[AwaitedNode]) -> TextTable:
    rows = [
        (
            each.node,
            StyledText(each.state, GOOD if each.state == "ready" else BAD),
            each.slices,
            each.in_use,
        )
        for each in nodes
    ]
    return TextTable(("NODE", "STATE", "SLICES", "IN-USE"), rows)
