"""Manifests printed by podpool's commands, on a real API server."""

import subprocess
import sys
from functools import partial
from pathlib import Path

from parts.api import Api, ApiError
from parts.control_plane import ControlPlane
from parts.polling import until
from podpool.api.crds import crd_manifests

PODPOOL = Path(sys.executable).parent / "podpool"


def podpool_output(*words: str) -> str:
    return subprocess.run([PODPOOL, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def install_crds_with_kubectl(plane: ControlPlane) -> None:
    """Apply `podpool crds` and wait until every kind is served."""
    plane.kubectl("apply", "-f", "-", manifest=podpool_output("crds"))
    for manifest in crd_manifests():
        group, version = manifest["spec"]["group"], manifest["spec"]["versions"][0]["name"]
        path = f"/apis/{group}/{version}/{manifest['spec']['names']['plural']}"
        until(partial(is_served, plane.admin, path), f"{path} is served")


def is_served(api: Api, path: str) -> bool:
    try:
        return bool(api.get(path))
    except ApiError:
        return False
