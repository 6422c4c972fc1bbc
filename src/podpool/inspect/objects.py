"""A Pod as a looker needs it: its addresses, and since when it has been waiting for one."""

from podpool.api.builtin import FINISHED, PodSpec, PodStatus
from podpool.api.meta import Condition, KeyedObject, Kind, ObjectIdentity


class ObservedPodMeta(ObjectIdentity, frozen=True, kw_only=True):
    """Which Pod, and since when."""

    creation_timestamp: str | None = None


class ObservedPodStatus(PodStatus, frozen=True, kw_only=True):
    """Its addresses, and what is so of it."""

    conditions: tuple[Condition, ...] = ()


class ObservedPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod."""

    metadata: ObservedPodMeta = ObservedPodMeta()
    spec: PodSpec = PodSpec()
    status: ObservedPodStatus = ObservedPodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """What it has; nothing when it is finished, or on the host's own network."""
        if self.spec.host_network or self.status.phase in FINISHED:
            return ()
        return tuple(each.ip for each in self.status.pod_ips if each.ip)

    @property
    def waits(self) -> bool:
        """Tell whether it is on a node and stays, needs an address, and shows none."""
        alive = self.status.phase not in FINISHED and not self.metadata.deletion_timestamp
        return bool(self.spec.node_name) and alive and not self.spec.host_network and not self.addresses

    @property
    def since(self) -> str:
        """Tell when it was bound to its node; else when it was made."""
        bound = (each.last_transition_time for each in self.status.conditions if each.type == "PodScheduled")
        return next(bound, None) or self.metadata.creation_timestamp or ""


OBSERVED_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=ObservedPod)
