"""`python -m tools.krew`: write the plugin's archive to a directory, and the manifest with its hash."""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.krew import MANIFEST, NAME, ROOT, URL, archive, rendered


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m tools.krew", description="Write the krew plugin's archive.")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="where to write it (default: dist)")
    parser.add_argument("--url", default=URL, help="where the archive will be published")
    args = parser.parse_args()
    content = archive()
    args.directory.mkdir(parents=True, exist_ok=True)
    (args.directory / NAME).write_bytes(content)
    MANIFEST.parent.mkdir(parents=True, exist_ok=True)
    MANIFEST.write_text(rendered(content, url=args.url))
    print(args.directory / NAME)
    print(MANIFEST)


if __name__ == "__main__":
    main()
