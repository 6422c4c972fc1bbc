"""The second network of the stage: Multus' kind, and a range that is divided into a slice for each node."""

import json
from typing import Any

from podpool.api.crds import CRDS
from podpool.api.multus import NETWORK_ATTACHMENTS

WIDE = "wide"
RANGE, SLICE = "10.88.0.0/16", "/26"


def attachment() -> dict[str, Any]:
    """Describe the network as a person does for Multus."""
    ipam = {"type": "podpool", "range": RANGE, "node_slice_size": SLICE, "network_name": WIDE}
    config = {"cniVersion": "1.0.0", "name": WIDE, "type": "macvlan", "ipam": ipam}
    return {"metadata": {"name": WIDE}, "spec": {"config": json.dumps(config)}}


def attachments_kind() -> dict[str, Any]:
    """Define Multus' kind, which comes with Multus elsewhere."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
    }
    version = {"name": NETWORK_ATTACHMENTS.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": NETWORK_ATTACHMENTS.plural, "kind": NETWORK_ATTACHMENTS.kind, "shortNames": ["net-attach-def"]}
    names["singular"] = "network-attachment-definition"
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{NETWORK_ATTACHMENTS.plural}.{NETWORK_ATTACHMENTS.group}"},
        "spec": {"group": NETWORK_ATTACHMENTS.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
