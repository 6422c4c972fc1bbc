"""What is seen in the terminal: a table that lives, or plain lines where there is no terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from podpool.lab.demo.driver import Picture

WIDTH = 32
EVERY = 5.0
"""Seconds between two plain lines of figures."""


class Screen:
    """Lines of the story, and figures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._pinned: list[str] = []
        self._told_at = 0.0

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

    def tell(self, line: str) -> None:
        """Say a line of the story; in a terminal it goes up above the figures."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=self._live is None)

    def pin(self, line: str) -> None:
        """Say a line that stays in sight."""
        if self._live:
            self._pinned.append(line)
        else:
            self.tell(line)

    def show(self, picture: Picture) -> None:
        """Show the figures as they are now."""
        if self._live:
            self._live.update(Group(Text("\n".join(["", *self._pinned])), drawn(picture)))
        elif time.monotonic() - self._told_at >= EVERY:
            self._told_at = time.monotonic()
            self.tell(f"  {summed_up(picture)}")


def drawn(picture: Picture) -> Group:
    """Draw every node as a bar: Pods, and what is idle."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for title in ("node", "Pods", "wait", "idle", "asked for", "batch"):
        table.add_column(title, justify="left" if title == "node" else "right")
    table.add_column("")
    most = max((each.held for each in picture.nodes), default=1) or 1
    for node in picture.nodes:
        full, idle = WIDTH * node.running // most, WIDTH * max(0, node.held - node.running) // most
        bar = (
            Text("█" * full, style="cyan") + Text("░" * idle, style="dim") if node.alive else Text("gone", style="red")
        )
        figures = (node.running, node.waiting, max(0, node.held - node.running), node.requested, node.batch)
        table.add_row(node.name, *map(str, figures), bar)
    return Group(Text(summed_up(picture), style="bold"), table)


def summed_up(picture: Picture) -> str:
    """Say all in a line."""
    told = f"{picture.running} Pods run, {picture.waiting} wait"
    state = picture.subnet
    if not state:
        return told
    short = ", short" if state.exhausted else ""
    return (
        f"{told}; of {state.capacity} addresses {state.reserved} are reserved, {state.resting} rest; "
        f"batch {state.scaler.batch}{short}"
    )
