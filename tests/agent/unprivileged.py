"""Runs a command as a user without permissions, as which the agent may run.

Such a user cannot enter every home directory, and root's Python and checkout are often in root's. Then the command gets
its own mount namespace, in which that home directory is accessible and contains nothing else.
"""

import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from parts.debian import command

USER = 65534
"""The UID of the user nobody."""
NEEDED = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2])


def unprivileged(scratch: Path) -> Sequence[str]:
    """Return the prefix of the command; it is killed with this process. `scratch` is a directory for mounts."""
    user = ("--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    prefix = [command("setpriv"), "--pdeathsig", "KILL", *user, "--"]
    closed = sorted({each for needed in NEEDED for each in needed.parents if not _is_open(each)})
    if not closed:
        return prefix
    return [command("unshare"), "--mount", "--", "sh", "-ec", _hide_script(closed[0], scratch), "sh", *prefix]


def _is_open(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)


def _hide_script(home: Path, scratch: Path) -> str:
    """Return the script that hides a home directory except for what is needed, and executes its arguments."""
    inside = [each for each in NEEDED if each.is_relative_to(home)]
    kept = {scratch / str(number): each for number, each in enumerate(inside)}
    lines = [f"mkdir -p {_quoted(aside)}; mount --bind {_quoted(each, aside)}" for aside, each in kept.items()]
    lines.append(f"mount -t tmpfs -o mode=0755 none {_quoted(home)}")
    lines += [f"mkdir -p {_quoted(each)}; mount --bind {_quoted(aside, each)}" for aside, each in kept.items()]
    return "\n".join([*lines, 'exec "$@"'])


def _quoted(*paths: Path) -> str:
    return shlex.join(map(str, paths))
