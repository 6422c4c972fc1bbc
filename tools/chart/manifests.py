"""Plain manifests: the chart rendered by Helm for each profile, without what only Helm uses.

CRDs and the objects of an uninstallation are files of their own: to delete CRDs together with the controller would hang
on finalizers. Secrets are in none: each rendering would have others, and a repository is no place for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from parts.recipes import program
from parts.steps import PartMissing
from tools.chart.files import CHART, ROOT, documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MANIFESTS = Path("deploy/manifests")
HEAD = "# Rendered from deploy/helm/podpool by `make manifests`; docs/install.md says how to use it.\n"
PLAIN: dict[str, Any] = {"ledger": {"tokens": {"generate": False}, "tls": {"source": "secret"}}}
BRIDGE: dict[str, Any] = {"network": {"profile": "bridge", "bridge": "br0"}, "controller": {"subnet": "vnet.pods"}}
PROFILES: dict[str, dict[str, Any]] = {
    "dynamic": PLAIN | BRIDGE,
    "slices": {},
    "dynamic-slices": PLAIN | BRIDGE,
    "azure": PLAIN | {"controller": BRIDGE["controller"]},
}
"""Values in addition to those of the profile: a bridge and a subnet, which overlays replace."""


def manifests() -> Mapping[Path, str]:
    """Return the content of each file."""
    found = {f"{name}.yaml": _rendered(name, values, kinds_of_crds=False) for name, values in PROFILES.items()}
    found["crds.yaml"] = _rendered("slices", {}, kinds_of_crds=True)
    uninstall = PROFILES["dynamic-slices"] | {"uninstall": {"render": "always"}}
    found["uninstall.yaml"] = _rendered("dynamic-slices", uninstall, only="templates/uninstall.yaml")
    return {MANIFESTS / name: f"{HEAD}{content}" for name, content in found.items()}


def write_if_helm_is_built() -> None:
    """Write all of them; `make docs` needs no part, so without Helm they stay as they are."""
    try:
        program("helm")
    except PartMissing:
        print(f"podpool: {MANIFESTS} not rendered: Helm is not built, run `make manifests`")
    else:
        write()


def write() -> None:
    """Write all of them."""
    for path, content in manifests().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(content)


def _rendered(profile: str, values: dict[str, Any], *, kinds_of_crds: bool = False, only: str = "") -> str:
    return documents(
        _plain(each)
        for each in _objects(profile, values, only)
        if (each["kind"] == "CustomResourceDefinition") is kinds_of_crds
    )


def _objects(profile: str, values: dict[str, Any], only: str) -> Iterator[dict[str, Any]]:
    shown = ["--show-only", only] if only else []
    chosen: list[str | Path] = ["--values", ROOT / CHART / f"profiles/{profile}.yaml", "--values", "-"]
    argv: list[str | Path] = [
        program("helm"),
        "template",
        "podpool",
        ROOT / CHART,
        "--namespace",
        "kube-system",
        *chosen,
        *shown,
    ]
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {f"HELM_{each}_HOME": home for each in ("CACHE", "CONFIG", "DATA")}
        text = subprocess.run(
            argv, check=True, capture_output=True, text=True, input=json.dumps(values), env=env
        ).stdout
    for each in text.split("\n---\n"):
        if (found := msgspec.yaml.decode(each)) is not None:
            yield found


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return an object without Helm's labels and annotations, also in its template of Pods."""
    for part in (found, found.get("spec", {}).get("template", {})):
        metadata = part.get("metadata", {})
        metadata.get("labels", {}).pop("app.kubernetes.io/managed-by", None)
        kept = {key: value for key, value in metadata.pop("annotations", {}).items() if not key.startswith("helm.sh/")}
        if kept:
            metadata["annotations"] = kept
    return found
