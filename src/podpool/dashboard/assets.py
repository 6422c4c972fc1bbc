"""Static files of the dashboard, read once, with an ETag from their content."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files

import msgspec

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(msgspec.Struct, frozen=True):
    """A static file."""

    type: str
    tag: str
    body: bytes


def load_assets() -> Mapping[str, Asset]:
    """Return all files by URL path."""
    found: dict[str, Asset] = {}
    for file in files("podpool.dashboard").joinpath("page").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is None:
            continue
        body = file.read_bytes()
        path = "/" if file.name == "index.html" else f"/{file.name}"
        found[path] = Asset(kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"', body)
    return found
