"""How many addresses a node should have: the target, and the reactive monitor.

| symbol | name | meaning |
|---|---|---|
| B | batch | addresses are requested in multiples of it |
| mf, Mf | buffer, max_buffer | minimum and maximum free addresses of a node as a share of the batch, in hundredths |
| m, M | Thresholds.grow, .shrink | the same in addresses: mf * B and Mf * B |
| U | demand | addresses that are assigned, within their retention after use, or missing for scheduled Pods |
| P | primaries | primary addresses of the NC, not assigned to Pods; they count towards the batch |
| Q, R | capacity, reserved | addresses of a subnet, and those of them that cannot be granted now |
| T, t | upper, lower threshold | shares of Q at which a subnet becomes exhausted, and clears |
| N | nodes | |

Arithmetic is exact: shares are integers in hundredths, never floats.
"""

import msgspec


class Scaler(msgspec.Struct, frozen=True):
    """Batch and buffer, as a subnet publishes them to its nodes."""

    batch: int
    buffer: int
    """Minimum free addresses in hundredths of the batch: 50 is half a batch."""

    def exhausted(self) -> "Scaler":
        """Return the scaler of an exhausted subnet: single addresses, at most one free."""
        return Scaler(batch=1, buffer=min(self.buffer, 100))

    def idle(self, primaries: int) -> int:
        """Return what a node needs beside its demand, in hundredths: its buffer, or its primaries and one free."""
        least_free = 1 if self.buffer else 0
        return max(self.buffer * self.batch, 100 * (primaries + least_free))


class NodeHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a node's addresses, from the last status that it read."""

    requested: int
    held: int
    """Secondary addresses, including those pending release."""
    pending_release: int = 0
    """Addresses that the node has released for good."""
    assigned: int = 0


class ScalingStep(msgspec.Struct, frozen=True):
    """The next request of a node, and how many more addresses it releases."""

    request: int
    release: int = 0


class Thresholds(msgspec.Struct, frozen=True):
    """Free addresses below which the reactive monitor grows, and from which it shrinks."""

    grow: int
    shrink: int


def target(*, demand: int, scaler: Scaler, primaries: int, maximum: int) -> int:
    """Return the secondary addresses that a node should have; with its primaries a multiple of the batch."""
    needed = scaler.idle(primaries) + 100 * demand
    batches = -(-needed // (100 * scaler.batch))
    return min(scaler.batch * batches - primaries, maximum)


def demand_bound(*, requested: int, scaler: Scaler, primaries: int) -> int:
    """Return the highest demand that explains a request, for agents that do not report theirs."""
    return max(0, (100 * (requested + primaries) - scaler.idle(primaries)) // 100)


def surplus(holding: NodeHoldings, *, wanted: int) -> int:
    """Return what a node holds beyond its target, by its status: a grant that arrives too late is released too."""
    return max(0, holding.held - holding.pending_release - wanted)


def thresholds(*, batch: int, buffer: int, max_buffer: int) -> Thresholds:
    """Return the thresholds in addresses, halves rounded up."""
    return Thresholds(grow=(batch * buffer + 50) // 100, shrink=(batch * max_buffer + 50) // 100)


def reactive_step(
    holding: NodeHoldings,
    *,
    scaler: Scaler,
    max_buffer: int,
    maximum: int,
    exhausted: bool,
    releasable: int,
) -> ScalingStep:
    """Return the next step of the reactive monitor, one batch at a time: a selectable mode, and a baseline.

    It grows by what is requested and shrinks by what is held, so that a pending grant is neither requested twice nor
    released before it arrives. The request becomes a multiple of the batch on the way.
    """
    batch = 1 if exhausted else min(scaler.batch, maximum)
    free = Thresholds(1, 2) if exhausted else thresholds(batch=batch, buffer=scaler.buffer, max_buffer=max_buffer)
    remainder = holding.requested % batch
    if holding.requested - holding.assigned < free.grow:
        return ScalingStep(request=min(holding.requested + batch - remainder, maximum))
    if holding.held - holding.assigned - holding.pending_release >= free.shrink:
        release = min(remainder or batch, releasable)
        return ScalingStep(request=holding.requested - release, release=release)
    return ScalingStep(request=holding.requested)
