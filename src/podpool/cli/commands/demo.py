"""`podpool up` and `podpool tour`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from podpool.cli.errors import FAILED
from podpool.lab.demo import run, tour
from podpool.lab.demo.settings import DemoSettings, default_home


def run_demo(*, home: str, fresh: bool, **settings: Any) -> int:  # noqa: ANN401  the fields of DemoSettings
    """Run the demo cluster until interrupted, or with --once until the scenario ends."""
    directory = Path(home) if home else default_home()
    succeeded = run.run_demo(DemoSettings(**settings), home=directory, fresh=fresh, console=Console())
    return 0 if succeeded else FAILED


def show_tour() -> None:
    """Show the scaling mathematics."""
    tour.show_tour(Console())
