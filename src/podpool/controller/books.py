"""The cluster's containers as the ledger remembers them: what an NNC can be made again from.

Read when a term begins, and kept in step with each answer. A container that was closed is not in here.
"""

from podpool.ledger.messages import ContainerRecord, ContainerState, Item
from podpool.resources.builtin import Node


class Books:
    """Containers by id, by the UID of their Node, and by its name: the same name may have had several."""

    def __init__(self) -> None:
        self._records: dict[str, ContainerRecord] = {}
        self._by_uid: dict[str, str] = {}
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
        """Find the container that was last asked for by a Node of this UID."""
        return self._records.get(self._by_uid.get(node_uid, ""))

    def of_node(self, node: Node) -> ContainerRecord | None:
        """Find the container of a Node: of the machine that it is now, else of the Node that it was before a reboot.

        The boot id comes first. An API server that was restored may show the Node of a machine that is long gone, and
        on it another machine of that name, whose Pods run on addresses of its own container.
        """
        named = (self._records[container] for container in self._by_name.get(node.metadata.name, ()))
        same_boot = (record for record in named if node.boot_id and record.boot_id == node.boot_id)
        return next(same_boot, None) or self.of_uid(node.metadata.uid)

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
        self._by_uid[record.node_uid] = record.state.container
        self._by_name.setdefault(record.node, {})[record.state.container] = None

    def _drop(self, container: str) -> None:
        record = self._records.pop(container, None)
        if record is None:
            return
        if self._by_uid.get(record.node_uid) == container:
            del self._by_uid[record.node_uid]
        named = self._by_name[record.node]
        del named[container]
        if not named:
            del self._by_name[record.node]
