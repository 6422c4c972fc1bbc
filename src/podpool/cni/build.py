"""Makes the plugin from `shim.c`: for every architecture with zig, for this machine's else with its own compiler.

Runs while the wheel is built, and wherever the package was installed without its plugins: needs the standard library
alone. What was made is kept in the user's cache under the hash of what it was made from.
"""

import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from podpool.core.errors import PodpoolError

ARCHITECTURES = ("x86_64", "aarch64", "armv7l", "ppc64le", "riscv64", "s390x")
"""As `uname -m` spells them."""
SOURCE = Path(__file__).with_name("shim.c")
_ZIG = {"armv7l": "arm-linux-musleabihf", "ppc64le": "powerpc64le-linux-musl"}
"""Those that zig spells otherwise."""
_log = logging.getLogger(__name__)

FLAGS = ("-std=gnu11", "-static", "-Os", "-s", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class NoCompiler(PodpoolError):
    """There is nothing that could make the plugin."""

    def __init__(self, architecture: str) -> None:
        super().__init__(
            f"no compiler makes the CNI plugin for {architecture}: install a wheel of podpool, the package ziglang, "
            "or on the machine itself a C compiler"
        )


class BuildFailed(PodpoolError):
    """The compiler refused."""


class Interrupted(BuildFailed):
    """Somebody ended the compiler: another one is not wanted either."""


def plugin_name(architecture: str) -> str:
    """Name the plugin of an architecture among the others."""
    return f"podpool-{architecture}"


def build(architecture: str, *, soon: bool = False) -> Path:
    """Make the plugin, unless it was made before, with the best compiler that can; tells where it is.

    With `soon`, for somebody who waits, the machine's own compiler comes first.
    """
    best, *rest = compilers(architecture)
    *others, last = (*rest, best) if soon and not _place(best, architecture).exists() else (best, *rest)
    for compiler in others:
        try:
            return _built(compiler, architecture)
        except Interrupted:
            raise
        except BuildFailed as error:
            _log.warning("%s; trying the next compiler", error)
    return _built(last, architecture)


def _place(compiler: tuple[str, ...], architecture: str) -> Path:
    recipe = "\0".join((*compiler, *FLAGS)).encode() + SOURCE.read_bytes()
    return _cache() / hashlib.sha256(recipe).hexdigest()[:16] / plugin_name(architecture)


def _built(compiler: tuple[str, ...], architecture: str) -> Path:
    made = _place(compiler, architecture)
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        beside = Path(scratch) / made.name
        _compile((*compiler, *FLAGS, str(SOURCE), "-o", str(beside)), architecture)
        beside.rename(made)
    return made


def compilers(architecture: str) -> list[tuple[str, ...]]:
    """Find what may compile for an architecture: zig, and for this machine's its own compiler.

    Zig needs a minute when it is first used. What it makes is a twentieth in size, and starts in a third of the time.
    """
    found: list[tuple[str, ...]] = []
    if importlib.util.find_spec("ziglang"):
        target = _ZIG.get(architecture, f"{architecture}-linux-musl")
        found.append((sys.executable, "-m", "ziglang", "cc", "-target", target))
    own = next(filter(None, map(shutil.which, ("musl-gcc", "cc", "gcc", "clang"))), None)
    if own and architecture == platform.machine():
        found.append((own,))
    if not found:
        raise NoCompiler(architecture)
    return found


def _compile(command: tuple[str, ...], architecture: str) -> None:
    compiled = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  a compiler we chose
    if compiled.returncode < 0:
        raise Interrupted(f"making the CNI plugin for {architecture} was interrupted")
    if compiled.returncode:
        raise BuildFailed(f"the CNI plugin for {architecture} does not compile: {compiled.stderr.strip()}")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "podpool" / "shim"
