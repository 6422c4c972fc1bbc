"""The cluster's containers as the ledger remembers them: what an NNC can be made again from.

Read when a term begins, and kept in step with each answer. A container that was closed is not in here.
"""

from collections.abc import Iterator

from podpool.api.azure import NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.convert import claim_of
from podpool.ledger.messages import ContainerRecord, ContainerState, Item


class Books:
    """Containers by id, by the UID of their Node, and by its name: the same name may have had several."""

    def __init__(self) -> None:
        self._records: dict[str, ContainerRecord] = {}
        self._by_uid: dict[str, dict[str, None]] = {}
        self._by_name: dict[str, dict[str, None]] = {}

    def load(self, records: tuple[ContainerRecord, ...]) -> None:
        """Take what the ledger has."""
        for container in tuple(self._records):
            self._drop(container)
        for record in records:
            self._put(record)

    def values(self) -> tuple[ContainerRecord, ...]:
        """List all of them."""
        return tuple(self._records.values())

    def get(self, container: str) -> ContainerRecord | None:
        """Find one by its id."""
        return self._records.get(container)

    def of_uid(self, node_uid: str) -> ContainerRecord | None:
        """Find a container that was asked for by a Node of this UID."""
        return next(self._of_uid(node_uid), None)

    def of_node(self, node: Node, config: NodeNetworkConfig | None) -> ContainerRecord | None:
        """Find the container of a Node: which its machine claims, else by boot id, else as its NNC shows, or by UID.

        An API server that was restored may show the Node of a machine that is long gone, and on it another machine of
        that name, whose Pods run on addresses of its own container; or the Node as it was before it was deleted and
        registered again. Then a UID tells little. A claim to a container that is closed is none.
        """
        named = [self._records[container] for container in self._by_name.get(node.metadata.name, ())]
        claim = claim_of(node, config)
        claimed = (record for record in named if record.state.container == claim)
        same_boot = (record for record in named if node.boot_id and record.boot_id == node.boot_id)
        ids = {each.id for each in config.status.network_containers} if config else set()
        shown = (record for record in named if record.state.container in ids)
        found = (*claimed, *same_boot, *shown)
        return found[0] if found else self.of_uid(node.metadata.uid)

    def knows(self, container: str, node: str) -> bool:
        """Tell whether a container is open for a node of this name."""
        return container in self._by_name.get(node, ())

    def of_name(self, node: str) -> ContainerRecord | None:
        """Find a container of a node of this name."""
        return next((self._records[container] for container in self._by_name.get(node, ())), None)

    def remembers(self, node: str) -> bool:
        """Tell whether a node of this name has a container."""
        return node in self._by_name

    def answered(self, item: Item) -> bool:
        """Tell whether this is what the ledger was last asked for a container, and has answered."""
        known = self._records.get(item.container or "")
        return known is not None and item.boot_id in (None, known.boot_id) and _asked(known) == _asked(item)

    def _of_uid(self, node_uid: str) -> Iterator[ContainerRecord]:
        return (self._records[container] for container in self._by_uid.get(node_uid, ()))

    def note(self, item: Item, state: ContainerState) -> None:
        """Remember what was asked for and given."""
        known = self._records.get(state.container)
        self._drop(state.container)
        if state.closed:
            return
        self._put(
            ContainerRecord(
                state=state,
                node=item.node,
                node_uid=item.node_uid,
                boot_id=item.boot_id or (known.boot_id if known else None),
                wanted=item.wanted,
                released=item.released,
                rested=item.rested,
                report=item.report,
                pinned=item.pinned,
            )
        )

    def _put(self, record: ContainerRecord) -> None:
        self._records[record.state.container] = record
        for index, key in ((self._by_uid, record.node_uid), (self._by_name, record.node)):
            index.setdefault(key, {})[record.state.container] = None

    def _drop(self, container: str) -> None:
        record = self._records.pop(container, None)
        if record is None:
            return
        for index, key in ((self._by_uid, record.node_uid), (self._by_name, record.node)):
            del index[key][container]
            if not index[key]:
                del index[key]


def _asked(of: ContainerRecord | Item) -> tuple[object, ...]:
    return of.node_uid, of.wanted, of.released, of.rested, of.report, of.pinned
