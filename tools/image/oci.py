"""The OCI image: layers, configuration, manifest of each architecture, index, and the archive of their layout."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tools.image import rootfs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MEDIA = "application/vnd.oci.image"
ENVIRONMENT = [
    "PATH=/usr/local/bin:/usr/bin",
    "LANG=C.UTF-8",
    f"SSL_CERT_FILE=/{rootfs.CERTIFICATES}",
    "PYTHONDONTWRITEBYTECODE=1",
]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer: what it is for, and its tar archive, compressed."""

    title: str
    blob: bytes
    diff_id: str


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the labels state."""

    version: str
    revision: str
    created: int
    """Seconds since 1970."""

    @property
    def created_at(self) -> str:
        """Return the time as RFC 3339 text."""
        return datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def labels(self) -> dict[str, str]:
        """Return the labels of image and index."""
        stated = {
            "title": "podpool",
            "description": "IP address management for Kubernetes Pods in subnets that are running out",
            "version": self.version,
            "revision": self.revision,
            "created": self.created_at,
            "licenses": "Apache-2.0",
        }
        return {f"org.opencontainers.image.{name}": value for name, value in stated.items() if value}


def pack(title: str, archive: bytes) -> Layer:
    """Return a layer; gzip's header has neither time nor name."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # 9 needs five times as long for 1 %
    return Layer(title=title, blob=packer.compress(archive) + packer.flush(), diff_id=digest(archive))


def image(layers: list[Layer], architecture: str, release: Release) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the descriptor of an image, and its blobs by digest."""
    config = encoded(
        {
            "created": release.created_at,
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": f"{rootfs.USER}:{rootfs.USER}",
                "Env": ENVIRONMENT,
                "Entrypoint": ["podpool"],
                "Cmd": ["--help"],
                "WorkingDir": "/",
                "Labels": release.labels(),
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": release.created_at, "created_by": layer.title} for layer in layers],
        }
    )
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": descriptor(config, "config.v1+json"),
            "layers": [descriptor(layer.blob, "layer.v1.tar+gzip") for layer in layers],
            "annotations": release.labels(),
        }
    )
    described = descriptor(manifest, "manifest.v1+json") | {"platform": {"architecture": architecture, "os": "linux"}}
    return described, {digest(blob): blob for blob in (config, manifest, *(layer.blob for layer in layers))}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What was written: the digest of the index, and that of each architecture's manifest."""

    digest: str
    manifests: dict[str, str]


def write_layout(path: Path, images: Mapping[str, list[Layer]], release: Release, *, name: str) -> Layout:
    """Write all images as the archive of one OCI layout with one named index."""
    blobs: dict[str, bytes] = {}
    described = []
    for architecture, layers in sorted(images.items()):
        descriptor_of_image, parts = image(layers, architecture, release)
        described.append(descriptor_of_image)
        blobs |= parts
    index = encoded(index_of(described) | {"annotations": release.labels()})
    blobs[digest(index)] = index
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    entry = encoded(index_of([descriptor(index, "index.v1+json") | {"annotations": names}]))
    files = {"index.json": entry, "oci-layout": encoded({"imageLayoutVersion": "1.0.0"})}
    files |= {f"blobs/{each.replace(':', '/')}": blob for each, blob in blobs.items()}
    with tarfile.open(path, "w") as archive:
        for each, content in sorted(files.items()):
            member = tarfile.TarInfo(each)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    manifests = {each["platform"]["architecture"]: each["digest"] for each in described}
    return Layout(digest=digest(index), manifests=manifests)


def index_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an index."""
    return {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": manifests}


def descriptor(blob: bytes, media: str) -> dict[str, Any]:
    """Return the descriptor of a blob."""
    return {"mediaType": f"{MEDIA}.{media}", "digest": digest(blob), "size": len(blob)}


def digest(blob: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def encoded(document: dict[str, Any]) -> bytes:
    """Return a JSON document as a blob."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
