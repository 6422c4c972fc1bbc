"""podpool's own image, as the cluster's nodes import it: built from this checkout, for this machine's architecture.

It is cached by the hash of what it is built from; the last few are kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from parts import cache
from podpool import __version__
from tools.image import debian, dependencies
from tools.image.build import NAME, build
from tools.image.oci import Release
from tools.image.rootfs import architecture_of_this_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["NAME", "archive"]

FILE = "podpool.tar"
INPUTS = ("pyproject.toml", "requirements.lock", "hatch_build.py", "README.md", "LICENSE")
KEPT = 3


def archive() -> Path:
    """Return the image's archive, for `ctr images import`: it has the name `NAME` there."""
    home = cache.place("image", fingerprint())
    cache.keep(home, [FILE], lambda scratch: make(scratch / FILE))
    os.utime(home)  # used last
    trim(home.parent)
    return home / FILE


def make(path: Path) -> None:
    """Build the image."""
    architecture = architecture_of_this_machine()
    release = Release(version=__version__, revision="", created=0)
    build(path, pins=pins([architecture]), architectures=[architecture], release=release)


def pins(architectures: Sequence[str]) -> list[debian.Pin]:
    """Return the pinned packages; if Debian has replaced some, all in their newest version, so that tests can run."""
    locked = debian.read_lock()
    try:
        for architecture in architectures:
            debian.fetch([pin for pin in locked if pin.architecture == architecture])
    except debian.Replaced as replaced:
        print(f"podpool: the image is built with the newest versions instead. {replaced}", flush=True)
        return [pin for each in architectures for pin in debian.Archive(each).newest(debian.PACKAGES)]
    return locked


def fingerprint() -> str:
    """Return the hash of everything that the image is built from."""
    found = hashlib.sha256()
    for path in inputs():
        found.update(f"{path.relative_to(dependencies.ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def inputs() -> Iterator[Path]:
    """Return the files that the image is built from."""
    yield from (dependencies.ROOT / name for name in INPUTS)
    for directory in ("src/podpool", "tools/image"):
        paths = sorted((dependencies.ROOT / directory).rglob("*"))
        yield from (path for path in paths if path.is_file() and path.parent.name != "__pycache__")


def trim(places: Path) -> None:
    """Remove all but the images that were used last."""
    images = sorted(places.glob("image-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for each in images[KEPT:]:
        shutil.rmtree(each, ignore_errors=True)
