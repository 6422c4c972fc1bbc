"""Makes a command that of a user without any rights, as which the agent may run.

Such a user cannot enter every home, and root's Python and checkout are often in root's. Where they are, the command
gets a view of its own of the file system, in which that home is open and has nothing else in it.
"""

import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from parts.debian import command

USER = 65534
"""The kernel's own for nobody."""
NEEDED = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2])


def without_rights(scratch: Path) -> Sequence[str]:
    """Give the words before the command; it dies with us. `scratch` is a directory to mount in."""
    who = ("--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    bare = [command("setpriv"), "--pdeathsig", "KILL", *who, "--"]
    closed = sorted({each for needed in NEEDED for each in needed.parents if not _is_open(each)})
    if not closed:
        return bare
    return [command("unshare"), "--mount", "--", "sh", "-ec", _opening(closed[0], scratch), "sh", *bare]


def _is_open(directory: Path) -> bool:
    return bool(directory.stat().st_mode & stat.S_IXOTH)


def _opening(home: Path, scratch: Path) -> str:
    """Write the script that hides a home but for what is needed in it, and goes on with its arguments."""
    inside = [each for each in NEEDED if each.is_relative_to(home)]
    kept = {scratch / str(number): each for number, each in enumerate(inside)}
    lines = [f"mkdir -p {_quoted(aside)}; mount --bind {_quoted(each, aside)}" for aside, each in kept.items()]
    lines.append(f"mount -t tmpfs -o mode=0755 none {_quoted(home)}")
    lines += [f"mkdir -p {_quoted(each)}; mount --bind {_quoted(aside, each)}" for aside, each in kept.items()]
    return "\n".join([*lines, 'exec "$@"'])


def _quoted(*paths: Path) -> str:
    return shlex.join(map(str, paths))
