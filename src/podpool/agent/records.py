"""Journal records: every change of the agent's state, in the order in which it happened.

State is the result of applying the records one after the other, in the running agent and after a restart alike. Times
are on the boot clock (`CLOCK_BOOTTIME`) of the boot that the last `Started` names; a reboot starts a new count.
"""

from typing import TypeAlias

import msgspec

from podpool.api.azure import NetworkContainer
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Family

NCFamily: TypeAlias = tuple[str, Family]
"""A network container (empty for the node's own) and an address family: a sandbox gets one address of each."""


class PodIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Pod of a sandbox, from CNI_ARGS. Old runtimes pass no UID; some runtimes pass nothing."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """The UID, or namespace/name without one."""
        return self.uid or self.qualified_name

    @property
    def qualified_name(self) -> str:
        """Namespace/name."""
        return f"{self.namespace}/{self.name}"


class PoolGrant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address granted to this node. The ledger issues a new ID each time it grants an address."""

    id: str
    address: str
    since: float
    """When it was granted; once it was used, when it was last used."""
    used: bool = False
    use_assumed: bool = False
    """It may have been used without a record: it cools down, but does not count as demand."""
    nc: str = ""
    """Its network container; empty for the node's own."""
    version: int = 0
    """The version of the network container that first listed it."""

    @property
    def nc_family(self) -> NCFamily:
        """Its network container and address family."""
        return self.nc, Family.V6 if ":" in self.address else Family.V4

    def assume_used(self, *, at: float) -> "PoolGrant":
        """Return the grant as used until `at`, without a record of the use."""
        return msgspec.structs.replace(self, since=at, used=True, use_assumed=True)


class GrantAssignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A grant in use by a sandbox. A new sandbox of the same Pod is another attachment."""

    grant: PoolGrant
    attachment: Attachment
    pod: PodIdentity = PodIdentity()
    network: str = ""
    """The CNI network name; a GC of this network may remove the assignment."""
    prefix: int = 0
    gateway: str = ""
    """Prefix length and gateway as returned by ADD, whatever the NC says later."""
    netns: str = ""
    added: float = 0.0
    """Network namespace and time of the ADD; empty and 0 in records of older agents."""
    revoked: bool = False
    """The NNC no longer lists it, or a third party released it: its Pod keeps it, no later Pod gets it."""


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """One journal record."""


class Started(JournalRecord, frozen=True, kw_only=True, tag="started"):
    """An agent started. `damaged`: unreadable records were found."""

    boot_id: str
    boot: float
    wall: float
    damaged: bool = False
    journal: str = ""
    """When the journal was created, which identifies it."""


class Stopped(JournalRecord, frozen=True, kw_only=True, tag="stopped"):
    """An agent shut down cleanly: nothing was answered after this."""


class NCAdopted(JournalRecord, frozen=True, kw_only=True, tag="nc-adopted"):
    """A quorum read showed which network container is this node's; any other is closed for good."""

    nc: str
    incomplete: bool = False
    """Grants of it may be in use without a record; a `CooldownForced` follows, unless the agent died before it."""


class NodeConfirmed(JournalRecord, frozen=True, kw_only=True, tag="node-confirmed"):
    """A quorum read, sent at these times, showed that Node and network container are still this agent's."""

    boot: float
    wall: float
    node_only: bool = False
    """Only the Node was confirmed, which is enough for slices."""
    reopened: bool = False
    """The fence was closed before: every slice has to be confirmed anew."""


class NCAccepted(JournalRecord, frozen=True, kw_only=True, tag="nc-accepted"):
    """The status of a network container was accepted."""

    nc: NetworkContainer
    at: float


class NCRemoved(JournalRecord, frozen=True, kw_only=True, tag="nc-removed"):
    """The status no longer lists an additional network container."""

    nc: str


class NCProgrammed(JournalRecord, frozen=True, kw_only=True, tag="nc-programmed"):
    """The version up to which the underlay has programmed each network container."""

    versions: dict[str, int]


class Assigned(JournalRecord, frozen=True, kw_only=True, tag="assigned"):
    """A sandbox got an address; with `more`, one of each network container and family."""

    grant: str
    attachment: Attachment
    pod: PodIdentity = PodIdentity()
    network: str = ""
    more: tuple[str, ...] = ()
    netns: str = ""
    added: float = 0.0


class Unassigned(JournalRecord, frozen=True, kw_only=True, tag="unassigned"):
    """A sandbox was deleted: its address cools down."""

    grant: str
    at: float


class ReleasePending(JournalRecord, frozen=True, kw_only=True, tag="release-pending"):
    """Grants were released for good. Version and boot ID are for people who read the journal."""

    grants: tuple[str, ...]
    version: int
    boot_id: str


class CooldownForced(JournalRecord, frozen=True, kw_only=True, tag="cooldown-forced"):
    """Any address may have been used without a record: all cool down once."""

    at: float
    lost: tuple[str, ...] = ()
    """Grants that sandboxes of this boot may still use: neither assigned nor released until cleared."""
    incomplete: bool = False
    """Which grants are lost is not known: in journals of development versions."""


class LostGrantsCleared(JournalRecord, frozen=True, kw_only=True, tag="lost-grants-cleared"):
    """No sandbox uses these lost grants: they cool down from now on."""

    grants: tuple[str, ...]
    at: float


class SliceHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user of an address of a slice."""

    attachment: Attachment
    podref: str = ""
    """Namespace/name of the Pod, as in an IPPool."""
    network: str = ""
    """The CNI network name; a GC of this network may remove it."""
    inferred: bool = False
    """Known from the IPPool or the Pod's status only: this agent has no record of an ADD."""
    pod_uid: str = ""
    netns: str = ""
    added: float = 0.0
    """Pod, network namespace and time of the ADD, as in `GrantAssignment`."""


class SliceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a slice. A slice is identified by the ID of its assignment, new each time it is assigned."""

    assignment: str
    address: str


class SliceAcquired(JournalRecord, frozen=True, kw_only=True, tag="slice-acquired"):
    """This node holds a slice; entries of its IPPool are in use."""

    assignment: str
    name: str
    """Name of its IPPool and Lease."""
    network: str
    range: str
    slice: str
    at: float
    holders: dict[str, SliceHolder] = {}
    """Entries of the IPPool, by address."""
    confirmed: bool = False
    """The controller has confirmed it: its addresses may be assigned."""
    closed: bool = False
    """No address of it is assigned: another slice has some of them, and it is to be returned."""
    force_cooldown: bool = False
    """It was this node's before without a record in the journal: every address cools down once."""
    recovering: bool = False
    """As before, in the same boot: sandboxes may use any address, so none is assigned before `SliceRecovered`."""


class SliceAssigned(JournalRecord, frozen=True, kw_only=True, tag="slice-assigned"):
    """A sandbox got addresses of slices, or was found to use them."""

    holder: SliceHolder
    addresses: tuple[SliceAddress, ...]


class SliceUnassigned(JournalRecord, frozen=True, kw_only=True, tag="slice-unassigned"):
    """A sandbox was deleted: its addresses cool down."""

    addresses: tuple[SliceAddress, ...]
    at: float


class SliceCooledDown(JournalRecord, frozen=True, kw_only=True, tag="slice-cooled-down"):
    """Addresses have cooled down and the IPPool has no entry for them: they count as never used."""

    addresses: tuple[SliceAddress, ...]


class SliceClosed(JournalRecord, frozen=True, kw_only=True, tag="slice-closed"):
    """A slice is returned when it is unused: no address of it is assigned again."""

    assignment: str


class SliceRemoved(JournalRecord, frozen=True, kw_only=True, tag="slice-removed"):
    """A closed slice that is neither assigned to the node nor in use was removed from the state."""

    assignment: str


class SliceRecovered(JournalRecord, frozen=True, kw_only=True, tag="slice-recovered"):
    """All users of a recovering slice are known: its other addresses cool down from now on."""

    assignment: str
    at: float


class SliceConfirmed(JournalRecord, frozen=True, kw_only=True, tag="slice-confirmed"):
    """The controller has confirmed a slice anew: its addresses may be assigned again."""

    assignment: str


class SliceSuspended(JournalRecord, frozen=True, kw_only=True, tag="slice-suspended"):
    """NodeSlices does not list a slice: none of its addresses is assigned before it is confirmed anew."""

    assignment: str


class SliceRangeChanged(JournalRecord, frozen=True, kw_only=True, tag="slice-range-changed"):
    """The range of a slice was made larger or smaller; the slice itself did not change."""

    assignment: str
    range: str


class NodeSlicesObserved(JournalRecord, frozen=True, kw_only=True, tag="node-slices-observed"):
    """NodeSlices was read at a version."""

    version: str
    rolled_back: str = ""
    """A newer version that was read before, until it is reported: the API server was restored."""


SliceChange: TypeAlias = (
    SliceConfirmed | SliceSuspended | SliceRecovered | SliceRangeChanged | SliceClosed | SliceRemoved
)
SliceRecord: TypeAlias = (
    SliceAcquired | SliceChange | SliceAssigned | SliceUnassigned | SliceCooledDown | NodeSlicesObserved
)


class PastUse(msgspec.Struct, frozen=True, kw_only=True):
    """The last use of an address that is no longer assigned."""

    holder: SliceHolder
    since: float


class SliceSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slice in a snapshot; addresses in the order of their last use."""

    assignment: str
    name: str
    network: str
    range: str
    slice: str
    confirmed: bool = False
    closed: bool = False
    recovering: bool = False
    cooldown_forced_at: float | None = None
    assigned: dict[str, SliceHolder] = {}
    used: dict[str, PastUse] = {}


class Snapshot(JournalRecord, frozen=True, kw_only=True, tag="snapshot"):
    """The whole state: the result of all records before it."""

    boot_id: str = ""
    stopped: bool = False
    incomplete: bool = False
    cooldown_forced_at: float | None = None
    adopted_nc: str = ""
    closed_ncs: tuple[str, ...] = ()
    confirmed: tuple[float, float] | None = None
    nc: NetworkContainer | None = None
    additional_ncs: tuple[NetworkContainer, ...] = ()
    unused: tuple[PoolGrant, ...] = ()
    used: tuple[PoolGrant, ...] = ()
    assigned: tuple[GrantAssignment, ...] = ()
    pending_release: tuple[PoolGrant, ...] = ()
    departed: dict[str, float] = {}
    unusable: dict[str, str] = {}
    lost: tuple[str, ...] = ()
    slices: tuple[SliceSnapshot, ...] = ()
    returned_slices: dict[str, str] = {}
    node_slices: NodeSlicesObserved | None = None
    node_confirmed: tuple[float, float] | None = None
    programmed: dict[str, int] = {}
    journal: str = ""


NCRecord: TypeAlias = NCAdopted | NCAccepted | NCRemoved | NCProgrammed
GrantRecord: TypeAlias = Assigned | Unassigned | ReleasePending | CooldownForced | LostGrantsCleared
AnyRecord: TypeAlias = Started | Stopped | NodeConfirmed | NCRecord | GrantRecord | SliceRecord | Snapshot
