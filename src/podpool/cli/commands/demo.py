"""`podpool up` and `podpool tour`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from podpool.cli.errors import FAILED
from podpool.lab.demo import tour
from podpool.lab.demo.run import run_up
from podpool.lab.demo.settings import DemoSettings, usual_home


def run_demo(*, home: str, fresh: bool, **settings: Any) -> int:  # noqa: ANN401  the fields of DemoSettings
    """Run the demo cluster until interrupted, or with --once until the scenario ends."""
    succeeded = run_up(
        DemoSettings(**settings), home=Path(home) if home else usual_home(), fresh=fresh, console=Console()
    )
    return 0 if succeeded else FAILED


def show_tour() -> None:
    """Show the scaling mathematics."""
    tour.show_tour(Console())
