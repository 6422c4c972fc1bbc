"""The command `podpool`: long-running commands go to argparse, the rest to typer, which would cost an agent memory."""

import os
import shlex
import sys
from contextlib import suppress

from podpool.cli import daemon_parser

NO_FILES = 4
"""What the last line says to kubectl's completion, in cobra's numbers."""


def kubectl() -> None:
    """Run what was typed after `kubectl podpool`."""
    main("kubectl podpool")


def kubectl_completion() -> None:
    """Tell kubectl what may follow `kubectl podpool` and these words, as bash is told it; and that files may not."""
    from podpool.cli.app import run  # noqa: PLC0415  same
    from podpool.cli.completion import VARIABLE  # noqa: PLC0415  not for daemons

    words = ("podpool", *sys.argv[1:])
    os.environ |= {VARIABLE: "complete_bash", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    with suppress(SystemExit):
        run((), name="podpool")
    sys.stdout.write(f"\n:{NO_FILES}\n")


def main(name: str = "podpool") -> None:
    """Run what was typed."""
    words = sys.argv[1:]
    if words and words[0] in daemon_parser.COMMANDS:
        daemon_parser.main(words)
        return
    from podpool.cli.app import run  # noqa: PLC0415  not for daemons

    run(words, name=name)


if __name__ == "__main__":
    main()
