"""The krew plugin: its manifest is the one of its archive, and its launcher installs podpool once."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import tarfile
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool import __version__
from tools.krew import MANIFEST, NAME, PROGRAM, archive, gzipped, manifest, rendered

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = """#!/bin/sh
echo "$@" >> "$LOG"
case "$2" in
venv)
  mkdir -p "$4/bin"
  cp "$0" "$4/bin/python"
  printf '#!/bin/sh\\necho "ran $@"\\n' > "$4/bin/kubectl-podpool"
  chmod +x "$4/bin/kubectl-podpool"
  ;;
esac
"""
"""A Python that installs nothing, and writes down what it was asked."""


def test_the_manifest_in_the_repository_is_generated() -> None:
    assert MANIFEST.read_text() == rendered(archive()), "run `python -m tools.krew`"


def test_the_manifest_has_what_krew_requires() -> None:
    found = msgspec.yaml.decode(MANIFEST.read_bytes())
    assert ("krew.googlecontainertools.github.com/v1alpha2", "Plugin") == (found["apiVersion"], found["kind"])
    assert MANIFEST.stem == found["metadata"]["name"] == "podpool"
    spec = found["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    (platform,) = spec["platforms"]
    assert hashlib.sha256(archive()).hexdigest() == platform["sha256"]
    assert platform["uri"].startswith("https://")
    assert platform["uri"].endswith(NAME)
    assert PROGRAM == platform["bin"]


def test_a_manifest_names_the_url_of_a_release() -> None:
    (platform,) = manifest(b"content", url="https://mirror/x.tar.gz")["spec"]["platforms"]
    assert ("https://mirror/x.tar.gz", hashlib.sha256(b"content").hexdigest()) == (platform["uri"], platform["sha256"])


def test_the_archive_is_the_same_each_time_and_has_a_launcher() -> None:
    assert archive() == archive()
    assert all(content == gzip.decompress(gzipped(content)) for content in (b"", b"x", b"y" * 65_535, b"z" * 200_000))
    with tarfile.open(fileobj=io.BytesIO(archive())) as tar:
        modes = {each.name: each.mode for each in tar.getmembers()}
    assert {PROGRAM: 0o755, "requirements.lock": 0o644, "LICENSE": 0o644} == modes


@pytest.mark.integration
def test_the_launcher_installs_once_and_passes_its_words_on(tmp_path: Path) -> None:
    """As krew runs it: through a symbolic link to the unpacked archive."""
    with tarfile.open(fileobj=io.BytesIO(archive())) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "kubectl-podpool"
    link.symlink_to(tmp_path / "store" / PROGRAM)
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LOG": str(log), "PODPOOL_PYTHON": str(python)}

    def run() -> tuple[str, str]:
        done = subprocess.run([link, "status", "a b"], check=True, env=environment, capture_output=True, text=True)
        return done.stdout, done.stderr

    first, second = run(), run()
    assert first[0] == second[0] == "ran status a b\n"
    assert f"podpool: installing version {__version__} into {tmp_path}/.cache/podpool/" in first[1]
    assert "" == second[1]
    venv, locked, own = log.read_text().splitlines()
    assert venv.startswith("-m venv --clear ")
    assert f"--require-hashes --requirement {tmp_path}/store/requirements.lock" in locked
    assert own.endswith(f"--no-deps podpool=={__version__}")
