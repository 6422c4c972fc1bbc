"""A container image with one static program, in the layout that `ctr images import` reads.

No image registry is used: the archive is written here, and each node's containerd imports it. The program serves as
sandbox and as workload.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NAME = "podpool.test/pause:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image"


def write_image(archive: Path, program: Path) -> None:
    """Write an image that starts the program."""
    layer = packed({program.name: program.read_bytes()})
    config = encoded(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    )
    manifest = encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": descriptor(config, f"{OCI}.config.v1+json"),
            "layers": [descriptor(layer, f"{OCI}.layer.v1.tar")],
        }
    )
    named = descriptor(manifest, f"{OCI}.manifest.v1+json") | {"annotations": {"io.containerd.image.name": NAME}}
    blobs = {f"blobs/{digest(blob).replace(':', '/')}": blob for blob in (layer, config, manifest)}
    index = encoded({"schemaVersion": 2, "manifests": [named]})
    archive.write_bytes(packed({"oci-layout": encoded({"imageLayoutVersion": "1.0.0"}), "index.json": index} | blobs))


def packed(files: dict[str, bytes]) -> bytes:
    """Return a tar archive of executable files, reproducible for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def descriptor(blob: bytes, media: str) -> dict[str, Any]:
    """Return the descriptor of a blob."""
    return {"mediaType": media, "digest": digest(blob), "size": len(blob)}


def digest(blob: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def encoded(document: dict[str, Any]) -> bytes:
    """Return a JSON document as a blob."""
    return json.dumps(document).encode()
