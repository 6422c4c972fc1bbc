"""The command `podpool`: long-running commands go to argparse, the rest to typer, which would cost an agent memory."""

import sys

from podpool.cli import daemons


def kubectl() -> None:
    """Run what was typed after `kubectl podpool`."""
    main("kubectl podpool")


def main(name: str = "podpool") -> None:
    """Run what was typed."""
    words = sys.argv[1:]
    if words and words[0] in daemons.COMMANDS:
        daemons.main(words)
        return
    from podpool.cli.people import run  # noqa: PLC0415  not for daemons

    run(words, name=name)


if __name__ == "__main__":
    main()
