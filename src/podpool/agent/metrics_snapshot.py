"""The agent at one moment, in numbers: what its metrics are made of."""

import msgspec

from podpool.agent.scaling_modes import Terms
from podpool.api.azure import NetworkContainer


class SlicePicture(msgspec.Struct, frozen=True, kw_only=True):
    """A slice at one moment, in numbers."""

    network: str
    range: str
    slice: str
    size: int
    """Addresses that are not its first or last."""
    assigned: int
    resting: int
    lag: float
    """Seconds for which its IPPool has been behind."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to count."""

    containers: tuple[NetworkContainer, ...]
    terms: Terms | None
    requested: int
    primaries: int
    listed: int
    assigned: int
    available: int
    resting: int
    unprogrammed: int
    """Addresses that the underlay does not know yet."""
    named: int
    left_out: int
    """Grants that the status lists and nobody can use."""
    dropped: int
    """Addresses in use that the status no longer lists."""
    waiting_adds: int
    waiting_pods: int
    """Pods that wait for what the subnet does not have."""
    fence_age: float | None
    fenced: bool
    journal_bytes: int
    journal_records: int
    silence: dict[str, float]
    """Seconds since each watch last told anything; infinite before the first time."""
    slices: tuple[SlicePicture, ...] = ()
    exhaustions: dict[bool, int]
    """How often the subnet was seen to become exhausted, and all clear."""
