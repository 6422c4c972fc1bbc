"""Software bill of materials of one image, in CycloneDX 1.6: every package of Debian and of PyPI, with its version."""

from __future__ import annotations

import json
import uuid
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any

from tools.image import debian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.image.filesystem import Tree
    from tools.image.oci import Release

SPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "podpool.io")


def document(
    pins: Sequence[debian.Pin], wheels: Tree, release: Release, *, architecture: str, manifest: str
) -> dict[str, Any]:
    """Return the document of the image whose manifest has this digest; it is the same for the same image."""
    algorithm, _, content = manifest.partition(":")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(SPACE, manifest)}",
        "version": 1,
        "metadata": {
            "timestamp": release.created_at,
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": "podpool",
                "version": release.version,
                "purl": f"pkg:oci/podpool@{algorithm}%3A{content}?arch={architecture}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [*map(debian_component, sorted(pins)), *wheel_components(wheels)],
    }


def debian_component(pin: debian.Pin) -> dict[str, Any]:
    """Return a package of Debian."""
    version = pin.version.replace("+", "%2B").replace(":", "%3A")
    name = pin.name.replace("+", "%2B")
    purl = f"pkg:deb/debian/{name}@{version}?arch={pin.architecture}&distro=debian-{debian.RELEASE}"
    found = {"type": "library", "bom-ref": purl, "name": pin.name, "version": pin.version, "purl": purl}
    return {**found, "hashes": [{"alg": "SHA-256", "content": pin.sha256}]}


def wheel_components(wheels: Tree) -> list[dict[str, Any]]:
    """Return the packages of PyPI, as their metadata in the image names them."""
    texts = [entry.content or b"" for path, entry in wheels.items() if path.endswith(".dist-info/METADATA")]
    headers = [HeaderParser().parsestr(text.decode()) for text in texts]
    components = []
    for header in sorted(headers, key=lambda each: str(each["Name"]).lower()):
        purl = f"pkg:pypi/{header['Name'].lower().replace('_', '-')}@{header['Version']}"
        component = {
            "type": "library",
            "bom-ref": purl,
            "name": header["Name"],
            "version": header["Version"],
            "purl": purl,
        }
        if expression := header["License-Expression"]:
            component["licenses"] = [{"expression": expression}]
        components.append(component)
    return components


def encoded(document: dict[str, Any]) -> bytes:
    """Return a document as the text of a file."""
    return json.dumps(document, indent=2).encode() + b"\n"
