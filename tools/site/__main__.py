"""Build the site: `python -m tools.site [DIRECTORY]`. Warnings, such as broken links, are errors."""

import sys
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Build the site into `site/` or the given directory."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    argv = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-j", "2"]
    argv += ["-c", str(Path(__file__).parent), "-d", str(target / ".doctrees")]
    failed = build_main([*argv, str(ROOT / "docs"), str(target)])
    if not failed:
        print(f"open {target / 'index.html'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
