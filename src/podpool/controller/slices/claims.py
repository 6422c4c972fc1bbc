"""Who may be using which slice: every IPPool of a node with the Lease of its name, as one claim.

What must hold: a slice counts as a node's from before its IPPool is there until Lease and IPPool are gone. A node that
was deleted and registered again in the same boot is the node that it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from podpool.controller.slices.mirrors import Latest, SliceMirrors
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.resources.builtin import Lease, Node
from podpool.resources.meta import Object
from podpool.resources.whereabouts import (
    BOOT_ANNOTATION,
    LEAVE_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    SLICE_ANNOTATION,
    IPPool,
)
from podpool.slices.places import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.slices.table import Holding


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An IPPool and a Lease of one name, of which one may be missing."""

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
    pooled: bool = True
    leased: bool = False
    taken: bool = False
    """Its Lease has a holder."""
    filled: bool = False
    """Its IPPool has entries."""
    leave: str = ""
    """Why it is asked back."""

    @property
    def held(self) -> bool:
        """Tell whether somebody may be using addresses of it."""
        return self.taken or self.filled

    @property
    def spent(self) -> bool:
        """Tell whether its Lease was taken and handed back: the agent takes it never again."""
        return self.leased and self.boot != "" and not self.taken

    def belongs(self, node: Node | None) -> bool:
        """Tell whether it is this Node's, or of the same boot of the same machine."""
        if node is None or node.metadata.name != self.node:
            return False
        return self.uid == node.metadata.uid or (self.boot != "" and self.boot == node.boot_id)

    def holding(self, node: Node | None) -> Holding:
        """Write it as tables take it, under the UID that the machine has now."""
        return Holding(self.slice, self.node, node.metadata.uid if node and self.belongs(node) else self.uid)


Changed = Callable[[Claim | None, Claim | None], None]


class Claims:
    """All claims, by name, by network and by node; in step with what is known of the objects."""

    def __init__(self, mirrors: SliceMirrors, *, changed: Changed) -> None:
        self.pools = Latest(mirrors.pools, changed=self.refresh)
        self.leases = Latest(mirrors.leases, changed=self.refresh)
        self.strangers: dict[str, IPPool] = {}
        """Pools by name that belong to no node, or to one that nobody has labelled them with."""
        self._changed = changed
        self._claims: dict[str, Claim] = {}
        self._networks: dict[str, dict[str, Claim]] = {}
        self._nodes: dict[str, dict[str, Claim]] = {}

    def get(self, name: str) -> Claim | None:
        """Find one."""
        return self._claims.get(name)

    def values(self) -> tuple[Claim, ...]:
        """List all."""
        return tuple(self._claims.values())

    def of_network(self, network: str) -> tuple[Claim, ...]:
        """List those in a network."""
        return tuple(self._networks.get(network, {}).values())

    def of_node(self, node: str) -> tuple[Claim, ...]:
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

    def refresh(self, name: str) -> Claim | None:
        """Look at one again, and have it told when it is another now."""
        pool = self.pools.get(name)
        old, new = self._claims.get(name), _read(pool, self.leases.get(name))
        if pool is not None and not _ours(pool):
            self.strangers[name] = pool
        else:
            self.strangers.pop(name, None)
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


def _read(pool: IPPool | None, lease: Lease | None) -> Claim | None:
    """Read what is ours; a pool of others, or of all nodes, is no claim."""
    pool = pool if pool is not None and _ours(pool) else None
    lease = lease if lease is not None and _ours(lease) else None
    one = pool or lease
    if one is None:
        return None
    notes = one.metadata.annotations
    try:
        slice_ = parse_prefix(pool.spec.range if pool else notes.get(SLICE_ANNOTATION, ""))
        whole = parse_prefix(notes.get(RANGE_ANNOTATION, str(slice_)))
    except InvalidInput:
        return None
    return Claim(
        name=one.metadata.name,
        network=notes.get(NETWORK_ANNOTATION, ""),
        range=whole,
        slice=slice_,
        node=notes[NODE_ANNOTATION],
        uid=one.metadata.labels[NODE_UID_LABEL],
        boot=(lease or one).metadata.annotations.get(BOOT_ANNOTATION, ""),
        pooled=pool is not None,
        leased=lease is not None,
        taken=bool(lease and lease.spec.holder_identity),
        filled=bool(pool and pool.spec.allocations),
        leave=pool.metadata.annotations.get(LEAVE_ANNOTATION, "") if pool else "",
    )


def _ours(obj: Object) -> bool:
    return NODE_ANNOTATION in obj.metadata.annotations and NODE_UID_LABEL in obj.metadata.labels
