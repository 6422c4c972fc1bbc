"""Commands of the image: `python -m tools.image build`, `sign`, or `lock` to pin Debian's newest packages."""

from __future__ import annotations

import argparse
from pathlib import Path

from parts.steps import PartMissing
from podpool import __version__
from tools.image import debian, dependencies
from tools.image.build import build, release_of_checkout
from tools.image.signature import sign

DIST = dependencies.ROOT / "dist"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build podpool's container image.")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="write the image's archive, for all architectures")
    building.add_argument("--directory", type=Path, default=DIST, help="where to write it (default: dist)")
    signing = commands.add_parser("sign", help="sign the checksums of all files in a directory")
    signing.add_argument("--directory", type=Path, default=DIST, help="what to sign (default: dist)")
    signing.add_argument("--key", type=Path, required=True, help="file of an ECDSA P-256 key in PEM format")
    commands.add_parser("lock", help="pin the newest versions of Debian's packages in debian.lock")
    args = parser.parse_args()
    try:
        if args.command == "lock":
            debian.write_lock()
        elif args.command == "sign":
            print(f"podpool: {sign(args.directory, args.key)}")
        else:
            build_all(args.directory)
    except PartMissing as missing:
        raise SystemExit(f"podpool: {missing}") from None


def build_all(into: Path) -> None:
    """Build the image of all architectures, and write its bills of materials beside it."""
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"podpool-{__version__}-image.tar"
    built = build(path, pins=debian.read_lock(), architectures=debian.ARCHITECTURES, release=release_of_checkout())
    for architecture, text in built.sboms.items():
        (into / f"podpool-{__version__}-linux-{architecture}.cdx.json").write_bytes(text)
    print(f"podpool: {path} is {built.digest}")


if __name__ == "__main__":
    main()
