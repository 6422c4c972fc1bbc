"""Create .venv from the lock files; needs only Python.

Uses only the standard library because it runs before anything is installed. uv is taken from PATH, or fetched once,
pinned by hash, into the user's cache. Each step prints what it does and how long it took; a failure ends with one
sentence that says what to do.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
RUNTIME_LOCK = ROOT / "requirements.lock"
DEV_LOCK = ROOT / "requirements-dev.lock"


def main() -> None:
    """Synchronise .venv with the lock files."""
    parser = argparse.ArgumentParser(description="Create .venv from the lock files.")
    parser.add_argument("--dev", action="store_true", help="also install what tests and checks need")
    dev = parser.parse_args().dev
    if sys.version_info < MIN_PYTHON:
        stop(f"Python 3.11 or later is needed, this is {sys.version.split()[0]}: set PYTHON=/path/to/a/newer/python3.")
    uv = find_uv() or fetch_uv()
    lock = DEV_LOCK if dev else RUNTIME_LOCK
    if not (VENV / "bin/python").exists():
        run(uv, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, VENV)
    with progress(f"installing {lock.read_text().count('==')} packages into .venv", usually="10 s to a minute"):
        install = (uv, "pip", "install", "--quiet", "--python", VENV / "bin/python", "--compile-bytecode")
        run(*install, "--require-hashes", "-r", lock)
        run(*install, "--no-deps", "--no-build-isolation", "--editable", ROOT)


def find_uv() -> str | None:
    """Return the path of uv in .venv, in the cache, or on PATH."""
    places = [VENV / "bin/uv", cached_uv() / "bin/uv"]
    return next((str(place) for place in places if place.exists()), None) or shutil.which("uv")


def fetch_uv() -> str:
    """Fetch uv from the package registry, with the version and hashes of the lock file."""
    home = cached_uv()
    with progress("fetching uv", usually="5 s"), tempfile.TemporaryDirectory() as scratch:
        make_plain_venv(home)
        pin = Path(scratch) / "uv.lock"
        pin.write_text(uv_pin())
        run(home / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", pin)
    return str(home / "bin/uv")


def make_plain_venv(home: Path) -> None:
    """Create a virtual environment with pip; installs Debian's python3-venv if it is missing and we are root."""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=False, capture_output=True, text=True)
    if made.returncode == 0:
        return
    shutil.rmtree(home, ignore_errors=True)
    if "ensurepip" not in made.stdout + made.stderr or not shutil.which("apt-get"):
        stop(f"{sys.executable} cannot make a virtual environment: {(made.stderr or made.stdout).strip()}")
    if os.geteuid() != 0:
        stop("Debian's python3-venv is missing: run 'sudo apt-get install -y python3-venv' and try again.")
    with progress("installing Debian's python3-venv", usually="20 s"):
        run("apt-get", "-qq", "update")
        run("apt-get", "-qq", "install", "-y", "--no-install-recommends", "python3-venv")
    run(sys.executable, "-m", "venv", "--clear", home)


def cached_uv() -> Path:
    """Return the cache directory of the pinned uv version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = uv_pin().split("==", 1)[1].split()[0]
    return cache / "podpool" / "tools" / f"uv-{version}"


def uv_pin() -> str:
    """Return the lines of the lock file that pin uv."""
    found = re.search(r"^uv==(?:.*\\\n)*.*$", DEV_LOCK.read_text(), re.MULTILINE)
    if not found:
        stop(f"{DEV_LOCK.name} does not pin uv: run 'make lock'.")
    return found.group()


def run(*words: str | Path) -> None:
    """Run a program and print progress; on failure print its output and exit."""
    with tempfile.TemporaryFile("w+") as output:
        running = subprocess.Popen(words, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        begun = time.monotonic()
        while running.poll() is None:
            try:
                running.wait(timeout=15)
            except subprocess.TimeoutExpired:
                print(f"podpool:   ... {time.monotonic() - begun:.0f} s", flush=True)
        if running.returncode:
            output.seek(0)
            stop(f"this failed: {' '.join(map(str, words))}\n{output.read()}")


@contextmanager
def progress(what: str, *, usually: str) -> Iterator[None]:
    """Print a step and how long it took."""
    print(f"podpool: {what} (usually {usually}) ...", flush=True)
    begun = time.monotonic()
    yield
    print(f"podpool: {what}: done in {time.monotonic() - begun:.0f} s", flush=True)


def stop(why: str) -> NoReturn:
    """Exit with an error message."""
    raise SystemExit(f"podpool: {why}")


if __name__ == "__main__":
    main()
