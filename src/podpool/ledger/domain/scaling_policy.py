"""What is decided for a subnet as a whole: its rung, whether it is exhausted, and when to look again.

All of it is a function of the subnet's row, whose sums cover all containers in all clusters, and of its time. The
all-clear waits until what everybody will hold with the scaler in force fits below the upper threshold.
"""

from functools import lru_cache

from msgspec.structs import replace

from podpool.core.batch_policy import BatchGrade, BatchRules, Load, SubnetDemand, batch_ladder, grade_batch
from podpool.core.exhaustion import is_exhausted
from podpool.core.scaling import Scaler
from podpool.ledger.domain.rows import SubnetRow


@lru_cache(maxsize=1024)
def rungs(batch: int, buffer: int) -> tuple[Scaler, ...]:
    """List the scalers of a subnet, from the one that it was made with down to the bare one."""
    return batch_ladder(Scaler(batch, buffer))


@lru_cache(maxsize=1 << 14)
def reservations(load: Load, batch: int, buffer: int) -> tuple[int, ...]:
    """Count what a container will hold, on each rung."""
    return tuple(load.reservation(scaler) for scaler in rungs(batch, buffer))


def rungs_of(subnet: SubnetRow) -> tuple[Scaler, ...]:
    """List the scalers of this subnet."""
    return rungs(subnet.made.batch, subnet.made.buffer)


def scaler_of(subnet: SubnetRow) -> Scaler:
    """Tell the scaler in force."""
    return rungs_of(subnet)[subnet.grade.rung]


def reserved(subnet: SubnetRow, now: float) -> int:
    """Count everything that cannot be granted now."""
    return subnet.held + subnet.asleep(now)


def judge(subnet: SubnetRow, now: float) -> SubnetRow:
    """Decide rung and exhaustion anew, and when to do so again; what drains is to hold no idle address."""
    if subnet.draining:
        bare = replace(subnet, grade=BatchGrade(len(subnet.totals) - 1), exhausted=True)
        return replace(bare, due=_due(bare, now))
    made, capacity = subnet.made, subnet.ground.capacity
    view = SubnetDemand(totals=subnet.totals, capacity=capacity, waiting=subnet.need > 0, settled=subnet.unsettled == 0)
    rules = BatchRules(upper=made.upper_threshold, margin=made.step_up_margin, hold=made.step_up_hold)
    graded = grade_batch(subnet.grade, view, now=now, rules=rules)
    exhausted = is_exhausted(
        before=subnet.exhausted,
        reserved=reserved(subnet, now),
        projected=subnet.totals[graded.rung],
        capacity=capacity,
        upper=made.upper_threshold,
        lower=made.lower_threshold,
    )
    judged = replace(subnet, grade=graded, exhausted=exhausted)
    return replace(judged, due=_due(judged, now))


def _due(subnet: SubnetRow, now: float) -> float | None:
    moments = [subnet.reread_at, subnet.lapse_at]
    if subnet.grade.better_since is not None:
        moments.append(subnet.grade.better_since + subnet.made.step_up_hold)
    if subnet.quiet_until > now:
        moments.append(subnet.quiet_until)
    if subnet.exhausted or subnet.need or subnet.wish:  # else nobody is concerned when a rest ends
        moments.extend(since / 1_000 + subnet.cooldown for since, _ in subnet.resting[:1])
    known = [moment for moment in moments if moment is not None]
    return min(known) - subnet.shift if known else None
