"""axe-core, which finds what keeps people from using a page: the script as a PyPI package carries it."""

from __future__ import annotations

from parts import wheels
from parts.steps import PartMissing

PACKAGE = "axe-playwright-python"
FILE = "axe_playwright_python/axe.min.js"


def fetch() -> None:
    """Bring the script in place."""
    wheels.fetch(PACKAGE, files=[FILE], what="axe-core", usually="2 s")


def script() -> str:
    """The script, to be run in a page."""
    path = wheels.unpacked(PACKAGE) / FILE
    if not path.exists():
        raise PartMissing("axe-core is not there: type 'make parts'.")
    return path.read_text()
