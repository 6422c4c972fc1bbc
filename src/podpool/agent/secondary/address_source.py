"""Where a Pod's further addresses come from, and how they are asked for.

One configuration has one range or several, all of the node's slices, or all shared by the nodes. Each kind is a source.
A source answers for all ranges of a want, or for none: what it took it gives back when it cannot give the rest. The
same owner gets the same addresses again. To give back what nobody has is a success.
"""

from typing import Protocol

import msgspec

from podpool.agent.records import Attachment, PodIdentity
from podpool.core.addresses import Address
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig, RangeConfig


class AddressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of one sandbox, and what it wants addresses of."""

    config: IpamConfig
    owner: PodInterface
    pod: PodIdentity = PodIdentity()
    deadline: float = 0.0
    """Until when it is worth waiting, on the boot clock."""

    @property
    def ranges(self) -> tuple[RangeConfig, ...]:
        """What an address is wanted of each."""
        return self.config.ranges

    @property
    def sandbox(self) -> Attachment:
        """The owner as the journal names it: without its Pod."""
        return Attachment(container_id=self.owner.container, ifname=self.owner.ifname)


class AddressSource(Protocol):
    """Gives addresses of ranges; whatever it cannot do it raises as `CniError`, for the person who must act."""

    async def give(self, want: AddressRequest) -> tuple[Address, ...]:
        """Give one address of each of the want's ranges, in their order, or nothing."""

    async def give_back(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        """Take back what a sandbox's interface is known to have, and what it has of any range of the want."""

    def release(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        """See that the same is done, without waiting for anybody: once this has returned, it will be."""

    async def check(self, want: AddressRequest) -> tuple[Address, ...]:
        """Tell what the owner has, in the order of the ranges; `CHECK_MISMATCH` when one has nothing."""

    async def collect(self, network: str, valid: frozenset[Attachment]) -> None:
        """Take back what sandboxes have in one of the runtime's networks that are not listed as valid any more."""
