"""Debian's packages of the runtime, pinned in debian.lock by name, version and hash, for each architecture.

apt fetches them, by name, with a directory of its own: the machine's packages and lists are not changed, and no root is
needed. The mirror is the machine's. Debian's archive keeps only the newest version of a package: when it has replaced
a pinned one, `Replaced` names both, and `python -m tools.image lock` writes new pins. Packages that were fetched once
stay in the user's cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from parts import cache
from parts.steps import PartMissing
from tools.image import filesystem

RELEASE = "trixie"
ARCHITECTURES = ("amd64", "arm64")
LOCK = Path(__file__).with_name("debian.lock")
PACKAGES = (
    "base-files",  # the licenses, os-release, which names the release to vulnerability scanners
    "ca-certificates",  # for a ledger or API server behind a public certificate
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",  # greenlet is written in C++
    "libuuid1",
    "libzstd1",
    "python3.13-minimal",
    "zlib1g",
)
KEYRINGS = [Path(f"/usr/share/keyrings/debian-archive-keyring.{suffix}") for suffix in ("gpg", "pgp")]
HEADER = (
    "# Debian packages of the image: name, version, architecture, SHA-256. Written by `python -m tools.image lock`.\n"
)


class Replaced(PartMissing):
    """Debian has replaced versions that are pinned."""


@dataclass(frozen=True, order=True)
class Pin:
    """One package of one architecture."""

    name: str
    version: str
    architecture: str
    sha256: str

    def __str__(self) -> str:
        """Return its line of the lock file."""
        return f"{self.name} {self.version} {self.architecture} {self.sha256}"


def read_lock(lock: Path = LOCK) -> list[Pin]:
    """Return all pins."""
    return [Pin(*line.split()) for line in lock.read_text().splitlines() if not line.startswith("#")]


def write_lock(lock: Path = LOCK) -> None:
    """Pin what the archive has now."""
    pins = [pin for architecture in ARCHITECTURES for pin in Archive(architecture).newest(PACKAGES)]
    lock.write_text(HEADER + "".join(f"{pin}\n" for pin in sorted(pins)))


def fetch(pins: list[Pin]) -> list[Path]:
    """Return the files of packages of one architecture, checked by hash; fetch what is not cached."""
    missing = [pin for pin in pins if not cached(pin).exists()]
    if missing:
        Archive(missing[0].architecture).download(missing)
    return [cached(pin) for pin in pins]


def cached(pin: Pin) -> Path:
    """Return where the file of a package is in the user's cache."""
    return cache.place("debian", RELEASE) / f"{pin.sha256}.deb"


def unpack(package: Path) -> filesystem.Tree:
    """Return the files of a package, and its control file where scanners of images without dpkg look for it."""
    content = output("dpkg-deb", "--fsys-tarfile", package)
    control = output("dpkg-deb", "--field", package)
    name = control.split(b"Package: ", 1)[1].split(b"\n", 1)[0].decode()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        tree = filesystem.from_tar(archive)
    return tree | {f"var/lib/dpkg/status.d/{name}": filesystem.file(control)}


class Archive:
    """Debian's archive for one architecture, through an apt with directories of its own."""

    def __init__(self, architecture: str) -> None:
        self.root = cache.place("apt", f"{RELEASE}-{architecture}")
        self.options = [
            *("-o", f"APT::Architecture={architecture}", "-o", f"APT::Architectures={architecture}"),
            *("-o", f"Dir::Etc::SourceList={self.root}/sources.list", "-o", "Dir::Etc::SourceParts=-"),
            *("-o", f"Dir::State={self.root}/state", "-o", f"Dir::State::status={self.root}/status"),
            *("-o", f"Dir::Cache={self.root}/cache", "-o", "APT::Sandbox::User=root"),
            *("-o", "Acquire::Languages=none", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
            *("-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=60"),
        ]
        self.root.mkdir(parents=True, exist_ok=True)
        with cache.locked(self.root):
            self.update()

    def update(self) -> None:
        """Read the archive's lists of packages."""
        (self.root / "sources.list").write_text(sources())
        (self.root / "status").touch()
        for each in ("state/lists/partial", "cache/archives/partial"):
            (self.root / each).mkdir(parents=True, exist_ok=True)
        output("apt-get", *self.options, "-qq", "update")

    def versions(self, names: tuple[str, ...]) -> list[Pin]:
        """Return every version of the packages, the newest of each first."""
        shown = output("apt-cache", *self.options, "show", *names).decode()
        records = [
            dict(line.split(": ", 1) for line in each.splitlines() if ": " in line) for each in shown.split("\n\n")
        ]
        architecture = self.options[1].partition("=")[2]
        return [
            Pin(each["Package"], each["Version"], architecture, each["SHA256"]) for each in records if "Package" in each
        ]

    def newest(self, names: tuple[str, ...]) -> list[Pin]:
        """Return the newest version of each package."""
        return list({pin.name: pin for pin in reversed(self.versions(names))}.values())

    def download(self, pins: list[Pin]) -> None:
        """Fetch packages into the cache. Raises `Replaced`."""
        offered = self.versions(tuple(pin.name for pin in pins))
        if replaced := [pin for pin in pins if pin not in offered]:
            raise Replaced(
                f"Debian has replaced pinned packages ({', '.join(f'{pin.name} {pin.version}' for pin in replaced)}): "
                f"type '.venv/bin/python -m tools.image lock', then try again."
            )
        home = cached(pins[0]).parent
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            wanted = [f"{pin.name}={pin.version}" for pin in pins]
            output("apt-get", *self.options, "-qq", "download", *wanted, cwd=scratch)
            files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in Path(scratch).iterdir()}
            for pin in pins:
                if pin.sha256 not in files:
                    raise PartMissing(f"apt fetched a {pin.name} {pin.version} whose hash is not that of {LOCK.name}.")
                files[pin.sha256].rename(cached(pin))


def sources() -> str:
    """Return apt's sources: the machine's mirrors, with the image's release of Debian."""
    keyring = next((path for path in KEYRINGS if path.exists()), None)
    if not shutil.which("apt-get") or not keyring:
        raise PartMissing("the image consists of Debian's packages: build it on a machine with Debian's apt.")
    own = release_of_this_machine()
    listed = output("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").decode()
    lines = {
        f"deb [signed-by={keyring}] {mirror} {suite.replace(own, RELEASE, 1)} main\n"
        for suite, mirror in (line.split() for line in listed.splitlines())
        if suite in (own, f"{own}-security")
    }
    if not lines:
        raise PartMissing(
            f"apt's sources do not list Debian {own}: the image's packages are fetched from the same mirror."
        )
    return "".join(sorted(lines))


def release_of_this_machine() -> str:
    """Return the code name of the machine's release."""
    described = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return described.get("VERSION_CODENAME", "").strip('"')


def output(*argv: str | Path, cwd: str | None = None) -> bytes:
    """Run a command without prompts or translations; return its output. Raises `PartMissing`."""
    env = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, check=False, capture_output=True, cwd=cwd, env=env, timeout=600)
    if done.returncode:
        raise PartMissing(f"{argv[0]} failed: {done.stderr.decode().strip()}")
    return done.stdout
