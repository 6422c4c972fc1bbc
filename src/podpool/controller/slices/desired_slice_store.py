"""The slices that nodes should have, as last assigned: written by the network reconciler, read by that of nodes."""

from collections.abc import Collection, Iterable

import msgspec

from podpool.controller.slices.node_slices_spec import DesiredSlice


class NetworkSlices(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of one network."""

    by_node: dict[str, tuple[DesiredSlice, ...]]
    node_uids: dict[str, str]
    """The UIDs of the Nodes that were considered, also of those that wait."""
    blocked: frozenset[str] = frozenset()
    """IDs of assignments whose addresses another Node may use."""


class DesiredSlices:
    """The assigned networks. One whose ownership has changed since is not settled, until it is assigned again."""

    def __init__(self) -> None:
        self._networks: dict[str, NetworkSlices] = {}
        self._outdated: set[str] = set()

    def replace(self, network: str, slices: NetworkSlices) -> Iterable[str]:
        """Set the slices of a network, and return the nodes that they change for, in a fixed order."""
        before = self._networks.get(network)
        self._networks[network] = slices
        unchanged = before is not None and network not in self._outdated and before.blocked == slices.blocked
        self._outdated.discard(network)
        if before is None or not unchanged:
            return [*dict.fromkeys((*(before.node_uids if before else ()), *slices.node_uids, *slices.by_node))]
        names = {**before.node_uids, **slices.node_uids}
        return [
            each
            for each in names
            if before.node_uids.get(each) != slices.node_uids.get(each)
            or before.by_node.get(each) != slices.by_node.get(each)
        ]

    def invalidate(self, network: str) -> None:
        """Decide nothing in a network until it is assigned again."""
        self._outdated.add(network)

    def settled(self) -> set[str]:
        """Return the networks that are assigned from the present ownership."""
        return self._networks.keys() - self._outdated

    def has_joined(self, node: str, uid: str, networks: Collection[str]) -> bool:
        """Return whether these networks have considered a Node."""
        return all(each in self._networks and self._networks[each].node_uids.get(node) == uid for each in networks)

    def of_node(self, node: str, uid: str) -> list[DesiredSlice]:
        """Return the slices that a Node should have."""
        networks = (each for each in self._networks.values() if each.node_uids.get(node) == uid)
        return [desired for each in networks for desired in each.by_node.get(node, ())]

    def blocked(self, networks: Iterable[str]) -> frozenset[str]:
        """Return the blocked assignments of some networks."""
        return frozenset().union(*(self._networks[each].blocked for each in networks if each in self._networks))
