"""Build the site: `python -m tools.site [DIRECTORY]`. A warning is an error: a broken link, a page nobody finds."""

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Build it, into `site/` or where it is told."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    words = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-j", "2"]
    words += ["-c", str(Path(__file__).parent), "-d", str(place / ".doctrees")]
    failed = build_main([*words, str(ROOT / "docs"), str(place)])
    if not failed:
        print(f"the site is in {place}: open {place / 'index.html'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
