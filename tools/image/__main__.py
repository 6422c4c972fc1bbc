"""Commands of the image: `python -m tools.image build`, or `lock` to pin Debian's newest packages."""

from __future__ import annotations

import argparse
from pathlib import Path

from parts.steps import PartMissing
from podpool import __version__
from tools.image import debian, dependencies
from tools.image.build import build, release_of_checkout

DIST = dependencies.ROOT / "dist"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build podpool's container image.")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="write the image's archive, for all architectures")
    building.add_argument("--directory", type=Path, default=DIST, help="where to write it (default: dist)")
    commands.add_parser("lock", help="pin the newest versions of Debian's packages in debian.lock")
    args = parser.parse_args()
    try:
        if args.command == "lock":
            debian.write_lock()
        else:
            build_all(args.directory)
    except PartMissing as missing:
        raise SystemExit(f"podpool: {missing}") from None


def build_all(into: Path) -> None:
    """Build the image of all architectures."""
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"podpool-{__version__}-image.tar"
    digest = build(path, pins=debian.read_lock(), architectures=debian.ARCHITECTURES, release=release_of_checkout())
    print(f"podpool: {path} is {digest}")


if __name__ == "__main__":
    main()
