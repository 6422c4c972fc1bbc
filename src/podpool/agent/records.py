"""What the agent writes down: everything that changes its state, in the order in which it happened.

State is what comes of applying the records one after the other, in the running agent and after a restart alike. Times
are on the boot clock of the boot that the last `Started` names; a reboot begins a new count.
"""

from typing import TypeAlias

import msgspec

from podpool.api.azure import NetworkContainer
from podpool.core.addresses import Family


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds an address: one interface of one sandbox. A new sandbox of the same Pod is somebody else."""

    container_id: str
    ifname: str


class PodName(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Pod that a runtime says a sandbox is for; runtimes of old tell no UID, others nothing at all."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """Its UID, or its namespace and name where that is not told."""
        return self.uid or f"{self.namespace}/{self.name}"


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One address given to this node. The id is new each time that the address is given."""

    id: str
    address: str
    since: float
    """When it came; once it was used, when it was last used."""
    used: bool = False
    doubted: bool = False
    """It may have been used: it rests, but nobody's demand stands behind it."""
    container: str = ""
    """Which of the node's further containers it is of; none for the node's own."""
    version: int = 0
    """The version of its container at which it came."""

    @property
    def lane(self) -> "Lane":
        """The container and family that it is of: a sandbox has one address of each."""
        return self.container, Family.V6 if ":" in self.address else Family.V4

    def in_doubt(self, *, at: float) -> "Grant":
        """Count it as used until then, without knowing."""
        return msgspec.structs.replace(self, since=at, used=True, doubted=True)


Lane: TypeAlias = tuple[str, Family]


class Holding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A grant in use."""

    grant: Grant
    owner: Owner
    pod: PodName = PodName()
    network: str = ""
    """The name of the runtime's network, whose GC it is subject to."""
    prefix: int = 0
    """The length of its interface's prefix,"""
    gateway: str = ""
    """and the way out: as they were given, whatever becomes of the container."""
    dropped: bool = False
    """The status no longer lists it, or somebody named it for release: kept for its Pod, and for nobody after it."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="is"):
    """Anything that is written down."""


class Started(Record, frozen=True, kw_only=True, tag="started"):
    """An agent began. `damaged` tells that records were found unreadable."""

    boot_id: str
    boot: float
    wall: float
    damaged: bool = False


class Stopped(Record, frozen=True, kw_only=True, tag="stopped"):
    """An agent ended in good order: nothing was answered after this."""


class Adopted(Record, frozen=True, kw_only=True, tag="adopted"):
    """A quorum read showed which container is this node's; any other is closed for good."""

    container: str
    suspect: bool = False
    """More may have been given of it than the journal knows: a doubt follows, or did not come to it."""


class Confirmed(Record, frozen=True, kw_only=True, tag="confirmed"):
    """A quorum read, sent at these times, showed that Node and container are still this agent's."""

    boot: float
    wall: float
    node_only: bool = False
    """The Node is; of a container nothing was seen, which slices do not need."""


class Accepted(Record, frozen=True, kw_only=True, tag="accepted"):
    """A status was believed."""

    container: NetworkContainer
    at: float


class Parted(Record, frozen=True, kw_only=True, tag="parted"):
    """A further container is not shown any more."""

    container: str


class Programmed(Record, frozen=True, kw_only=True, tag="programmed"):
    """The underlay has come so far, with each container."""

    versions: dict[str, int]


class Assigned(Record, frozen=True, kw_only=True, tag="assigned"):
    """A sandbox was given an address, or with `more` one of each container and family."""

    grant: str
    owner: Owner
    pod: PodName = PodName()
    network: str = ""
    more: tuple[str, ...] = ()


class Released(Record, frozen=True, kw_only=True, tag="released"):
    """A sandbox gave its address back."""

    grant: str
    at: float


class Named(Record, frozen=True, kw_only=True, tag="named"):
    """Grants were let go of, for good; by whom and on which version is for people to read."""

    grants: tuple[str, ...]
    version: int
    boot_id: str


class Doubted(Record, frozen=True, kw_only=True, tag="doubted"):
    """Any address may have been used until now without our knowing: all rest once."""

    at: float
    forgotten: tuple[str, ...] = ()
    """Grants that sandboxes of this very boot may still have: given to nobody and never named, until recalled."""


class Recalled(Record, frozen=True, kw_only=True, tag="recalled"):
    """No sandbox has these after all: they rest from now on."""

    grants: tuple[str, ...]
    at: float


class Tenant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has an address of a slice."""

    owner: Owner
    podref: str = ""
    """The Pod's namespace and name, as an IPPool has it."""
    network: str = ""
    """The name of the runtime's network, whose GC it is subject to."""
    found: bool = False
    """Not given by us: another hand wrote it into the IPPool."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a slice, which goes by the UID of its Lease: a slice that is given again has another."""

    lease: str
    address: str


class SliceTaken(Record, frozen=True, kw_only=True, tag="slice-taken"):
    """A slice is this node's, its Lease says so: what is found in its IPPool is in use."""

    lease: str
    name: str
    """Of the Lease and the IPPool."""
    network: str
    range: str
    slice: str
    at: float
    found: dict[str, Tenant] = {}
    """By address."""
    closed: bool = False
    """Nothing is given of it: it is to leave, and another has its addresses."""
    doubted: bool = False
    """It was this node's before, and the journal knows nothing of it: every address rests once,"""
    unsure: bool = False
    """and in the very same boot, so that sandboxes may still have any: nothing is given until it is recalled."""


class SliceGiven(Record, frozen=True, kw_only=True, tag="slice-given"):
    """A sandbox was given addresses of slices, or was found to have them."""

    tenant: Tenant
    slots: tuple[Slot, ...]


class SliceReturned(Record, frozen=True, kw_only=True, tag="slice-returned"):
    """A sandbox gave them back."""

    slots: tuple[Slot, ...]
    at: float


class SliceSettled(Record, frozen=True, kw_only=True, tag="slice-settled"):
    """Addresses have rested, and the IPPool shows nobody for them: they are as if they had never been used."""

    slots: tuple[Slot, ...]


class SliceClosed(Record, frozen=True, kw_only=True, tag="slice-closed"):
    """A slice was handed back, or its Lease is lost: nothing is given from it again."""

    lease: str


class SliceForgotten(Record, frozen=True, kw_only=True, tag="slice-forgotten"):
    """A slice is closed, its Lease is gone, and nobody has anything of it: there is nothing to know of it any more."""

    lease: str


class SliceRecalled(Record, frozen=True, kw_only=True, tag="slice-recalled"):
    """Nobody has anything of an unsure slice but those who are known: the rest of it rests from now on."""

    lease: str
    at: float


class SliceSigned(Record, frozen=True, kw_only=True, tag="slice-signed"):
    """Its Lease names this boot."""

    lease: str


class SliceRanged(Record, frozen=True, kw_only=True, tag="slice-ranged"):
    """It is of another range from now on: somebody made that larger or smaller, and the slice stayed."""

    lease: str
    range: str


SliceRecord: TypeAlias = (
    SliceTaken
    | SliceGiven
    | SliceReturned
    | SliceSettled
    | SliceClosed
    | SliceForgotten
    | SliceRecalled
    | SliceSigned
    | SliceRanged
)


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The last use of an address that nobody has any more."""

    tenant: Tenant
    since: float


class SliceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slice at one moment; addresses in the order of their last use."""

    lease: str
    name: str
    network: str
    range: str
    slice: str
    closed: bool = False
    signed: bool = True
    unsure: bool = False
    doubted_at: float | None = None
    held: dict[str, Tenant] = {}
    used: dict[str, Past] = {}


class Snapshot(Record, frozen=True, kw_only=True, tag="snapshot"):
    """Everything at one moment: what the records before it came to."""

    boot_id: str = ""
    stopped: bool = False
    suspect: bool = False
    doubted_at: float | None = None
    adopted: str = ""
    closed: tuple[str, ...] = ()
    confirmed: tuple[float, float] | None = None
    container: NetworkContainer | None = None
    beside: tuple[NetworkContainer, ...] = ()
    fresh: tuple[Grant, ...] = ()
    used: tuple[Grant, ...] = ()
    held: tuple[Holding, ...] = ()
    named: tuple[Grant, ...] = ()
    gone: dict[str, float] = {}
    left_out: dict[str, str] = {}
    forgotten: tuple[str, ...] = ()
    slices: tuple[SliceState, ...] = ()
    node_confirmed: tuple[float, float] | None = None
    programmed: dict[str, int] = {}


AnyRecord: TypeAlias = (
    Started
    | Stopped
    | Adopted
    | Confirmed
    | Accepted
    | Parted
    | Programmed
    | Assigned
    | Released
    | Named
    | Doubted
    | Recalled
    | SliceRecord
    | Snapshot
)
