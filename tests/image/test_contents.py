"""What the image has, what it does not have, and that it is the same each time it is built."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from podpool import __version__
from tools.image.rootfs import USER

if TYPE_CHECKING:
    from tests.image.conftest import Image

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("image"), pytest.mark.timeout(600)]
MACHINES = {"amd64": 62, "arm64": 183}
"""`e_machine` of ELF files."""
DYNAMIC = 6
"""The type of an ELF section."""
LIMIT = 40_000_000
"""Bytes, compressed: half of what the design allows."""
ARCHITECTURES = sorted(MACHINES)


def test_two_builds_are_identical(cached: Image, fresh: Image) -> None:
    """One was built for the cluster's tests, at another time, for one architecture and under another umask."""
    for architecture, manifest in cached.manifests.items():
        assert manifest == fresh.manifests[architecture]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
class TestImage:
    def test_it_is_small(self, fresh: Image, architecture: str) -> None:
        assert sum(layer["size"] for layer in fresh.manifests[architecture]["layers"]) < LIMIT

    def test_its_configuration(self, fresh: Image, architecture: str) -> None:
        config = fresh.json(fresh.manifests[architecture]["config"])
        assert architecture == config["architecture"]
        assert f"{USER}:{USER}" == config["config"]["User"]
        assert ["podpool"] == config["config"]["Entrypoint"]
        assert __version__ == config["config"]["Labels"]["org.opencontainers.image.version"]
        assert 3 == len(config["rootfs"]["diff_ids"])

    def test_no_file_has_special_permissions_or_times(self, fresh: Image, architecture: str) -> None:
        for member, _ in files_of(fresh, architecture):
            assert 0 == member.mtime, member.name
            assert 0 == member.mode & 0o6000, member.name
            assert 0 == member.mode & 0o002 or member.issym() or member.name == "tmp", member.name
            assert 0 == member.uid == member.gid, member.name

    def test_it_has_no_shell_installer_or_test_suite(self, fresh: Image, architecture: str) -> None:
        names = [member.name for member, _ in files_of(fresh, architecture)]
        assert {"python3", "python3.13"} == {
            name.removeprefix("usr/bin/") for name in names if name.startswith("usr/bin/")
        }
        assert [] == [name for name in names if re.search(r"/(pip|setuptools|ensurepip|hatchling|tests?)/", name)]
        assert len(names) == len(set(names))

    def test_every_module_is_compiled_and_nothing_else(self, fresh: Image, architecture: str) -> None:
        names = [member.name for member, _ in files_of(fresh, architecture) if member.isreg()]
        modules = {name for name in names if name.endswith(".py")}
        compiled = {
            name.replace("__pycache__/", "").replace(".cpython-313.pyc", ".py") for name in names if ".pyc" in name
        }
        assert modules == compiled

    def test_libraries_are_of_its_architecture_and_those_that_they_need_are_there(
        self, fresh: Image, architecture: str
    ) -> None:
        libraries = {
            member.name: content for member, content in files_of(fresh, architecture) if content[:4] == b"\x7fELF"
        }
        machines = {name: int.from_bytes(content[18:20], "little") for name, content in libraries.items()}
        assert {MACHINES[architecture]} == set(machines.values())
        names = {member.name.rpartition("/")[2] for member, _ in files_of(fresh, architecture)}
        assert set() == {name for content in libraries.values() for name in needed(content)} - names

    def test_it_has_one_plugin(self, fresh: Image, architecture: str) -> None:
        names = [member.name for member, _ in files_of(fresh, architecture) if "/cni/bin/" in member.name]
        assert [True] == [
            name.endswith({"amd64": "podpool-x86_64", "arm64": "podpool-aarch64"}[architecture]) for name in names
        ]

    def test_its_bill_of_materials_names_what_is_in_it(self, fresh: Image, architecture: str) -> None:
        document = json.loads(fresh.sboms[architecture])
        assert "CycloneDX" == document["bomFormat"]
        purls = {component["purl"].partition("?")[0].partition("@")[0] for component in document["components"]}
        names = [member.name for member, _ in files_of(fresh, architecture)]
        debian = {
            f"pkg:deb/debian/{name.rpartition('/')[2].replace('+', '%2B')}" for name in names if "/status.d/" in name
        }
        wheels = {name.split("/")[-2].partition("-")[0] for name in names if name.endswith(".dist-info/METADATA")}
        assert purls == debian | {f"pkg:pypi/{name.lower().replace('_', '-')}" for name in wheels}
        (manifest,) = [each for each, found in fresh.digests.items() if found == architecture]
        assert manifest.removeprefix("sha256:") in document["metadata"]["component"]["purl"]


def files_of(image: Image, architecture: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The files of all layers, with their contents."""
    return [each for layer in image.manifests[architecture]["layers"] for each in read(image, layer)]


def read(image: Image, layer: dict[str, Any]) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(image.blobs[layer["digest"]]))) as archive:
        return [(each, content_of(archive, each)) for each in archive.getmembers() if not each.isdir()]


def content_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    opened = archive.extractfile(member) if member.isreg() else None
    return opened.read() if opened else b""


def needed(library: bytes) -> list[str]:
    """The libraries that an ELF file (64 bits, little endian) loads: the NEEDED entries of its dynamic section."""
    (sections,), (size, count) = struct.unpack_from("<Q", library, 40), struct.unpack_from("<HH", library, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", library, sections + number * size) for number in range(count)]
    names = []
    for _, kind, _, _, offset, length, link, *_ in headers:
        if kind == DYNAMIC:
            entries = [struct.unpack_from("<qQ", library, offset + at) for at in range(0, length, 16)]
            names += [library[headers[link][4] + value :].split(b"\0", 1)[0] for tag, value in entries if tag == 1]
    return [name.decode() for name in names]
