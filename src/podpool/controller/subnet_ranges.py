"""CIDRs of the ledger's subnets that the controller has seen, so that no secondary network overlaps them."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from podpool.api.azure import NodeNetworkConfig
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.ledger.messages import SubnetState


class SubnetRanges:
    """The CIDRs by subnet; kept when the ledger cannot be reached."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when a subnet has other CIDRs than before."""
        self._ranges: dict[str, tuple[Prefix, ...]] = {}

    def all(self) -> dict[str, tuple[Prefix, ...]]:
        """Return the CIDRs by the name of their subnet."""
        return dict(self._ranges)

    def update(self, state: SubnetState) -> None:
        """Store what the ledger answered."""
        self._set(str(state.subnet.name), (state.cidr, *state.additional_cidrs))

    def seed(self, nncs: Iterable[NodeNetworkConfig]) -> None:
        """Store what NNCs show, of subnets that the ledger has not answered about."""
        found = {container.subnet_name: container for nnc in nncs for container in nnc.status.network_containers}
        for name, container in found.items():
            if name not in self._ranges:
                self._set(name, (container.subnet_address_space, container.subnet_address_space_v6))

    def _set(self, name: str, cidrs: Iterable[str]) -> None:
        ranges: list[Prefix] = []
        for each in filter(None, cidrs):
            with suppress(InvalidInput):
                ranges.append(parse_prefix(each))
        if self._ranges.get(name, ()) != tuple(ranges):
            self._ranges[name] = tuple(ranges)
            self.on_change()
