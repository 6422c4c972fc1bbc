"""The terminal output of the demo: a live table, or plain lines without a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from podpool.lab.demo.cluster_operations import DemoState

BAR_WIDTH = 32
INTERVAL = 5.0
"""Seconds between two lines of figures without a terminal."""


class Display:
    """Prints lines, and the state of the cluster."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._pinned: list[str] = []
        self._updated_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def print(self, line: str) -> None:
        """Print a line; in a terminal it scrolls above the table."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=self._live is None)

    def pin(self, line: str) -> None:
        """Print a line that stays above the table."""
        if self._live:
            self._pinned.append(line)
        else:
            self.print(line)

    def update(self, state: DemoState) -> None:
        """Show the state."""
        if self._live:
            self._live.update(Group(Text("\n".join(["", *self._pinned])), render(state)))
        elif time.monotonic() - self._updated_at >= INTERVAL:
            self._updated_at = time.monotonic()
            self.print(f"  {summary_line(state)}")


def render(state: DemoState) -> Group:
    """Return the table of nodes, with a bar of used and idle addresses each."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for title in ("node", "Pods", "waiting", "idle", "requested", "batch"):
        table.add_column(title, justify="left" if title == "node" else "right")
    table.add_column("")
    most = max((node.held for node in state.nodes), default=1) or 1
    for node in state.nodes:
        unused = max(0, node.held - node.running)
        used, idle = BAR_WIDTH * node.running // most, BAR_WIDTH * unused // most
        bar = Text("█" * used, style="cyan") + Text("░" * idle, style="dim")
        figures = (node.running, node.waiting, unused, node.requested, node.batch)
        table.add_row(node.name, *map(str, figures), bar if node.alive else Text("gone", style="red"))
    return Group(Text(summary_line(state), style="bold"), table)


def summary_line(state: DemoState) -> str:
    """Return the state in one line."""
    pods = f"{state.running} Pods run, {state.waiting} wait"
    subnet = state.subnet
    if not subnet:
        return pods
    exhausted = ", exhausted" if subnet.exhausted else ""
    return (
        f"{pods}; {subnet.reserved} of {subnet.capacity} addresses reserved, {subnet.cooling_down} cooling down; "
        f"batch {subnet.scaler.batch}{exhausted}"
    )
