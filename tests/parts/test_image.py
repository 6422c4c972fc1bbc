"""An image made by hand is one that a runtime finds everything in."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from parts.image import NAME, write_image

if TYPE_CHECKING:
    from pathlib import Path


def test_every_blob_is_named_by_what_it_holds_and_the_program_is_in_the_layer(tmp_path: Path) -> None:
    (tmp_path / "lamp").write_bytes(b"light")
    write_image(tmp_path / "image.tar", tmp_path / "lamp")
    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {name: read(archive, name) for name in archive.getnames()}

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert descriptor["size"] == len(content)
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        return content

    named = json.loads(files["index.json"])["manifests"][0]
    assert NAME == named["annotations"]["io.containerd.image.name"]
    manifest = json.loads(blob(named))
    assert ["/lamp"] == json.loads(blob(manifest["config"]))["config"]["Entrypoint"]
    with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as layer:
        assert b"light" == read(layer, "lamp")
        assert layer.getmember("lamp").mode & 0o111


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file
    return file.read()
