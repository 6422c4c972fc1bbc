"""The commands in docs/moving.md are run as they are written, on objects that Whereabouts wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.pages import AGENTS_FOLLOW, commands_of, register, run_commands, within_reach
from podpool.api.crds import crd_manifests, multus_crd_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.control_plane import ControlPlane
    from parts.namespaces import Namespaces

BOOT = Path("/proc/sys/kernel/random/boot_id")
GROUP = "whereabouts.cni.cncf.io/v1alpha1"
IPAM = {"type": "whereabouts", "range": "10.9.0.0/16", "node_slice_size": "/24", "network_name": "fast"}
CONFIG = json.dumps({"cniVersion": "1.0.0", "name": "fast", "type": "macvlan", "ipam": IPAM})
SLICES = [{"nodeName": "", "sliceRange": "10.9.0.0/24"}, {"nodeName": "one", "sliceRange": "10.9.1.0/24"}]
ENTRY = {"id": "sandbox-of-old", "podref": "default/old", "ifname": "net1"}
BEFORE = r"printf '#!/bin/sh\necho theirs\n' > /opt/cni/bin/whereabouts; chmod +x /opt/cni/bin/whereabouts" + "\n"
AFTER = "/opt/cni/bin/whereabouts\n"
KINDS = "net-attach-def,nodeslicepools,ippools,leases,pods"


@pytest.fixture
def with_crds(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with Whereabouts' and Multus' CRDs."""
    for definition in (multus_crd_manifest(), *crd_manifests()):
        control_plane.kubectl("apply", "-f", "-", manifest=definition)
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    try:
        yield control_plane
    finally:
        for namespace in ("default", "kube-system"):
            control_plane.kubectl("delete", KINDS, "-n", namespace, "--all", "--force", "--wait=false")


@pytest.mark.real
@pytest.mark.xdist_group("installation")
def test_the_commands_of_the_page_work(with_crds: ControlPlane, namespaces: Namespaces, tmp_path: Path) -> None:
    """A new Pod gets the next address of its node's slice; at the end Whereabouts' plugin is restored."""
    with within_reach(with_crds, namespaces, tmp_path):
        register(with_crds, "one", boot_id=BOOT.read_text().strip())
        for each in whereabouts_objects():
            with_crds.kubectl("create", "-f", "-", manifest=each)
        commands = BEFORE + commands_of("docs/moving.md") + AFTER
        variables = {"NODE": "one", "PODPOOL_SETTINGS": AGENTS_FOLLOW}
        result = run_commands(commands, namespaces=namespaces, home=tmp_path, plane=with_crds, **variables)
    assert 0 == result.returncode, result.stdout
    assert '"10.9.1.2/16"' in result.stdout, result.stdout
    assert re.search(r"^theirs$", result.stdout, re.MULTILINE)


def whereabouts_objects() -> Iterator[dict[str, Any]]:
    """Return objects that Whereabouts and its users wrote."""
    network = {"metadata": {"name": "fast"}, "spec": {"config": CONFIG}}
    yield {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", **network}
    range_ = {"range": "10.9.0.0/16", "sliceSize": "/24"}
    here = {"metadata": {"name": "fast", "namespace": "kube-system"}}
    yield {"apiVersion": GROUP, "kind": "NodeSlicePool", **here, "spec": range_, "status": {"allocations": SLICES}}
    here = {"metadata": {"name": "fast-one-10.9.1.0-24", "namespace": "kube-system"}}
    pool = {"range": "10.9.1.0/24", "allocations": {"1": ENTRY}}
    yield {"apiVersion": GROUP, "kind": "IPPool", **here, "spec": pool}
    pod = {"nodeName": "one", "containers": [{"name": "main", "image": "none"}]}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": pod}
