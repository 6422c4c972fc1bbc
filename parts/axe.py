"""axe-core, the accessibility checker, from the PyPI package that ships it."""

from __future__ import annotations

from parts import wheels
from parts.steps import PartMissing

PACKAGE = "axe-playwright-python"
FILE = "axe_playwright_python/axe.min.js"


def fetch() -> None:
    """Fetch the script."""
    wheels.fetch(PACKAGE, files=[FILE], what="axe-core", usually="2 s")


def script() -> str:
    """Return the script."""
    path = wheels.unpacked(PACKAGE) / FILE
    if not path.exists():
        raise PartMissing("axe-core is missing: run 'make parts'.")
    return path.read_text()
