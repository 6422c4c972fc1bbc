"""The image of this checkout, and a containerd that has it."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass, field
from functools import cached_property
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


@dataclass(frozen=True)
class Layout:
    """An image's archive, read."""

    path: Path
    blobs: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def images(self) -> dict[str, dict[str, Any]]:
        """Manifests by architecture."""
        with tarfile.open(self.path) as archive:
            content = {each.name: opened.read() for each in archive if (opened := archive.extractfile(each))}
        self.blobs.update({digest(blob): blob for name, blob in content.items() if name.startswith("blobs/")})
        (named,) = json.loads(content["index.json"])["manifests"]
        manifests = self.json(named)["manifests"]
        return {each["platform"]["architecture"]: self.json(each) for each in manifests}

    def json(self, descriptor: dict[str, Any]) -> dict[str, Any]:
        """The document that a descriptor describes."""
        assert descriptor["size"] == len(self.blobs[descriptor["digest"]])
        return dict(json.loads(self.blobs[descriptor["digest"]]))


@pytest.fixture(scope="session")
def cached() -> Layout:
    """The image that tests on the cluster import."""
    return Layout(podpool_image.archive())


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The image of both architectures, built now, by a user whose files other users cannot read."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    mask = os.umask(0o077)
    try:
        pins = podpool_image.pins(debian.ARCHITECTURES)
        release = Release(version=__version__, revision="", created=0)
        build(path, pins=pins, architectures=debian.ARCHITECTURES, release=release)
    finally:
        os.umask(mask)
    return Layout(path)


@pytest.fixture(scope="session")
def runtime(fresh: Layout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A containerd with the image of both architectures."""
    started = Runtime(tmp_path_factory.mktemp("containerd"))
    try:
        started.daemon.start()
        started.succeed("images", "import", "--all-platforms", "--no-unpack", fresh.path)
        yield started
    finally:
        started.daemon.kill()
