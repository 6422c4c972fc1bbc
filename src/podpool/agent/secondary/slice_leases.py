"""How the agent acknowledges the Leases of its slices, and which acknowledgements the controller has confirmed.

| step | by | writes |
|---|---|---|
| assigned | controller | IPPool and Lease, without a holder |
| acknowledged | agent | holder, boot ID, and an acknowledgement with a new ID |
| confirmed | controller | the ID of that acknowledgement |
| held | agent | the journal; addresses are assigned from here on |
| returned | agent | no holder, and the boot ID |

Invariant: an acknowledgement counts only if the controller has confirmed its ID. A restored API server may show a Lease
that another node has by now, assigned, or acknowledged and confirmed before: it is acknowledged again, and a controller
that knows better does not confirm. An inventory request of the controller invalidates earlier acknowledgements of
slices that the journal does not contain yet.
"""

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.api.builtin import LEASES, Lease
from podpool.api.whereabouts import ACKNOWLEDGED_ANNOTATION, BOOT_ANNOTATION, CONFIRMED_ANNOTATION, NODE_UID_LABEL
from podpool.runtime.entropy import new_uuid


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """The last acknowledgement of a Lease whose slice is not held yet."""

    id: str
    used_before: bool
    """This node held the slice before."""
    same_boot: bool
    """And in this boot."""


class SliceLeases:
    """Acknowledges and returns Leases, each at the resourceVersion that was read."""

    def __init__(self, deps: AgentDeps, informers: SliceInformers) -> None:
        self._deps = deps
        self._informers = informers
        self._acknowledged: dict[str, Acknowledgement] = {}
        """By the UID of the Lease."""

    def names_this_node(self, lease: Lease) -> bool:
        """Return whether the holder is this node, under any UID that it had."""
        return (lease.spec.holder_identity or "").startswith(f"{self._deps.node}/")

    def is_labelled(self, lease: Lease) -> bool:
        """Return whether it is labelled with the UID of this Node."""
        return lease.metadata.labels.get(NODE_UID_LABEL) == self._informers.uid

    def is_acknowledged(self, lease: Lease) -> bool:
        """Return whether the holder is this Node, in this boot."""
        boot_id = lease.metadata.annotations.get(BOOT_ANNOTATION)
        return lease.spec.holder_identity == self._identity and boot_id == self._deps.boot_id

    def was_never_held(self, lease: Lease) -> bool:
        """Return whether no agent has acknowledged it yet."""
        return not lease.spec.holder_identity and BOOT_ANNOTATION not in lease.metadata.annotations

    def was_used(self, lease: Lease) -> bool:
        """Return whether an agent may have assigned addresses under it, before this agent acknowledged it again."""
        earlier = self._acknowledged.get(lease.metadata.uid)
        return earlier.used_before if earlier else _was_confirmed(lease)

    def may_be_in_use(self, lease: Lease) -> bool:
        """Return whether sandboxes of this boot may have addresses that were assigned under it."""
        earlier, boot_id = self._acknowledged.get(lease.metadata.uid), lease.metadata.annotations.get(BOOT_ANNOTATION)
        return self.was_used(lease) and (earlier.same_boot if earlier else boot_id == self._deps.boot_id)

    def is_pending(self, lease: Lease) -> bool:
        """Return whether it shows this agent's last acknowledgement."""
        last = self._acknowledged.get(lease.metadata.uid)
        shown_id = lease.metadata.annotations.get(ACKNOWLEDGED_ANNOTATION)
        return last is not None and last.id == shown_id and self.is_acknowledged(lease)

    def confirmed(self, lease: Lease) -> Acknowledgement | None:
        """Return this agent's last acknowledgement if the controller has confirmed it."""
        last = self._acknowledged.get(lease.metadata.uid)
        confirmed_id = lease.metadata.annotations.get(CONFIRMED_ANNOTATION)
        return last if last and self.is_pending(lease) and last.id == confirmed_id else None

    def forget(self, lease: Lease) -> None:
        """Remove the acknowledgement of a slice that is held now."""
        self._acknowledged.pop(lease.metadata.uid, None)

    def invalidate_all(self) -> None:
        """Make all acknowledgements invalid."""
        for uid in self._acknowledged:
            self._invalidate(uid)

    def _invalidate(self, uid: str) -> None:
        if uid in self._acknowledged:
            self._acknowledged[uid] = msgspec.structs.replace(self._acknowledged[uid], id="")

    async def acknowledge(self, lease: Lease) -> None:
        """Acknowledge a Lease whose slice the journal does not contain."""
        boot_id = lease.metadata.annotations.get(BOOT_ANNOTATION, self._deps.boot_id)
        earlier = self._acknowledged.get(lease.metadata.uid) or Acknowledgement(
            id="", used_before=_was_confirmed(lease), same_boot=boot_id == self._deps.boot_id
        )
        acknowledgement = msgspec.structs.replace(earlier, id=new_uuid(self._deps.rng))
        await self.hold(lease, acknowledgement_id=acknowledgement.id)
        self._acknowledged[lease.metadata.uid] = acknowledgement

    async def hold(self, lease: Lease, *, acknowledgement_id: str = "") -> None:
        """Write this Node and this boot as holder."""
        annotations = {BOOT_ANNOTATION: self._deps.boot_id}
        if acknowledgement_id:
            annotations[ACKNOWLEDGED_ANNOTATION] = acknowledgement_id
        await self._patch(lease, holder=self._identity, annotations=annotations)

    async def return_(self, lease: Lease) -> None:
        """Clear the holder. The boot ID shows that it was held, so it is not acknowledged again if this is repeated."""
        self._invalidate(lease.metadata.uid)
        await self._patch(lease, holder=None, annotations={BOOT_ANNOTATION: self._deps.boot_id})

    async def _patch(self, lease: Lease, *, holder: str | None, annotations: dict[str, str]) -> None:
        patch = {"spec": {"holderIdentity": holder}, "metadata": {"annotations": annotations}}
        name, namespace, version = lease.metadata.name, self._informers.namespace, lease.metadata.resource_version
        await self._deps.kube.merge_patch(LEASES, name, patch, namespace=namespace, precondition=version)

    @property
    def _identity(self) -> str:
        return f"{self._deps.node}/{self._informers.uid}"


def _was_confirmed(lease: Lease) -> bool:
    return bool(lease.spec.holder_identity and lease.metadata.annotations.get(CONFIRMED_ANNOTATION))
