"""What of PyPI goes into the image: podpool's wheel, and its run-time dependencies as requirements.lock pins them.

requirements.lock also pins what builds the wheel; what runs follows from the dependencies of pyproject.toml and of the
packages installed in .venv.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from parts.steps import PartMissing, run
from podpool.cni.install import PREBUILT
from tools.image import filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
PYTHON = "3.13"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures as `uname -m` names them."""
GLIBC = "manylinux_2_40"
"""The newest that uv knows and Debian's C library is not older than."""
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
SCRIPT = f"#!/usr/bin/python{PYTHON} -sP\nfrom podpool.__main__ import main\n\nmain()\n"


def install(architecture: str) -> filesystem.Tree:
    """Return the installed dependencies; a package without a wheel for the architecture is an error."""
    machine = MACHINES[architecture]
    with tempfile.TemporaryDirectory() as scratch:
        pins, target = Path(scratch, "pins.lock"), Path(scratch, "target")
        pins.write_text("".join(pins_of(needed(direct_dependencies(), machine))))
        platform = ("--python-platform", f"{machine}-{GLIBC}", "--python-version", PYTHON, "--only-binary", ":all:")
        options = ("--quiet", "--python", sys.executable, "--no-deps", "--require-hashes", "--link-mode", "copy")
        run(
            *(
                Path(sys.executable).parent / "uv",
                "pip",
                "install",
                *options,
                *platform,
                "--target",
                target,
                "-r",
                pins,
            ),
            otherwise="the image's dependencies cannot be fetched: see whether PyPI can be reached, then try again.",
        )
        return filesystem.from_directory(target, below=SITE)


def direct_dependencies() -> list[str]:
    """Return the dependencies of pyproject.toml."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


def needed(requirements: Iterable[str], machine: str) -> set[NormalizedName]:
    """Return the names of all packages that the requirements need in the image, directly or not."""
    names: set[NormalizedName] = set()
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in names or not applies(requirement, machine=machine, extra=extra):
            continue
        names.add(name)
        for each in metadata.requires(name) or []:
            waiting += [(Requirement(each), extra) for extra in ("", *requirement.extras)]
    return names


def applies(requirement: Requirement, *, machine: str, extra: str) -> bool:
    """Return whether the image needs a requirement that may have a marker."""
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    environment = {**python, "sys_platform": "linux", "platform_machine": machine, "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def pins_of(names: set[NormalizedName]) -> list[str]:
    """Return the lines of requirements.lock that pin the packages, without their markers."""
    pinned = {
        canonicalize_name(each.group(1)): each.group()
        for each in re.finditer(r"^([\w.-]+)==(?:.*\\\n)*.*\n", LOCK.read_text(), re.MULTILINE)
    }
    if missing := names - set(pinned):
        raise PartMissing(f"{LOCK.name} does not pin {', '.join(sorted(missing))}: type 'make lock', then try again.")
    return [pinned[name] for name in sorted(names)]


def build_wheel(directory: Path) -> Path:
    """Build podpool's wheel, with the plugin of every architecture."""
    run(
        *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory),
        cwd=ROOT,
        otherwise="podpool's wheel cannot be built: see the compiler's output above.",
    )
    (wheel,) = directory.glob("podpool-*.whl")
    return wheel


def unpack_wheel(wheel: Path, architecture: str) -> filesystem.Tree:
    """Return podpool as installed, with one plugin: the one of the architecture."""
    plugins = f"podpool/cni/{PREBUILT.name}/"
    plugin = f"{plugins}podpool-{MACHINES[architecture]}"
    with zipfile.ZipFile(wheel) as content:
        tree = {
            f"{SITE}/{name}": filesystem.file(content.read(name), executable=name == plugin)
            for name in content.namelist()
            if not name.endswith("/") and (name == plugin or not name.startswith(plugins))
        }
    if f"{SITE}/{plugin}" not in tree:
        raise PartMissing(f"podpool's wheel has no plugin for {architecture}: install ziglang, then try again.")
    return tree | {"usr/local/bin/podpool": filesystem.file(SCRIPT, executable=True)}
