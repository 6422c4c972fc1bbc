"""`podpool tour`: the scaling mathematics in the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from podpool.agent.scaling_decision import ScalingMode
from podpool.core.batch_ladder import BatchGrade, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.quantities import show_share
from podpool.core.ranges import parse_prefix
from podpool.core.scaling import Scaler, target
from podpool.core.settings import Settings
from podpool.core.slice_table import SliceTable, parse_slice_size
from podpool.lab.demo.monitor_mode_model import SECONDS, NodeRun, simulate_node

WIDTH = 66
"""Columns of a chart; with labels it fits 80 columns."""
DESCRIPTIONS = {
    ScalingMode.REACTIVE: "one batch at a time, when too few addresses are free",
    ScalingMode.IDEMPOTENT: "in one step, from the addresses in use",
    ScalingMode.PODS: "in one step, from the scheduled Pods (default)",
}
BLOCKS = " ▁▂▃▄▅▆▇█"


def show_tour(console: Console) -> None:
    """Print the tour."""
    settings = Settings()
    console.print()
    console.print("[bold]podpool[/bold]: IP addresses for Pods in subnets that are running out", highlight=False)
    _show_targets(console, settings)
    _show_modes(console)
    _show_scarcity(console, settings)
    _show_slices(console)
    console.print("\n[bold]Next[/bold]  podpool up   a demo cluster on this machine\n", highlight=False)


def _heading(console: Console, title: str, *lines: str) -> None:
    console.print(f"\n[bold green]{title}[/bold green]", highlight=False)
    for line in lines:
        console.print(line, highlight=False)


def _show_targets(console: Console, settings: Settings) -> None:
    _heading(
        console,
        "1. Target: how many addresses a node requests",
        f"Addresses move in batches of B={settings.batch}; mf={show_share(settings.buffer)} of a batch stays free:",
        "    B * ceil(mf + Pods/B), including the primary address of the node;",
        f"    at most {settings.node_maximum} per node",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("Pods", justify="right")
    for pods in (demands := (0, 7, 8, 25, 40, 41, 110, 250)):
        table.add_column(str(pods), justify="right")
    sizes = [
        target(demand=pods, scaler=settings.scaler, primaries=1, maximum=settings.node_maximum) for pods in demands
    ]
    table.add_row("secondary addresses", *map(str, sizes))
    table.add_row("free", *(str(size - pods) for size, pods in zip(sizes, demands, strict=True)))
    console.print(table)


def _show_modes(console: Console) -> None:
    _heading(
        console,
        "2. Monitor modes: 35 Pods start on one node at once, later 20 are deleted",
        "A request is answered after a second. Pods [yellow]█[/yellow], addresses of the node [bold cyan]━[/]:",
    )
    for mode in ScalingMode:
        run = simulate_node(mode)
        console.print(f"\n[bold]{mode.value}[/bold]: {DESCRIPTIONS[mode]}", highlight=False)
        console.print(_chart(run), end="")
        console.print(_result(run), highlight=False)


def _chart(run: NodeRun) -> Text:
    at = [column * len(run.ticks) // WIDTH for column in range(WIDTH)]
    chart = _draw(
        area=[run.ticks[tick].scheduled for tick in at], line=[run.ticks[tick].held for tick in at], height=6, top=54
    )
    seconds = [str(second) for second in range(0, SECONDS, SECONDS // 5)]
    chart.append(" " * 5 + "".join(each.ljust(WIDTH // 5) for each in seconds) + "s\n", style="dim")
    return chart


def _result(run: NodeRun) -> str:
    failed = f"{run.refused} ADDs failed" if run.refused else "no ADD failed"
    return f"     every Pod had its address after {run.served_after:.1f} s, {failed}, {run.requests} requests"


def _show_scarcity(console: Console, settings: Settings) -> None:
    capacity, nodes = 1021, 60
    _heading(
        console,
        f"3. Graded batch: {nodes} nodes fill a subnet of {capacity} addresses (a /22)",
        "The batch shrinks as the subnet fills, and idle addresses return to it.",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for title in ("Pods", f"held with B={settings.batch}", "graded batch", "held", "idle"):
        table.add_column(title, justify="right")
    rungs = batch_ladder(settings.scaler)
    for pods in (200, 400, 600, 700, 800, 900, 960):
        projection = Projection(rungs)
        for node in range(nodes):
            projection.report(node, Load(pods // nodes + (node < pods % nodes)))
        waiting = projection.totals[-2] > capacity
        view = SubnetDemand(totals=projection.totals, capacity=capacity, waiting=waiting)
        chosen = grade_batch(BatchGrade(), view, now=0.0, rules=settings.batch_rules)
        held = projection.totals[chosen.rung]
        fixed = projection.totals[0]
        table.add_row(
            str(pods),
            f"{fixed}" if fixed <= capacity else f"{fixed}: does not fit",
            _rung_text(rungs[chosen.rung]),
            str(held),
            str(held - pods - nodes),
        )
    console.print(table)


def _rung_text(rung: Scaler) -> str:
    return str(rung.batch) if rung.buffer else "1, buffer 0"


def _show_slices(console: Console) -> None:
    _heading(console, "4. Secondary networks: one slice per node, without a lock")
    table = SliceTable(parse_slice_size("/24", of=parse_prefix("10.0.0.0/22")))
    for node in ("ant", "bee", "cat", "dog"):
        table.join(node)
    lines = [("10.0.0.0/22 by /24", _slices(table))]
    table.join("elk")
    lines.append(("elk joins", f"no free slice: {' '.join(table.waiting)} waits"))
    held = {node: slice_ for node, slice_ in table.held.items() if node != "bee"}
    table = SliceTable(table.layout, held=held, waiting=table.waiting)
    table.join("elk")
    lines.append(("bee leaves", _slices(table)))
    for event, outcome in lines:
        console.print(f"  {event:<20}{outcome}", highlight=False)


def _slices(table: SliceTable) -> str:
    by_address = sorted(table.held.items(), key=lambda entry: entry[1])
    return "  ".join(f"{str(slice_).removesuffix('/24')} {node}" for node, slice_ in by_address)


def _draw(*, area: Sequence[int], line: Sequence[int], height: int, top: int, left: int = 5) -> Text:
    """Return a chart of an area and a line over it; `top` is the value at the upper edge."""
    text = Text()
    for row in reversed(range(height)):
        low, high = row * top / height, (row + 1) * top / height
        label = f"{round(high):>{left - 1}} " if row in {height - 1, height // 2 - 1} else " " * left
        text.append(label, style="dim")
        for height_, value in zip(area, line, strict=True):
            if low < value <= high:
                text.append("━", style="bold cyan")
            else:
                eighths = round(8 * min(max((height_ - low) / (high - low), 0), 1))
                text.append(BLOCKS[eighths], style="yellow")
        text.append("\n")
    text.append(" " * left + "─" * len(area) + "\n", style="dim")
    return text
