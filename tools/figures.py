"""Figures of docs/, drawn from the functions that make the decisions."""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

from podpool.agent.scaling_decision import ScalingMode
from podpool.core.batch_ladder import BatchGrade, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.scaling import target
from podpool.core.settings import Settings
from podpool.lab.demo.monitor_mode_model import SECONDS, TICKS_PER_SECOND, simulate_node

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "podpool"

from matplotlib import pyplot as plt  # noqa: E402  after the backend is chosen

SAND, BROWN, BLUE, RED, GREY = "#f2c14e", "#7a5c00", "#0b6e99", "#b3372f", "#777777"
NODES, CAPACITY = 24, 1022
"""Of the batch figure: nodes on a /22."""


def draw_modes(path: Path) -> None:
    """Draw pool size against demand for the three monitor modes."""
    _, axes = plt.subplots(1, len(ScalingMode), figsize=(11, 3), sharey=True, layout="constrained")
    for axis, mode in zip(axes, ScalingMode, strict=True):
        history = simulate_node(mode)
        seconds = [tick / TICKS_PER_SECOND for tick in range(len(history.ticks))]
        pods, assigned, pool = zip(*((m.scheduled, m.assigned, m.held) for m in history.ticks), strict=True)
        axis.fill_between(seconds, pods, step="post", color=SAND, label="Pods scheduled")
        axis.step(seconds, assigned, where="post", color=BROWN, label="with an address")
        axis.step(seconds, pool, where="post", color=BLUE, lw=2, label="pool")
        axis.set_title(f"{mode.value}: served after {history.served_after:g} s, {history.refused} refused", fontsize=9)
        axis.set(xlabel="seconds", xlim=(0, SECONDS), ylim=(0, 54))
    axes[0].legend(fontsize=8, loc="upper right")
    _save(path)


def draw_target(path: Path) -> None:
    """Draw what a node holds by its demand: with a batch, and while its subnet is exhausted."""
    scaler, demands = Settings().scaler, range(61)
    _, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for used, colour, label in ((scaler, BLUE, "batch 16, buffer 0.5"), (scaler.exhausted(), RED, "exhausted")):
        held = [target(demand=demand, scaler=used, primaries=1, maximum=250) for demand in demands]
        axis.step(demands, held, where="post", color=colour, lw=2, label=label)
    axis.fill_between(demands, demands, step="post", color=SAND, label="demand")
    axis.set(xlabel="addresses that Pods of the node need", ylabel="addresses that it asks for", xlim=(0, 60))
    axis.legend(fontsize=8)
    _save(path)


def draw_batch(path: Path) -> None:
    """Draw what all nodes of a subnet hold as it fills: with one batch for ever, and with the graded one."""
    settings = Settings()
    rungs = batch_ladder(settings.scaler)
    pods, fixed, graded, batches = range(0, CAPACITY - NODES, 3), [], [], []
    for all_pods in pods:
        projection = Projection(rungs)
        for node in range(NODES):
            projection.report(node, Load(all_pods // NODES + (node < all_pods % NODES)))
        waiting = projection.totals[-2] > CAPACITY
        view = SubnetDemand(totals=projection.totals, capacity=CAPACITY, waiting=waiting)
        rung = grade_batch(BatchGrade(), view, now=0.0, rules=settings.batch_rules).rung
        fixed.append(projection.totals[0])
        graded.append(projection.totals[rung])
        batches.append(rungs[rung].batch)
    _, (above, below) = plt.subplots(2, 1, figsize=(7, 4.4), sharex=True, layout="constrained", height_ratios=(3, 1))
    above.fill_between(pods, pods, color=SAND, label="Pods")
    above.plot(pods, fixed, color=RED, label="held, batch 16 for ever")
    above.plot(pods, graded, color=BLUE, lw=2, label="held, graded batch")
    above.axhline(CAPACITY, color=GREY, lw=1, label="capacity")
    above.axhline(CAPACITY * settings.upper_threshold / 100, color=GREY, lw=1, ls=":", label="upper threshold")
    above.set(ylabel="addresses", ylim=(0, CAPACITY * 1.15))
    above.legend(fontsize=8, loc="lower right")
    below.step(pods, batches, where="post", color=BLUE)
    below.set(xlabel=f"Pods on {NODES} nodes of a subnet with {CAPACITY} addresses", ylabel="batch")
    below.set_yticks(sorted(set(batches)))
    _save(path)


def _save(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    plt.savefig(path, metadata={"Date": None})
    plt.close()


PICTURES: Mapping[str, Callable[[Path], None]] = {
    "modes.svg": draw_modes,
    "target.svg": draw_target,
    "batch.svg": draw_batch,
}
