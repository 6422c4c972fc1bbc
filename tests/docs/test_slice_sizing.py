"""The commands in docs/slice-sizing.md are run as they are written, with 500 nodes; its sizes are computed by core."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parts.pages import ROOT, commands_of, run_commands
from podpool.core.ranges import parse_prefix
from podpool.core.slice_table import parse_slice_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.namespaces import Namespaces

PAGE = "docs/slice-sizing.md"
NODES, PODS = 500, 10
SETTINGS = "cooldown=2s,cooldown_exhausted=1s"
MANY_NODES = Path(__file__).with_name("many_nodes.py")
SETUP = f"""
mkdir /var/lib/journals
python {MANY_NODES} kubeconfig /var/lib/journals {NODES} {SETTINGS} &
until kubectl get node node-{NODES - 1}; do sleep 1; done
kubectl create -f networks.yaml
podpool controller run --ledger none &
until podpool slices -o json | jq -e '[.items[].waiting] == [244, 244]'; do sleep 1; done
kubectl create -f pods.yaml
until podpool slices -o json | jq -e '[.items[].in_use] == [{PODS}, {PODS}]'; do sleep 1; done
until podpool status -o json | jq -e '.pods_waiting == 0'; do sleep 1; done
"""


@pytest.mark.real
def test_the_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    """Nobody names a ledger, and none is missed."""
    (tmp_path / "networks.yaml").write_text(documents(networks()))
    (tmp_path / "pods.yaml").write_text(documents(pods()))
    result = run_commands(
        SETUP + commands_of(PAGE),
        namespaces=namespaces,
        home=tmp_path,
        KUBECONFIG=str(tmp_path / "kubeconfig"),
        PODPOOL_SETTINGS=SETTINGS,
    )
    assert 0 == result.returncode, result.stdout
    assert "storage: 10.60.0.0/16 has 256 slices of /24 for 500 nodes, 244 get none" in result.stdout
    assert "Every Pod has an address. In 2 networks, up to 244 nodes wait for a slice." in result.stdout
    assert "Node node-499 waits for a slice of networks backup, storage" in result.stdout
    last = result.stdout.rpartition("NETWORK ")[2].splitlines()
    assert ["backup", "10.62.0.0/16", "/25", "512", "500", "0", "0", "0"] == last[1].split()[:8], last
    assert ["storage", "10.60.0.0/15", "/24", "512", "500", "10", "0", "0"] == last[2].split()[:8], last
    assert "No violations in 500 nodes, 0 grants" in result.stdout


def test_the_table_of_ranges_is_what_core_computes() -> None:
    """Each slice has a quarter more addresses than Pods, and the range as many slices as nodes."""
    text = (ROOT / PAGE).read_text()
    (head,) = re.findall(r"^\| Pods per node, at most \| `node_slice_size` \| (.+) \|$", text, re.MULTILINE)
    nodes = [int(each.removesuffix(" nodes").replace(",", "")) for each in head.split(" | ")]
    rows = re.findall(r"^\| (\d+) \| (/\d+) \| (.+) \|$", text, re.MULTILINE)
    assert 5 == len(rows)
    for pods_per_node, size, ranges in rows:
        usable = parse_prefix(f"10.0.0.0{size}").usable.size
        assert usable * 3 // 4 == int(pods_per_node)
        layouts = [parse_slice_size(size, of=parse_prefix(f"10.0.0.0{each}")) for each in ranges.split(" | ")]
        assert nodes == [each.count for each in layouts]


def documents(objects: Iterator[dict[str, Any]]) -> str:
    """Return objects as kubectl reads them."""
    return "\n---\n".join(map(json.dumps, objects))


def networks() -> Iterator[dict[str, Any]]:
    """Return the NADs of the page."""
    for name, range_ in (("storage", "10.60.0.0/16"), ("backup", "10.62.0.0/16")):
        ipam = {"type": "whereabouts", "network_name": name, "range": range_, "node_slice_size": "/24"}
        config = {"cniVersion": "1.0.0", "name": name, "type": "macvlan", "master": "eth0", "ipam": ipam}
        kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
        yield {**kind, "metadata": {"name": name}, "spec": {"config": json.dumps(config)}}


def pods() -> Iterator[dict[str, Any]]:
    """Return a Pod in each network on the first nodes."""
    for name in ("storage", "backup"):
        for number in range(PODS):
            notes = {"k8s.v1.cni.cncf.io/networks": name}
            meta = {"name": f"{name}-{number}", "labels": {"app": name}, "annotations": notes}
            spec = {"nodeName": f"node-{number:03}", "containers": [{"name": "main", "image": "none"}]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
