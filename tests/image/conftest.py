"""The image of this checkout, and a containerd that has it."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from parts import podpool_image
from podpool import __version__
from tests.image.runtime import Runtime
from tools.image import debian
from tools.image.build import build
from tools.image.oci import Release, digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image's archive, read."""

    path: Path
    blobs: dict[str, bytes]
    digests: dict[str, str]
    """Architectures by the digest of their manifest."""
    sboms: dict[str, bytes]

    @property
    def manifests(self) -> dict[str, dict[str, Any]]:
        """Manifests by architecture."""
        return {architecture: json.loads(self.blobs[each]) for each, architecture in self.digests.items()}

    def json(self, descriptor: dict[str, Any]) -> dict[str, Any]:
        """The document that a descriptor describes."""
        return dict(json.loads(self.blobs[descriptor["digest"]]))


def read(path: Path, sboms: dict[str, bytes]) -> Image:
    with tarfile.open(path) as archive:
        content = {each.name: opened.read() for each in archive if (opened := archive.extractfile(each))}
    blobs = {digest(blob): blob for name, blob in content.items() if name.startswith("blobs/")}
    assert {f"blobs/{each.replace(':', '/')}" for each in blobs} == set(content) - {"index.json", "oci-layout"}
    (named,) = json.loads(content["index.json"])["manifests"]
    assert podpool_image.NAME == named["annotations"]["io.containerd.image.name"]
    manifests = json.loads(blobs[named["digest"]])["manifests"]
    digests = {each["digest"]: each["platform"]["architecture"] for each in manifests}
    return Image(path=path, blobs=blobs, digests=digests, sboms=sboms)


@pytest.fixture(scope="session")
def cached() -> Image:
    """The image that tests on the cluster import."""
    return read(podpool_image.archive(), {})


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of both architectures, built now, by a user whose files other users cannot read."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    mask = os.umask(0o077)
    try:
        pins = podpool_image.pins(debian.ARCHITECTURES)
        release = Release(version=__version__, revision="", created=0)
        built = build(path, pins=pins, architectures=debian.ARCHITECTURES, release=release)
    finally:
        os.umask(mask)
    return read(path, built.sboms)


@pytest.fixture(scope="session")
def runtime(fresh: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A containerd with the image of both architectures."""
    started = Runtime(tmp_path_factory.mktemp("containerd"))
    try:
        started.daemon.start()
        started.succeed("images", "import", "--all-platforms", "--no-unpack", fresh.path)
        yield started
    finally:
        started.daemon.kill()
