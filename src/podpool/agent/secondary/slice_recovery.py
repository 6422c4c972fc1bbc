"""Slices whose journal was lost while sandboxes ran: who has what of them, by what is told of the node's Pods.

What must hold: nothing is given of such a slice before two looks at least a minute apart have found that every Pod of
the node tells where it is. It shows its networks, which Multus tells when the last of them is connected; or it has an
address by what is left of the journal; or it has asked since, and its earlier sandbox is gone. What a Pod shows is its
own from then on, whatever the IPPool says, which was behind when the journal was lost, and whatever is left of the
journal, which may be older: unless whom that names shows it too, or has still to tell.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from podpool.agent.lost_grant_gc import APART
from podpool.agent.records import SliceAddress, SliceHolder
from podpool.agent.secondary.slices import Slices
from podpool.api.builtin import FINISHED, AddressedPod
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address
from podpool.whereabouts.network_status import NetworkStatus, network_statuses

FIRST = "eth0"
"""The interface of a Pod's own address, where nobody tells of its networks."""


class SliceRecovery:
    """Remembers since when every Pod has told where it is."""

    def __init__(self) -> None:
        self._since: float | None = None

    def is_over(self, slices: Slices, pods: Iterable[AddressedPod], asked: Collection[str], *, now: float) -> bool:
        """Look once; tells whether whatever nobody is known to have is nobody's."""
        known = {by.podref for _, by in slices.tenants() if not by.found} | {*asked}
        silent = any(pod.key not in known and not _tells(pod) for pod in _living(pods))
        self._since = None if silent else now if self._since is None else self._since
        return self._since is not None and self._since + APART <= now


def reported_holders(
    slices: Slices, pods: Sequence[AddressedPod], asked: Collection[str]
) -> dict[SliceAddress, SliceHolder]:
    """Find what Pods show of such slices, and nobody is known to have."""
    known = {(slot.address, by.podref, by.owner.ifname) for slot, by in slices.tenants()}
    claims = {pod.key: _claim(pod) for pod in _living(pods) if pod.key not in asked}

    def keeps(by: SliceHolder, address: Address) -> bool:
        claim = claims.get(by.podref, frozenset())
        return not by.found or claim is None or address in claim

    found: dict[SliceAddress, SliceHolder] = {}
    for pod in _living(pods):
        for network in _networks(pod):
            owner = Attachment(container_id=pod.metadata.uid, ifname=network.interface)
            for address in network.addresses:
                if (str(address), pod.key, network.interface) not in known:
                    for each in slices:
                        by = each.held.get(address.value)
                        if each.unsure and address in each.prefix and not (by and keeps(by, address)):
                            found.setdefault(
                                each.slot(address.value), SliceHolder(owner=owner, podref=pod.key, found=True)
                            )
    return found


def _living(pods: Iterable[AddressedPod]) -> Iterator[AddressedPod]:
    return (pod for pod in pods if not pod.spec.host_network and pod.status.phase not in FINISHED)


def _tells(pod: AddressedPod) -> bool:
    return bool(network_statuses(pod) or (pod.status.pod_ips and not pod.metadata.annotations.wanted))


def _claim(pod: AddressedPod) -> frozenset[Address] | None:
    """Tell which addresses a Pod shows; None when it has still to tell."""
    return frozenset(each for shown in _networks(pod) for each in shown.addresses) if _tells(pod) else None


def _networks(pod: AddressedPod) -> tuple[NetworkStatus, ...]:
    own = NetworkStatus(interface=FIRST, ips=tuple(each.ip for each in pod.status.pod_ips))
    return network_statuses(pod) or (own,)
