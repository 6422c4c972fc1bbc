"""`podpool crds` and `podpool rbac` print manifests."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from podpool.api import admission, rbac
from podpool.api.crds import crd_manifests
from podpool.cli.output import Printer
from podpool.cli.spec.model import Output


def print_crds(*, output: str) -> None:
    """Print the CustomResourceDefinitions."""
    _print(crd_manifests(), output)


def print_rbac(*, whereabouts_namespace: str, shared_ranges: bool, output: str) -> None:
    """Print service accounts, roles and admission policies."""
    shared = rbac.shared_range_manifests(pools=whereabouts_namespace) if shared_ranges else []
    found = [*rbac.rbac_manifests(pools=whereabouts_namespace), *shared, *admission.admission_manifests()]
    _print(found, output)


def _print(found: Iterable[Mapping[str, Any]], output: str) -> None:
    items = list(found)
    if output == Output.YAML:  # one document per object, as kubectl apply reads them
        sys.stdout.write("".join(f"---\n{msgspec.yaml.encode(each).decode()}" for each in items))
    else:
        Printer(output).result({"apiVersion": "v1", "kind": "List", "items": items})
