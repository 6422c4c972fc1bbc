"""Pods as inspection needs them: addresses, and how long a Pod has been waiting for one."""

from podpool.api.builtin import FINISHED, PodSpec, PodStatus
from podpool.api.meta import Condition, KeyedObject, Kind, ObjectIdentity


class InspectedPodMeta(ObjectIdentity, frozen=True, kw_only=True):
    """Metadata with the creation time."""

    creation_timestamp: str | None = None


class InspectedPodStatus(PodStatus, frozen=True, kw_only=True):
    """Status with conditions."""

    conditions: tuple[Condition, ...] = ()


class InspectedPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod."""

    metadata: InspectedPodMeta = InspectedPodMeta()
    spec: PodSpec = PodSpec()
    status: InspectedPodStatus = InspectedPodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the Pod; none when it is finished or on the host network."""
        if self.spec.host_network or self.status.phase in FINISHED:
            return ()
        return tuple(each.ip for each in self.status.pod_ips if each.ip)

    @property
    def waiting_for_address(self) -> bool:
        """Whether it is bound to a node, needs an address and shows none."""
        alive = self.status.phase not in FINISHED and not self.metadata.deletion_timestamp
        return bool(self.spec.node_name) and alive and not self.spec.host_network and not self.addresses

    @property
    def since(self) -> str:
        """When it was bound to its node, else when it was created."""
        bound = (each.last_transition_time for each in self.status.conditions if each.type == "PodScheduled")
        return next(bound, None) or self.metadata.creation_timestamp or ""


INSPECTED_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=InspectedPod)
