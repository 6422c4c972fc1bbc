"""What is published is signed with a local key, without network."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from parts.debian import command
from parts.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("image")]


def test_checksums_of_all_files_are_signed(tmp_path: Path) -> None:
    directory = published(tmp_path)
    done = sign(directory, new_key(tmp_path))
    assert 0 == done.returncode, done.stderr
    sums = directory / "SHA256SUMS"
    assert [
        f"{hashlib.sha256(b'two').hexdigest()}  image.tar",
        f"{hashlib.sha256(b'one').hexdigest()}  podpool.whl",
    ] == (sums.read_text().splitlines())
    signature = tmp_path / "signature"
    signature.write_bytes(base64.b64decode((directory / "SHA256SUMS.sig").read_bytes(), validate=False))
    check: list[str | Path] = [
        command("openssl"),
        "dgst",
        "-sha256",
        "-verify",
        tmp_path / "public.pem",
        "-signature",
        signature,
    ]
    assert b"Verified OK" in subprocess.run([*check, sums], check=True, capture_output=True).stdout
    sums.write_text(sums.read_text() + "\n")
    assert 0 != subprocess.run([*check, sums], check=False, capture_output=True).returncode


def test_signing_again_signs_the_same_files(tmp_path: Path) -> None:
    directory, key = published(tmp_path), new_key(tmp_path)
    sign(directory, key)
    first = (directory / "SHA256SUMS").read_text()
    sign(directory, key)
    assert first == (directory / "SHA256SUMS").read_text()


def test_a_wrong_key_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    done = sign(published(tmp_path), tmp_path / "none.pem")
    assert 1 == done.returncode
    assert "--key" in done.stderr


def test_an_empty_directory_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    done = sign(tmp_path, new_key(tmp_path / "keys"))
    assert 1 == done.returncode
    assert "make image" in done.stderr


def published(home: Path) -> Path:
    directory = home / "dist"
    directory.mkdir()
    (directory / "podpool.whl").write_bytes(b"one")
    (directory / "image.tar").write_bytes(b"two")
    return directory


def new_key(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    key, openssl = home / "key.pem", command("openssl")
    make: list[str | Path] = [openssl, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run([openssl, "ec", "-in", key, "-pubout", "-out", home / "public.pem"], check=True, capture_output=True)
    return key


def sign(directory: Path, key: Path) -> subprocess.CompletedProcess[str]:
    argv: list[str | Path] = [sys.executable, "-m", "tools.image", "sign", "--directory", directory, "--key", key]
    return subprocess.run(argv, check=False, capture_output=True, text=True, cwd=ROOT)
