"""Commands from Debian's packages: installed as root; a plain user gets the command to run.

A command is found on PATH or in the administrator's directories, which a plain user's PATH may lack.
"""

from __future__ import annotations

import os
import shutil

from parts.steps import PartMissing, progress, run

PACKAGES = {
    "bird": "bird2",
    "chromium": "chromium",
    "clang": "clang libclang-rt-dev",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "patroni": "patroni python3-etcd",
    "ping": "iputils-ping",
    "qemu-aarch64-static": "qemu-user-static",
    "runc": "runc",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


def install() -> None:
    """Install the packages whose commands are missing."""
    missing = [command for command in PACKAGES if not find(command)]
    if not missing:
        return
    packages = sorted({package for command in missing for package in PACKAGES[command].split()})
    if not shutil.which("apt-get"):
        raise PartMissing(f"these commands are missing, install them as your system does it: {', '.join(missing)}.")
    if os.geteuid() != 0:
        raise PartMissing(f"type 'sudo apt-get install -y {' '.join(packages)}', then try again.")
    with progress(f"installing Debian's {', '.join(packages)}", usually="20 s"):
        apt("update")
        apt("install", "-y", "--no-install-recommends", *packages)


def apt(*argv: str) -> None:
    """Run apt-get without prompts."""
    run(
        *("apt-get", "-qq", *argv),
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        otherwise=f"apt-get {argv[0]} failed: see its output above, then run 'make parts' again.",
    )


def find(command: str) -> str | None:
    """Return the path of a command, or None."""
    return shutil.which(command, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def command(name: str) -> str:
    """Return the path of a required command."""
    if path := find(name):
        return path
    raise PartMissing(f"the command {name} is missing: run 'make parts'.")
