"""Who may be using which slice: every IPPool of a node with the Lease of its name, as one claim, or an agent's word.

What must hold: a slice counts as a node's from before its IPPool is there until Lease and IPPool are gone, and for as
long as its agent says that Pods have addresses of it. A node that was deleted and registered again in the same boot is
the node that it was.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from podpool.api.builtin import Lease, Node
from podpool.api.meta import KubeObject
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SIGNATURE_ANNOTATION,
    SLICE_ANNOTATION,
    IPPool,
    LostSlice,
)
from podpool.controller.slices.informers import SliceInformers, WriteThroughCache
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice


class OwnedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """An IPPool and a Lease of one name, of which one may be missing; or both, where an agent has lost them."""

    name: str
    network: str
    range: Prefix
    """The whole range that the slice is of, as it was last known to be."""
    slice: Prefix
    node: str
    uid: str
    """Of the Node that they are labelled with."""
    boot: str = ""
    """Of the machine whose agent took it."""
    pooled: bool = False
    lease: str = ""
    """The UID of its Lease, if there is one."""
    taken: bool = False
    """That has a holder,"""
    spent: bool = False
    """or had one, who handed it back, and takes it never again."""
    signature: str = ""
    granted: str = ""
    """The signature that was agreed to."""
    filled: bool = False
    """Its IPPool has entries."""
    told: bool = False
    """An agent says that it lost it, and that Pods have addresses of it."""
    leave: str = ""
    """Why it is asked back."""

    @property
    def held(self) -> bool:
        """Tell whether somebody may be using addresses of it, or is about to."""
        return self.taken or self.filled or self.told

    @property
    def sure(self) -> bool:
        """Tell whether somebody may be using addresses of it: who has only signed gives none."""
        return self.shown or self.told

    @property
    def shown(self) -> bool:
        """Tell whether IPPool or Lease show that somebody may."""
        return self.filled or (self.taken and self.signature == self.granted)

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Tell how much it weighs against another of the same addresses."""
        return self.sure, self.taken, bool(self.lease)

    def belongs(self, node: Node | None) -> bool:
        """Tell whether it is this Node's, or of the same boot of the same machine."""
        if node is None or node.metadata.name != self.node:
            return False
        return self.uid == node.metadata.uid or (self.boot != "" and self.boot == node.boot_id)

    def holding(self, node: Node | None) -> HeldSlice:
        """Write it as tables take it, under the UID that the machine has now."""
        return HeldSlice(self.slice, self.node, node.metadata.uid if node and self.belongs(node) else self.uid)


Changed = Callable[[OwnedSlice | None, OwnedSlice | None], None]
Strange = Callable[[IPPool | None, IPPool | None], None]


class SliceOwnership:
    """All claims, by name, by network and by node; in step with what is known of the objects."""

    def __init__(self, mirrors: SliceInformers, *, changed: Changed, strange: Strange) -> None:
        self.pools = WriteThroughCache(mirrors.pools, changed=self.refresh)
        self.leases = WriteThroughCache(mirrors.leases, changed=self.refresh)
        self.strangers: dict[str, IPPool] = {}
        """Pools by name that belong to no node, or to one that nobody has labelled them with."""
        self._changed = changed
        self._strange = strange
        """Whom to tell that a stranger has changed."""
        self._told: dict[str, OwnedSlice] = {}
        """What agents have lost, as they say;"""
        self._claims: dict[str, OwnedSlice] = {}
        """and everything."""
        self._networks: dict[str, dict[str, OwnedSlice]] = {}
        self._nodes: dict[str, dict[str, OwnedSlice]] = {}

    def get(self, name: str) -> OwnedSlice | None:
        """Find one."""
        return self._claims.get(name)

    def values(self) -> tuple[OwnedSlice, ...]:
        """List all."""
        return tuple(self._claims.values())

    def of_network(self, network: str) -> tuple[OwnedSlice, ...]:
        """List those in a network."""
        return tuple(self._networks.get(network, {}).values())

    def of_node(self, node: str) -> tuple[OwnedSlice, ...]:
        """List those under a node's name."""
        return tuple(self._nodes.get(node, {}).values())

    @contextmanager
    def following(self) -> Iterator[None]:
        """Be in step with what the mirrors show, for a while."""
        endings = [self.pools.follow(), self.leases.follow()]
        try:
            yield
        finally:
            for end in endings:
                end()

    def networks(self) -> tuple[str, ...]:
        """List the networks in which there are any."""
        return tuple(network for network, claims in self._networks.items() if claims)

    def hear(self, node: Node, lost: Iterable[LostSlice], *, whole: bool) -> None:
        """Take down what a Node's agent has lost; what it told before is over when this is the `whole`."""
        now = {each.name: each for each in _lost_by(node, lost)}
        before = [name for name, each in self._told.items() if each.belongs(node)]
        for name in [each for each in before if whole and each not in now]:
            self.unsay(name)
        for name, claim in now.items():
            self._told[name] = claim
            self.refresh(name)

    def has_word_of(self, node: Node) -> bool:
        """Tell whether something counts that its agent told on an earlier Node of the same machine."""
        return any(each.belongs(node) and each.uid != node.metadata.uid for each in self._told.values())

    def unsay(self, name: str) -> None:
        """Let an agent's word count no more."""
        if self._told.pop(name, None):
            self.refresh(name)

    def refresh(self, name: str) -> OwnedSlice | None:
        """Look at one again, and have it told when it is another now."""
        pool = self.pools.get(name)
        old, new = self._claims.get(name), _read(pool, self.leases.get(name), self._told.get(name))
        self._look_at_stranger(name, pool if pool is not None and not _ours(pool) else None)
        if old == new:
            return new
        for by, key in ((self._networks, "network"), (self._nodes, "node")):
            if old is not None:
                by[getattr(old, key)].pop(name, None)
            if new is not None:
                by.setdefault(getattr(new, key), {})[name] = new
        if new is None:
            self._claims.pop(name, None)
        else:
            self._claims[name] = new
        self._changed(old, new)
        return new

    def _look_at_stranger(self, name: str, now: IPPool | None) -> None:
        before = self.strangers.pop(name, None)
        if now is not None:
            self.strangers[name] = now
        if before != now:
            self._strange(before, now)


def undisputed(claims: Iterable[OwnedSlice]) -> list[OwnedSlice]:
    """Leave out what others have a better claim to; where two may be in use both stay, for people to settle."""
    kept: dict[str, OwnedSlice] = {}
    around: list[OwnedSlice] = []
    for claim in sorted(claims, key=lambda each: (each.slice, each.name)):
        around = [each for each in around if each.slice.range.overlaps(claim.slice.range)]
        if not claim.sure and any(_is_better(each, claim) for each in around):
            continue
        for each in [each for each in around if not each.sure and _is_better(claim, each)]:
            kept.pop(each.name, None)
            around.remove(each)
        kept[claim.name] = claim
        around.append(claim)
    return list(kept.values())


def _is_better(one: OwnedSlice, other: OwnedSlice) -> bool:
    """Tell whether one stands in the way of another, with which it shares addresses.

    Of a node's own, what is in use: another with the same addresses would be agreed to only once that is handed back.
    """
    if (one.node, one.uid) == (other.node, other.uid):
        return one.shown
    return one.rank >= other.rank


def _lost_by(node: Node, lost: Iterable[LostSlice]) -> Iterator[OwnedSlice]:
    for each in lost:
        with suppress(InvalidInput):
            slice_ = parse_prefix(each.slice)
            yield OwnedSlice(
                name=PoolIdentifier(range=slice_, network=each.network, node=node.metadata.name).name,
                network=each.network,
                range=parse_prefix(each.range),
                slice=slice_,
                node=node.metadata.name,
                uid=node.metadata.uid,
                boot=node.boot_id,
                told=True,
            )


def _read(pool: IPPool | None, lease: Lease | None, told: OwnedSlice | None) -> OwnedSlice | None:
    """Read what is ours; a pool of others, or of all nodes, is no claim."""
    pool = pool if pool is not None and _ours(pool) else None
    lease = lease if lease is not None and _ours(lease) else None
    shown = _shown(pool, lease)
    if shown is None or told is None:
        return shown or told
    return msgspec.structs.replace(shown, uid=told.uid, boot=told.boot, told=True)


def _shown(pool: IPPool | None, lease: Lease | None) -> OwnedSlice | None:
    one = pool or lease
    if one is None:
        return None
    notes, signed = one.metadata.annotations, lease.metadata.annotations if lease else {}
    try:
        slice_ = parse_prefix(pool.spec.range if pool else notes.get(SLICE_ANNOTATION, ""))
        whole = parse_prefix(notes.get(RANGE_ANNOTATION, str(slice_)))
    except InvalidInput:
        return None
    taken = bool(lease and lease.spec.holder_identity)
    return OwnedSlice(
        name=one.metadata.name,
        network=notes.get(NETWORK_ANNOTATION, ""),
        range=whole,
        slice=slice_,
        node=notes[NODE_ANNOTATION],
        uid=one.metadata.labels[NODE_UID_LABEL],
        boot=signed.get(BOOT_ANNOTATION, notes.get(BOOT_ANNOTATION, "")),
        pooled=pool is not None,
        lease=lease.metadata.uid if lease else "",
        taken=taken,
        spent=BOOT_ANNOTATION in signed and not taken,
        signature=signed.get(SIGNATURE_ANNOTATION, ""),
        granted=signed.get(GRANTED_ANNOTATION, ""),
        filled=bool(pool and pool.spec.allocations),
        leave=notes.get(RETURN_ANNOTATION, "") if pool else "",
    )


def _ours(obj: KubeObject) -> bool:
    return NODE_ANNOTATION in obj.metadata.annotations and NODE_UID_LABEL in obj.metadata.labels
