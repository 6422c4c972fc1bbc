"""Cache of the cluster's network containers as the ledger has them: an NNC can be rebuilt from it.

It is loaded when a term begins and updated with each response. Closed network containers are not in it.
"""

from podpool.api.azure import NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.nnc_conversion import claimed_nc
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, ReconcileItem


class AllocationCache:
    """NCs by id, by UID and by name of their Node. One Node name may have several NCs."""

    def __init__(self) -> None:
        self._records: dict[str, NetworkContainerRecord] = {}
        self._by_uid: dict[str, dict[str, None]] = {}
        self._by_name: dict[str, dict[str, None]] = {}

    def load(self, records: tuple[NetworkContainerRecord, ...], *, network: str | None = None) -> None:
        """Replace the contents, or those of one network, by the ledger's records."""
        for nc, record in tuple(self._records.items()):
            if network in (None, record.state.subnet.network):
                self._remove(nc)
        for record in records:
            self._add(record)

    def values(self) -> tuple[NetworkContainerRecord, ...]:
        """Return all records."""
        return tuple(self._records.values())

    def get(self, nc: str) -> NetworkContainerRecord | None:
        """Return the record of an NC."""
        return self._records.get(nc)

    def by_node_uid(self, node_uid: str) -> NetworkContainerRecord | None:
        """Return an NC that was opened for the Node with this UID."""
        return next((self._records[nc] for nc in self._by_uid.get(node_uid, ())), None)

    def by_node_name(self, node: str) -> NetworkContainerRecord | None:
        """Return an NC of a Node of this name."""
        return next((self._records[nc] for nc in self._by_name.get(node, ())), None)

    def for_node(self, node: Node, nnc: NodeNetworkConfig | None) -> NetworkContainerRecord | None:
        """Return the NC of a Node: the one its agent claims, else by boot ID, else from the NNC's status, else by UID.

        The UID comes last because a restored API server may show the Node of a machine that no longer exists, while
        another machine of that name runs Pods on addresses of its own NC; or it may show the Node as it was before it
        was deleted and registered again. A claim to a closed NC does not count.
        """
        named = [self._records[nc] for nc in self._by_name.get(node.metadata.name, ())]
        claim = claimed_nc(node, nnc)
        claimed = (record for record in named if record.state.nc_id == claim)
        same_boot = (record for record in named if node.boot_id and record.boot_id == node.boot_id)
        ids = {each.id for each in nnc.status.network_containers} if nnc else set()
        in_status = (record for record in named if record.state.nc_id in ids)
        found = (*claimed, *same_boot, *in_status)
        return found[0] if found else self.by_node_uid(node.metadata.uid)

    def is_open(self, nc: str, node: str) -> bool:
        """Return whether an NC is open for a Node of this name."""
        return nc in self._by_name.get(node, ())

    def has_node(self, node: str) -> bool:
        """Return whether a Node of this name has an NC."""
        return node in self._by_name

    def is_answered(self, item: ReconcileItem) -> bool:
        """Return whether the ledger has already answered this request, and none after it."""
        known = self._records.get(item.nc_id or "")
        return known is not None and item.boot_id in (None, known.boot_id) and _request(known) == _request(item)

    def update(self, item: ReconcileItem, state: NetworkContainerState) -> None:
        """Store a request with the ledger's response."""
        known = self._records.get(state.nc_id)
        self._remove(state.nc_id)
        if state.closed:
            return
        self._add(
            NetworkContainerRecord(
                state=state,
                node=item.node,
                node_uid=item.node_uid,
                boot_id=item.boot_id or (known.boot_id if known else None),
                wanted=item.wanted,
                released=item.released,
                cooled_seconds=item.cooled_seconds,
                report=item.report,
                pinned=item.pinned,
            )
        )

    def _add(self, record: NetworkContainerRecord) -> None:
        self._records[record.state.nc_id] = record
        for index, key in ((self._by_uid, record.node_uid), (self._by_name, record.node)):
            index.setdefault(key, {})[record.state.nc_id] = None

    def _remove(self, nc: str) -> None:
        record = self._records.pop(nc, None)
        if record is None:
            return
        for index, key in ((self._by_uid, record.node_uid), (self._by_name, record.node)):
            del index[key][nc]
            if not index[key]:
                del index[key]


def _request(of: NetworkContainerRecord | ReconcileItem) -> tuple[object, ...]:
    return of.node_uid, of.wanted, of.released, of.cooled_seconds, of.report, of.pinned
