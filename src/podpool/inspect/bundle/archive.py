"""The archive of a support bundle: a gzipped tar file of bounded size, with a manifest of what failed."""

import io
import re
import tarfile
from typing import Any

import msgspec

MAX_BYTES = 64 << 20
"""Of all files together, before compression."""
MAX_FILE_BYTES = 16 << 20
MAX_NAME = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]")


class BundleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of the bundle, or why it is not there."""

    path: str
    bytes: int = 0
    truncated: bool = False
    error: str = ""


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the bundle contains."""

    podpool: str
    created: str
    server: str
    since_seconds: float
    entries: tuple[BundleEntry, ...]

    @property
    def failed(self) -> tuple[BundleEntry, ...]:
        """What could not be read."""
        return tuple(each for each in self.entries if each.error)


class BundleArchive:
    """Collects files; `finish` returns the whole archive."""

    def __init__(self, root: str, *, time: float, max_bytes: int = MAX_BYTES) -> None:
        self._root = root
        self._time = int(time)
        self._left = max_bytes
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w:gz")  # noqa: SIM115  closed in `finish`
        self.entries: list[BundleEntry] = []

    @property
    def full(self) -> bool:
        """Whether nothing more can be added."""
        return self._left <= 0

    def add(self, path: str, content: bytes, *, truncated: bool = False) -> None:
        """Add a file; what exceeds the limits is cut off."""
        limit = max(0, min(MAX_FILE_BYTES, self._left))
        cut = len(content) > limit
        if limit == 0:
            self.fail(path, f"the bundle has its {MAX_BYTES >> 20} MiB")
            return
        kept = content[:limit]
        self._left -= len(kept)
        self._write(path, kept)
        self.entries.append(BundleEntry(path=path, bytes=len(kept), truncated=truncated or cut))

    def add_json(self, path: str, value: Any, *, truncated: bool = False) -> None:  # noqa: ANN401  whatever is JSON
        """Add a value as JSON."""
        self.add(path, msgspec.json.format(msgspec.json.encode(value)), truncated=truncated)

    def fail(self, path: str, error: str) -> None:
        """Record what could not be read."""
        self.entries.append(BundleEntry(path=path, error=error))

    def finish(self, manifest: BundleManifest) -> bytes:
        """Add the manifest and return the archive."""
        self._write("manifest.json", msgspec.json.format(msgspec.json.encode(manifest)))
        self._tar.close()
        return self._buffer.getvalue()

    def _write(self, path: str, content: bytes) -> None:
        info = tarfile.TarInfo(f"{self._root}/{path}")
        info.size, info.mtime, info.mode = len(content), self._time, 0o600
        self._tar.addfile(info, io.BytesIO(content))


def safe_name(name: str) -> str:
    """Return a name from a server as a file name: no separators, no leading dot, not too long."""
    return _UNSAFE.sub("_", name)[:MAX_NAME].lstrip(".") or "_"
