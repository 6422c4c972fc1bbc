"""What Multus tells of a Pod's networks, in an annotation of the Pod, once all of them are connected."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from podpool.api.builtin import AddressedPod
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput


class NetworkStatus(msgspec.Struct, frozen=True):
    """One network of a Pod."""

    name: str = ""
    """The attachment's, as `namespace/name`."""
    interface: str = ""
    ips: tuple[str, ...] = ()

    @property
    def addresses(self) -> Iterator[Address]:
        """Those of its addresses that are some."""
        for text in self.ips:
            with suppress(InvalidInput):
                yield parse_address(text)


def network_statuses(pod: AddressedPod) -> tuple[NetworkStatus, ...]:
    """Read what is told of a Pod; what cannot be read tells nothing."""
    try:
        return msgspec.json.decode(pod.metadata.annotations.status or "[]", type=tuple[NetworkStatus, ...])
    except msgspec.DecodeError:
        return ()
