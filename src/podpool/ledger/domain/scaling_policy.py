"""The scaling decisions for a subnet: its scaler, whether it is exhausted, and when to decide again.

They are functions of the subnet's row, whose totals cover all NCs in all clusters, and of its time. Exhaustion ends
when the addresses that all NCs will hold with the scaler in force fit below the upper threshold.
"""

from functools import lru_cache

from msgspec.structs import replace

from podpool.core.batch_ladder import BatchGrade, BatchRules, Load, SubnetDemand, batch_ladder, grade_batch
from podpool.core.exhaustion import is_exhausted
from podpool.core.scaling import Scaler
from podpool.ledger.domain.rows import SubnetRow


@lru_cache(maxsize=1024)
def _ladder(batch: int, buffer: int) -> tuple[Scaler, ...]:
    return batch_ladder(Scaler(batch, buffer))


@lru_cache(maxsize=1 << 14)
def reservations(load: Load, batch: int, buffer: int) -> tuple[int, ...]:
    """Return the addresses that an NC will hold, for each scaler of the ladder."""
    return tuple(load.reservation(scaler) for scaler in _ladder(batch, buffer))


def scaler_ladder(subnet: SubnetRow) -> tuple[Scaler, ...]:
    """Return the scalers of a subnet, from that of its spec down to the smallest."""
    return _ladder(subnet.spec.batch, subnet.spec.buffer)


def scaler_of(subnet: SubnetRow) -> Scaler:
    """Return the scaler in force."""
    return scaler_ladder(subnet)[subnet.grade.rung]


def reserved(subnet: SubnetRow, now: float) -> int:
    """Count the addresses that cannot be granted now."""
    return subnet.held + subnet.cooling_down(now)


def decide_scaling(subnet: SubnetRow, now: float) -> SubnetRow:
    """Return the subnet with its scaler, exhaustion and next timer; nodes of a draining subnet keep nothing idle."""
    if subnet.draining:
        smallest = replace(subnet, grade=BatchGrade(len(subnet.totals) - 1), exhausted=True)
        return replace(smallest, due=_due(smallest, now))
    spec, capacity = subnet.spec, subnet.layout.capacity
    demand = SubnetDemand(
        totals=subnet.totals, capacity=capacity, waiting=subnet.pod_shortage > 0, settled=subnet.unsettled == 0
    )
    rules = BatchRules(upper=spec.upper_threshold, margin=spec.step_up_margin, hold=spec.step_up_hold)
    grade = grade_batch(subnet.grade, demand, now=now, rules=rules)
    exhausted = is_exhausted(
        before=subnet.exhausted,
        reserved=reserved(subnet, now),
        projected=subnet.totals[grade.rung],
        capacity=capacity,
        upper=spec.upper_threshold,
        lower=spec.lower_threshold,
    )
    decided = replace(subnet, grade=grade, exhausted=exhausted)
    return replace(decided, due=_due(decided, now))


def _due(subnet: SubnetRow, now: float) -> float | None:
    timers = [subnet.reinterpret_at, subnet.notice_expires_at]
    if subnet.grade.better_since is not None:
        timers.append(subnet.grade.better_since + subnet.spec.step_up_hold)
    if subnet.paused_until > now:
        timers.append(subnet.paused_until)
    if subnet.exhausted or subnet.pod_shortage or subnet.buffer_shortage:  # else the end of a cooldown changes nothing
        timers.extend(since / 1_000 + subnet.spec.cooldown_exhausted for since, _ in subnet.cooling[:1])
    running = [timer for timer in timers if timer is not None]
    return min(running) - subnet.clock_offset if running else None
