"""How many addresses a node should have.

| sign | here | what it is |
|---|---|---|
| B | batch | addresses move in multiples of it |
| mf, Mf | buffer, max_buffer | least and most free addresses of a node, as a share of the batch, in hundredths |
| m, M | Thresholds.grow, .shrink | the same as numbers of addresses: mf * B and Mf * B |
| U | demand | addresses that Pods of the node use, let rest, or wait for |
| P | primaries | addresses that come with each container and are not for Pods; they count towards the batch |
| Q, R | capacity, reserved | addresses of a subnet, and those that cannot be granted now |
| T, t | upper, lower | shares of Q where a subnet becomes exhausted, and is all clear again |
| N | nodes | |

Arithmetic is exact: shares are whole hundredths, and nothing is ever a float.
"""

import msgspec


class Scaler(msgspec.Struct, frozen=True):
    """The two numbers that a subnet gives to the nodes on it."""

    batch: int
    buffer: int
    """Least free addresses as hundredths of the batch: 50 is half a batch."""

    def exhausted(self) -> "Scaler":
        """Scale by single addresses, and keep no more than one free."""
        return Scaler(batch=1, buffer=min(self.buffer, 100))

    def idle(self, primaries: int) -> int:
        """Hundredths of addresses that a node needs beside its demand: its buffer, or its primaries and one free."""
        least_free = 1 if self.buffer else 0
        return max(self.buffer * self.batch, 100 * (primaries + least_free))


class NodeHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has, by the last status that it read."""

    requested: int
    held: int
    """Secondary addresses, those named for release too."""
    pending_release: int = 0
    """Addresses that the node has named for release and never uses again."""
    assigned: int = 0


class ScalingStep(msgspec.Struct, frozen=True):
    """What a node asks for next: its request, and how many more addresses it names for release."""

    request: int
    release: int = 0


class Thresholds(msgspec.Struct, frozen=True):
    """Free addresses below which the reactive monitor grows, and from which on it shrinks."""

    grow: int
    shrink: int


def target(*, demand: int, scaler: Scaler, primaries: int, maximum: int) -> int:
    """Count the secondary addresses that a node with this demand should have: with its primaries whole batches."""
    needed = scaler.idle(primaries) + 100 * demand
    batches = -(-needed // (100 * scaler.batch))
    return min(scaler.batch * batches - primaries, maximum)


def demand_bound(*, requested: int, scaler: Scaler, primaries: int) -> int:
    """Bound the demand behind a request, for agents that do not tell theirs."""
    return max(0, (100 * (requested + primaries) - scaler.idle(primaries)) // 100)


def surplus(holding: NodeHoldings, *, wanted: int) -> int:
    """Count what a node holds beyond its wish, from what the status shows: a grant that arrives late goes back too."""
    return max(0, holding.held - holding.pending_release - wanted)


def thresholds(*, batch: int, buffer: int, max_buffer: int) -> Thresholds:
    """Turn shares of a batch into numbers of addresses, halves rounded up."""
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
    """Move by one batch: the monitor that came first, kept as a mode and to compare with.

    It grows on what it expects and shrinks on what it has, so that a grant under way is neither asked for twice nor
    given back before it is there. The request is brought to a multiple of the batch on the way.
    """
    batch = 1 if exhausted else min(scaler.batch, maximum)
    free = Thresholds(1, 2) if exhausted else thresholds(batch=batch, buffer=scaler.buffer, max_buffer=max_buffer)
    ragged = holding.requested % batch
    if holding.requested - holding.assigned < free.grow:
        return ScalingStep(request=min(holding.requested + batch - ragged, maximum))
    if holding.held - holding.assigned - holding.pending_release >= free.shrink:
        release = min(ragged or batch, releasable)
        return ScalingStep(request=holding.requested - release, release=release)
    return ScalingStep(request=holding.requested)
