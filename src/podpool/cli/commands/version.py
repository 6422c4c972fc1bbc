"""`podpool version`."""

import platform

from podpool import __version__
from podpool.cli.output import Printer
from podpool.cli.spec.model import Output


def print_version(*, output: str, no_color: bool) -> None:
    """Print the version; with `-o wide` also that of Python, and the machine."""
    found = {"version": __version__, "python": platform.python_version(), "machine": platform.machine()}
    printer = Printer(output, no_color=no_color)
    more = f" (Python {found['python']}, {found['machine']})" if printer.output is Output.WIDE else ""
    printer.result(found, f"podpool {__version__}{more}")
