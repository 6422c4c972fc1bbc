"""Builds the plugin from `shim.c`: with zig for every architecture, or with this machine's compiler for its own.

It runs while the wheel is built, and where the package was installed without its plugins, so it needs only the standard
library. Results are cached in the user's cache directory under the hash of their inputs.
"""

import hashlib
import importlib.metadata
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
"""As in `uname -m`."""
SOURCE = Path(__file__).with_name("shim.c")
_ZIG_TARGETS = {"armv7l": "arm-linux-musleabihf", "ppc64le": "powerpc64le-linux-musl"}
"""Targets whose zig name differs."""
log = logging.getLogger(__name__)

FLAGS = ("-std=gnu11", "-static", "-Os", "-s", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class NoCompiler(PodpoolError):
    """No compiler can build the plugin."""

    def __init__(self, architecture: str) -> None:
        super().__init__(
            f"no compiler can build the CNI plugin for {architecture}: install podpool from a wheel, or the package "
            "ziglang, or a C compiler on a machine of that architecture"
        )


class BuildFailed(PodpoolError):
    """The compiler failed."""


class BuildInterrupted(BuildFailed):
    """The compiler was killed by a signal: no other compiler is tried."""


def plugin_name(architecture: str) -> str:
    """Return the file name of the plugin of an architecture."""
    return f"podpool-{architecture}"


def build(architecture: str, *, local_first: bool = False) -> Path:
    """Return the path of the plugin, built with the best available compiler unless it is cached.

    With `local_first` this machine's compiler is tried before zig: it is faster, for interactive use.
    """
    best, *fallbacks = compilers(architecture)
    *others, last = (
        (*fallbacks, best) if local_first and not _cached(best, architecture).exists() else (best, *fallbacks)
    )
    for compiler in others:
        try:
            return _build_with(compiler, architecture)
        except BuildInterrupted:
            raise
        except BuildFailed as error:
            log.warning("CNI plugin build failed, trying the next compiler: %s", error)
    return _build_with(last, architecture)


def _cached(compiler: tuple[str, ...], architecture: str) -> Path:
    recipe = "\0".join((*_identity(compiler), *FLAGS)).encode() + SOURCE.read_bytes()
    return _cache_dir() / hashlib.sha256(recipe).hexdigest()[:16] / plugin_name(architecture)


def _identity(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Return what determines a compiler's output: zig's version, wherever it is installed."""
    interpreter, *words = compiler
    if interpreter != sys.executable:
        return compiler
    return (f"ziglang {importlib.metadata.version('ziglang')}", *words)


def _build_with(compiler: tuple[str, ...], architecture: str) -> Path:
    output = _cached(compiler, architecture)
    if output.exists():
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        temporary = Path(scratch) / output.name
        _compile((*compiler, *FLAGS, str(SOURCE), "-o", str(temporary)), architecture)
        temporary.rename(output)
    return output


def compilers(architecture: str) -> list[tuple[str, ...]]:
    """Return the available compilers for an architecture, the best first: zig, then this machine's own.

    Zig takes a minute on first use. Its output has a twentieth of the size and starts in a third of the time.
    """
    found: list[tuple[str, ...]] = []
    if importlib.util.find_spec("ziglang"):
        target = _ZIG_TARGETS.get(architecture, f"{architecture}-linux-musl")
        found.append((sys.executable, "-m", "ziglang", "cc", "-target", target))
    local = next(filter(None, map(shutil.which, ("musl-gcc", "cc", "gcc", "clang"))), None)
    if local and architecture == platform.machine():
        found.append((local,))
    if not found:
        raise NoCompiler(architecture)
    return found


def _compile(command: tuple[str, ...], architecture: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  a compiler chosen above
    if done.returncode < 0:
        raise BuildInterrupted(f"the build of the CNI plugin for {architecture} was interrupted")
    if done.returncode:
        raise BuildFailed(f"the CNI plugin for {architecture} does not compile: {done.stderr.strip()}")


def _cache_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "podpool" / "shim"
