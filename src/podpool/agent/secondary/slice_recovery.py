"""Recovery of slices whose journal was lost while sandboxes ran, by the Pods of the node.

Nothing of such a slice is assigned before two observations find every Pod of the node accounted for. A Pod is accounted
for if it reports its networks, which Multus does when the last one is attached; if it has an address by the readable
part of the journal; or if it has sent an ADD since, so that its former sandbox is gone. An address that a Pod reports
is its own, whatever the IPPool contains, which was behind when the journal was lost, and whatever the readable part of
the journal contains, which may be older: unless the holder there reports it too, or has not reported yet.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence

from podpool.agent.deps import AgentDeps
from podpool.agent.records import SliceAddress, SliceAssigned, SliceHolder, SliceRecovered, SliceUnassigned
from podpool.agent.secondary.node_slices_reconciler import SliceReconciler
from podpool.agent.secondary.slice_ipam import SliceIPAM
from podpool.agent.secondary.slices import Slices
from podpool.agent.state import AgentState
from podpool.api.builtin import ADDRESSED_PODS, FINISHED, AddressedPod
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address
from podpool.core.two_observations import TwoObservations
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.nad import NetworkStatus, network_statuses

RECOVERY_INTERVAL = 15.0
"""Seconds between two reads of the Pods during a recovery."""
PRIMARY_INTERFACE = "eth0"
"""The interface of a Pod's own address, for Pods without network status."""


class SliceRecovery:
    """Recovers the holders of slices, and ends the recovery."""

    def __init__(self, deps: AgentDeps, state: AgentState, ipam: SliceIPAM, reconciler: SliceReconciler) -> None:
        self._deps = deps
        self._state = state
        self._ipam = ipam
        self._reconciler = reconciler
        self._observations: TwoObservations[str] = TwoObservations()

    async def run(self) -> None:
        """Recover at an interval while a slice needs it, until cancelled."""
        while True:
            await asyncio.sleep(RECOVERY_INTERVAL)
            if any(each.recovering for each in self._state.slices):
                try:
                    selector = f"spec.nodeName={self._deps.node}"
                    pods = (await self._deps.kube.list(ADDRESSED_PODS, fields=selector)).items
                except (ApiError, Unreachable):
                    continue
                self._recover(pods)

    def _recover(self, pods: Sequence[AddressedPod]) -> None:
        """Assign what Pods report; when every Pod is accounted for, make the other addresses assignable."""
        state, now, waiting = self._state, self._deps.clock.boot(), self._ipam.waiting_pods
        assigned = {address for address, _ in state.slices.holders()}
        for address, holder in reported_holders(state.slices, pods, waiting).items():
            self._deps.log.info("address restored from Pod status", address=address.address, pod=holder.podref)
            if address in assigned:
                state.write(SliceUnassigned(addresses=(address,), at=now))
            state.write(SliceAssigned(holder=holder, addresses=(address,)))
        complete = ("all",) if all_accounted_for(state.slices, pods, waiting) else ()
        recovered = self._observations.observe(complete, now=now)
        for each in [each for each in state.slices if each.recovering]:
            if recovered:
                self._deps.log.info(
                    "slice recovered after the journal was lost, addresses without a Pod cool down",
                    slice=each.prefix,
                )
                state.write(SliceRecovered(assignment=each.assignment, at=now))
            self._reconciler.pools.assignments_changed(each)
        self._ipam.serve()


def all_accounted_for(slices: Slices, pods: Iterable[AddressedPod], waiting: Collection[str]) -> bool:
    """Return whether the addresses of every Pod are known. `waiting` are Pods whose ADD found no address."""
    known = {holder.podref for _, holder in slices.holders() if not holder.inferred} | {*waiting}
    return all(pod.key in known or _has_reported(pod) for pod in _running(pods))


def reported_holders(
    slices: Slices, pods: Sequence[AddressedPod], waiting: Collection[str]
) -> dict[SliceAddress, SliceHolder]:
    """Return what Pods report of recovering slices and is not known yet."""
    known = {(address.address, each.podref, each.attachment.ifname) for address, each in slices.holders()}
    reported = {pod.key: _reported_addresses(pod) for pod in _running(pods) if pod.key not in waiting}

    def keeps(holder: SliceHolder, address: Address) -> bool:
        addresses = reported.get(holder.podref, frozenset())
        return not holder.inferred or addresses is None or address in addresses

    found: dict[SliceAddress, SliceHolder] = {}
    for pod in _running(pods):
        for status in _statuses(pod):
            attachment = Attachment(container_id=pod.metadata.uid, ifname=status.interface)
            holder = SliceHolder(attachment=attachment, podref=pod.key, inferred=True)
            for address in status.addresses:
                if (str(address), pod.key, status.interface) in known:
                    continue
                for each in slices:
                    present = each.assigned.get(address.value)
                    if each.recovering and address in each.prefix and not (present and keeps(present, address)):
                        found.setdefault(each.slice_address(address.value), holder)
    return found


def _running(pods: Iterable[AddressedPod]) -> Iterator[AddressedPod]:
    return (pod for pod in pods if not pod.spec.host_network and pod.status.phase not in FINISHED)


def _has_reported(pod: AddressedPod) -> bool:
    return bool(network_statuses(pod) or (pod.status.pod_ips and not pod.metadata.annotations.wanted))


def _reported_addresses(pod: AddressedPod) -> frozenset[Address] | None:
    """Return the addresses that a Pod reports; None if it has not reported yet."""
    if not _has_reported(pod):
        return None
    return frozenset(address for each in _statuses(pod) for address in each.addresses)


def _statuses(pod: AddressedPod) -> tuple[NetworkStatus, ...]:
    own = NetworkStatus(interface=PRIMARY_INTERFACE, ips=tuple(each.ip for each in pod.status.pod_ips))
    return network_statuses(pod) or (own,)
