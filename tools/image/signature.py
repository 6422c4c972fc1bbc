"""Signatures of what is published, with a local key and without network: SHA256SUMS, signed by openssl.

SHA256SUMS.sig is the base64 of an ECDSA signature, as `cosign verify-blob --signature` and openssl read it.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
from typing import TYPE_CHECKING

from parts.debian import command
from parts.steps import PartMissing

if TYPE_CHECKING:
    from pathlib import Path

SUMS = "SHA256SUMS"


def sign(directory: Path, key: Path) -> Path:
    """Write the checksums of all files of a directory, and their signature; return the signature's path."""
    sums = directory / SUMS
    names = sorted(
        path.name for path in directory.iterdir() if path.is_file() and not path.name.startswith((".", SUMS))
    )
    if not names:
        raise PartMissing(f"{directory} has nothing to sign: type 'make image' first.")
    sums.write_text("".join(f"{digest(directory / name)}  {name}\n" for name in names))
    done = subprocess.run(
        [command("openssl"), "dgst", "-sha256", "-sign", key, sums], check=False, stdout=subprocess.PIPE, timeout=300
    )
    if done.returncode:
        raise PartMissing(f"openssl cannot sign with --key {key}: give the file of an ECDSA P-256 key in PEM format.")
    signature = directory / f"{SUMS}.sig"
    signature.write_bytes(base64.b64encode(done.stdout) + b"\n")
    return signature


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
