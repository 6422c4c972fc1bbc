"""How this agent signs the Leases of its slices, and which of its signatures somebody has agreed to.

What must hold: a signature is new each time, and counts once the controller has agreed to just that one. A restored
copy may show a Lease that others have by now, unsigned, or signed and agreed to by who came before: it is signed anew,
and a controller that knows better does not agree. What was agreed to before a question of the controller's is void
after it, unless the journal has the slice by then.
"""

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.api.builtin import LEASES, Lease
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    NODE_UID_LABEL,
    SIGNATURE_ANNOTATION,
)
from podpool.runtime.entropy import new_uuid


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """How a Lease was signed of a slice that is not taken yet."""

    signature: str
    used_before: bool
    """It was this node's before;"""
    same_boot: bool
    """and not in another boot."""


class SliceLeases:
    """Signs and empties Leases, each at the version that was seen."""

    def __init__(self, deps: AgentDeps, pools: SliceInformers, *, boot_id: str) -> None:
        self._deps = deps
        self._pools = pools
        self._boot_id = boot_id
        self._signed: dict[str, Acknowledgement] = {}
        """By the Lease's UID."""

    def is_ours(self, lease: Lease) -> bool:
        """Tell whether it names this node, under whichever of the UIDs that it had."""
        return (lease.spec.holder_identity or "").startswith(f"{self._deps.node}/")

    def is_labelled(self, lease: Lease) -> bool:
        """Tell whether it is this very Node's."""
        return lease.metadata.labels.get(NODE_UID_LABEL) == self._pools.uid

    def is_signed(self, lease: Lease) -> bool:
        """Tell whether it names this very Node, in this boot."""
        boot = lease.metadata.annotations.get(BOOT_ANNOTATION)
        return lease.spec.holder_identity == self._identity and boot == self._boot_id

    def is_unsigned(self, lease: Lease) -> bool:
        """Tell whether nobody has held it yet."""
        return not lease.spec.holder_identity and BOOT_ANNOTATION not in lease.metadata.annotations

    def is_used(self, lease: Lease) -> bool:
        """Tell whether an agent of this node may have given addresses under it: some signature was agreed to."""
        return bool(lease.spec.holder_identity and lease.metadata.annotations.get(GRANTED_ANNOTATION))

    def was_used(self, lease: Lease) -> bool:
        """Tell whether sandboxes may have had addresses that were given under it, before it was signed anew."""
        signed = self._signed.get(lease.metadata.uid)
        return signed.used_before if signed else self.is_used(lease)

    def may_be_in_use(self, lease: Lease) -> bool:
        """Tell whether sandboxes of this very boot may."""
        signed, boot = self._signed.get(lease.metadata.uid), lease.metadata.annotations.get(BOOT_ANNOTATION)
        return self.was_used(lease) and (signed.same_boot if signed else boot == self._boot_id)

    def is_pending(self, lease: Lease) -> bool:
        """Tell whether it has our last signature."""
        signed, told = self._signed.get(lease.metadata.uid), lease.metadata.annotations.get(SIGNATURE_ANNOTATION)
        return signed is not None and signed.signature == told and self.is_signed(lease)

    def agreed(self, lease: Lease) -> Acknowledgement | None:
        """Find our signature, if the controller has agreed to it."""
        granted = lease.metadata.annotations.get(GRANTED_ANNOTATION)
        signed = self._signed.get(lease.metadata.uid)
        return signed if signed and self.is_pending(lease) and signed.signature == granted else None

    def forget(self, lease: Lease) -> None:
        """Forget the signature of a slice that is taken."""
        self._signed.pop(lease.metadata.uid, None)

    def void(self) -> None:
        """Let no signature count any more."""
        for uid in self._signed:
            self._void(uid)

    def _void(self, uid: str) -> None:
        if uid in self._signed:
            self._signed[uid] = msgspec.structs.replace(self._signed[uid], signature="")

    async def sign(self, lease: Lease) -> None:
        """Sign a Lease of which the journal knows nothing."""
        notes, earlier = lease.metadata.annotations, self._signed.get(lease.metadata.uid)
        signed = earlier or Acknowledgement(
            signature="",
            used_before=self.is_used(lease),
            same_boot=notes.get(BOOT_ANNOTATION, self._boot_id) == self._boot_id,
        )
        signed = msgspec.structs.replace(signed, signature=new_uuid(self._deps.rng))
        await self.hold(lease, signature=signed.signature)
        self._signed[lease.metadata.uid] = signed

    async def hold(self, lease: Lease, *, signature: str = "") -> None:
        """Hold a Lease, in this node's name and with its boot."""
        notes = {BOOT_ANNOTATION: self._boot_id} | ({SIGNATURE_ANNOTATION: signature} if signature else {})
        await self._write(lease, {"spec": {"holderIdentity": self._identity}, "metadata": {"annotations": notes}})

    async def let_go(self, lease: Lease) -> None:
        """Hold it no longer, and say that it was held: nobody takes it again, even if the answer to this is lost."""
        self._void(lease.metadata.uid)
        notes = {BOOT_ANNOTATION: self._boot_id}
        await self._write(lease, {"spec": {"holderIdentity": None}, "metadata": {"annotations": notes}})

    async def _write(self, lease: Lease, change: dict[str, object]) -> None:
        await self._deps.kube.merge_patch(
            LEASES,
            lease.metadata.name,
            change,
            namespace=self._pools.namespace,
            precondition=lease.metadata.resource_version,
        )

    @property
    def _identity(self) -> str:
        return f"{self._deps.node}/{self._pools.uid}"
