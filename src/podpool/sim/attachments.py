"""The network of a world with slices: Multus' definition of it, which people delete, write again and change."""

import json
from typing import Any

from podpool.pocket.kinds import DEFINITIONS, Served
from podpool.pocket.store import PocketStore
from podpool.resources.crds import multus_manifest
from podpool.resources.multus import ATTACHMENTS

KEY = "default/red"
NETWORK = "red"
SIZES = ("/29", "/30")
"""The size of a slice in the beginning, and one that somebody may change it to."""


def define(store: PocketStore, range_: str) -> None:
    """Let the cluster know of attachments, and have one."""
    store.create(DEFINITIONS, multus_manifest())
    write(store, range_, SIZES[0])


def write(store: PocketStore, range_: str, size: str) -> None:
    """Write the definition, or write it anew."""
    ipam = {"type": "whereabouts", "network_name": NETWORK, "range": range_, "node_slice_size": size}
    config = {"cniVersion": "1.0.0", "name": NETWORK, "type": "macvlan", "ipam": ipam}
    spec = {"config": json.dumps(config)}
    if KEY in _stored(store):
        store.update(_served(store), KEY, lambda old: {**old, "spec": spec})
    else:
        head = {"apiVersion": ATTACHMENTS.api_version, "kind": ATTACHMENTS.kind}
        store.create(_served(store), {**head, "metadata": {"name": "red"}, "spec": spec}, namespace="default")


def delete(store: PocketStore) -> None:
    """Delete the definition."""
    if KEY in _stored(store):
        store.delete(_served(store), KEY)


def config(store: PocketStore) -> bytes | None:
    """Read what a Pod's network is configured with now, if it is."""
    found = _stored(store).get(KEY)
    return found["spec"]["config"].encode() if found else None


def size(store: PocketStore) -> str:
    """Tell the size of a slice now; empty without a definition."""
    text = config(store)
    return json.loads(text)["ipam"]["node_slice_size"] if text else ""


def _stored(store: PocketStore) -> Any:  # noqa: ANN401  JSON by key
    return store.objects(ATTACHMENTS.group, ATTACHMENTS.plural)


def _served(store: PocketStore) -> Served:
    return store.kinds.find(ATTACHMENTS.group, ATTACHMENTS.version, ATTACHMENTS.plural)
