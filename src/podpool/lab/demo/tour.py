"""The tour: what podpool computes, shown on a terminal in a minute's reading."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from podpool.core.batch_policy import BatchGrade, Load, Projection, SubnetDemand, batch_ladder, grade_batch
from podpool.core.quantities import show_share
from podpool.core.ranges import parse_prefix
from podpool.core.scaling import Scaler, target
from podpool.core.settings import Settings
from podpool.core.slice_table import SliceTable, parse_slice_size
from podpool.lab.demo.chart import draw
from podpool.lab.demo.tour_model import LENGTH, History, Mode, play

WIDTH = 66
"""Columns of a picture: with its labels it fits a terminal of 80."""
EXPLAINED = {
    Mode.REACTIVE: "one batch at a time, when too few are free",
    Mode.IDEMPOTENT: "in one step, from the addresses in use",
    Mode.PODS: "in one step, from the Pods that are scheduled (podpool's default)",
}


def show_tour(console: Console) -> None:
    """Show all of it."""
    settings = Settings()
    console.print()
    console.print("[bold]podpool[/bold]: addresses for Pods, from subnets that are running out", highlight=False)
    _show_targets(console, settings)
    _show_modes(console)
    _show_scarcity(console, settings)
    _show_slices(console)
    console.print("\n[bold]Next[/bold]  make test   every test, on a real API server, PostgreSQL and namespaces")
    console.print("      docs/       the mathematics with its rules, and what was measured\n", highlight=False)


def _heading(console: Console, title: str, *sentences: str) -> None:
    console.print(f"\n[bold green]{title}[/bold green]", highlight=False)
    for sentence in sentences:
        console.print(sentence, highlight=False)


def _show_targets(console: Console, settings: Settings) -> None:
    _heading(
        console,
        "1. How many addresses a node should have",
        f"They move in batches of B={settings.batch}; mf={show_share(settings.buffer)} of a batch is kept idle:",
        "    B * ceil(mf + Pods/B), one of which is the node's own primary address;",
        f"    a node has {settings.node_maximum} at most",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("Pods", justify="right")
    for pods in (demands := (0, 7, 8, 25, 40, 41, 110, 250)):
        table.add_column(str(pods), justify="right")
    sizes = [target(demand=pods, scaler=settings.scaler, primaries=1, maximum=settings.node_maximum) for pods in demands]
    table.add_row("addresses for Pods", *map(str, sizes))
    table.add_row("free of them", *(str(size - pods) for size, pods in zip(sizes, demands, strict=True)))
    console.print(table)


def _show_modes(console: Console) -> None:
    _heading(
        console,
        "2. 35 Pods land on one node at once, and later 20 of them leave",
        "An answer from the subnet takes a second. Pods [yellow]█[/yellow], addresses of the node [bold cyan]━[/]:",
    )
    for mode in Mode:
        history = play(mode)
        console.print(f"\n[bold]{mode.value}[/bold]: {EXPLAINED[mode]}", highlight=False)
        console.print(_picture(history), end="")
        console.print(_outcome(history), highlight=False)


def _picture(history: History) -> Text:
    at = [column * len(history.moments) // WIDTH for column in range(WIDTH)]
    picture = draw(
        area=[history.moments[tick].scheduled for tick in at],
        line=[history.moments[tick].held for tick in at],
        height=6,
        top=54,
    )
    seconds = [str(second) for second in range(0, LENGTH, LENGTH // 5)]
    picture.append(" " * 5 + "".join(each.ljust(WIDTH // 5) for each in seconds) + "s\n", style="dim")
    return picture


def _outcome(history: History) -> str:
    refused = f"{history.refused} starts refused" if history.refused else "no start refused"
    return f"     every Pod had its address after {history.served_after:.1f} s, {refused}, {history.requests} requests"


def _show_scarcity(console: Console, settings: Settings) -> None:
    capacity, nodes = 1021, 60
    _heading(
        console,
        f"3. {nodes} nodes share a subnet of {capacity} addresses (a /22) that fills up",
        "The batch shrinks with the room that is left: idle addresses go where Pods are.",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for title in ("Pods", f"with B={settings.batch} fixed they hold", "batch chosen", "they hold", "idle"):
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
            _named(rungs[chosen.rung]),
            str(held),
            str(held - pods - nodes),
        )
    console.print(table)


def _named(rung: Scaler) -> str:
    return str(rung.batch) if rung.buffer else "1, none idle"


def _show_slices(console: Console) -> None:
    _heading(console, "4. Secondary networks: a slice for each node, and no lock between them")
    table = SliceTable(parse_slice_size("/24", of=parse_prefix("10.0.0.0/22")))
    for node in ("ant", "bee", "cat", "dog"):
        table.join(node)
    told = [("10.0.0.0/22 by /24", _slices(table))]
    table.join("elk")
    told.append(("elk joins", f"all are taken: {' '.join(table.waiting)} waits"))
    table.leave("bee")
    told.append(("bee leaves", _slices(table)))
    for event, outcome in told:
        console.print(f"  {event:<20}{outcome}", highlight=False)


def _slices(table: SliceTable) -> str:
    by_address = sorted(table.held.items(), key=lambda entry: entry[1])
    return "  ".join(f"{str(slice_).removesuffix('/24')} {node}" for node, slice_ in by_address)
