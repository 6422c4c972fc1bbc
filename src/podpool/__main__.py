"""The command `podpool`: long-running commands go to argparse, the rest to typer, which would cost an agent memory."""

import sys

from podpool.cli import daemons


def main() -> None:
    """Run what was typed."""
    words = sys.argv[1:]
    if words and words[0] in daemons.COMMANDS:
        daemons.main(words)
        return
    from podpool.cli.people import app  # noqa: PLC0415  not for daemons

    app()


if __name__ == "__main__":
    main()
