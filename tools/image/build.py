"""Build the image: fetch, unpack, compile, pack."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parts.steps import progress
from podpool import __version__
from tools.image import debian, dependencies, filesystem, oci, rootfs, sbom

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = f"podpool.io/podpool:{__version__}"


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was built, besides the archive."""

    digest: str
    sboms: dict[str, bytes]
    """By architecture."""


def build(path: Path, *, pins: Sequence[debian.Pin], architectures: Sequence[str], release: oci.Release) -> Built:
    """Write the image's archive; return its digest and the bill of materials of each architecture."""
    own = rootfs.architecture_of_this_machine()
    fetched = {*architectures, own}
    with progress("fetching Debian's packages", usually="1 to 30 s"):
        packages = {each: debian.fetch([pin for pin in pins if pin.architecture == each]) for each in sorted(fetched)}
    runtimes = {each: rootfs.runtime(packages[each]) for each in packages}
    with progress("fetching the dependencies", usually="1 to 20 s"):
        installed = {each: rootfs.wheels(dependencies.install(each)) for each in architectures}
    with tempfile.TemporaryDirectory() as scratch, progress("building the wheel", usually="5 s"):
        wheel = dependencies.build_wheel(Path(scratch))
        own_files = {each: dependencies.unpack_wheel(wheel, each) for each in architectures}
    with progress("compiling and packing", usually="20 s per architecture"):
        images = {
            each: pack(
                {"runtime": runtimes[each], "dependencies": installed[each], "podpool": own_files[each]}, runtimes[own]
            )
            for each in architectures
        }
    layout = oci.write_layout(path, images, release, name=NAME)
    return Built(
        digest=layout.digest,
        sboms={
            each: sbom.encoded(
                sbom.document(
                    [pin for pin in pins if pin.architecture == each],
                    installed[each] | own_files[each],
                    release,
                    architecture=each,
                    manifest=manifest,
                )
            )
            for each, manifest in layout.manifests.items()
        },
    )


def pack(trees: dict[str, filesystem.Tree], runtime_here: filesystem.Tree) -> list[oci.Layer]:
    """Return the packed layers of one architecture, the lowest first."""
    layers: list[oci.Layer] = []
    below: filesystem.Tree = {}
    for title, tree in trees.items():
        complete = rootfs.compiled(tree, runtime_here=runtime_here)
        layers.append(oci.pack(title, filesystem.layer(complete, below=below)))
        below |= tree
    return layers


def release_of_checkout() -> oci.Release:
    """Return version, commit and its time; SOURCE_DATE_EPOCH takes precedence, as in other reproducible builds."""
    revision, created = git("rev-parse", "HEAD"), git("show", "--no-patch", "--format=%ct", "HEAD")
    if git("status", "--porcelain", "--untracked-files=no"):
        revision += "-modified"
    return oci.Release(
        version=__version__, revision=revision, created=int(os.environ.get("SOURCE_DATE_EPOCH") or created or 0)
    )


def git(*argv: str) -> str:
    """Return the output of git, or an empty string outside a checkout."""
    done = subprocess.run(["git", *argv], check=False, capture_output=True, text=True, cwd=dependencies.ROOT)
    return done.stdout.strip() if done.returncode == 0 else ""
