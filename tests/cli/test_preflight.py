"""`podpool preflight`: a line for each check, remedies, and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from podpool.cli.commands.preflight import preflight
from podpool.cli.errors import ComponentUnreachable
from podpool.cli.spec.model import Output
from podpool.core.errors import InvalidInput
from tests.cli.small_cluster import run

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke
    from tests.cli.small_cluster import SmallCluster

DEFAULTS: dict[str, Any] = {
    "subnet": "",
    "namespace": "kube-system",
    "bin_dir": "/none",
    "conf_dir": "/none",
    "state": "/",
}


def test_a_line_for_each_check_also_where_all_is_well(cluster: SmallCluster) -> None:
    code, lines, warnings = run(cluster, preflight, **DEFAULTS)
    assert (0, "") == (code, warnings)
    assert ["CHECK", "RESULT", "OBJECT", "FINDING"] == lines[0].split()
    checks = [line.split()[:2] for line in lines[1 : lines.index("")]]
    assert 7 == checks.count(["crds", "ok"])
    for name in ("nodes", "ledger", "subnet", "overlaps", "other-cnis"):
        assert [name, "ok"] in checks
    assert "podpool can be installed: 0 errors, 2 warnings, 0 not checked." == lines[-1]


def test_an_error_has_a_remedy_and_exit_code_1(cluster: SmallCluster) -> None:
    code, lines, _ = run(cluster, preflight, **DEFAULTS | {"subnet": "vnet.none"})
    assert 1 == code
    remedy = "error: subnet/vnet.none: run `podpool ledger subnet create vnet.none CIDR`; existing: vnet.pods."
    assert remedy in lines
    assert lines[-1].startswith("podpool will not work here: 1 errors")
    code, lines, _ = run(cluster, preflight, Output.JSON, **DEFAULTS | {"subnet": "vnet.none"})
    found = json.loads("\n".join(lines))["findings"]
    assert [("subnet", "subnet/vnet.none")] == [
        (each["check"], each["object"]) for each in found if each["severity"] == "error"
    ]


def test_an_unreachable_ledger_is_an_error_and_an_api_server_ends_it(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "ledger")
    code, lines, _ = run(cluster, preflight, **DEFAULTS)
    assert 1 == code
    assert any(line.split()[:2] == ["ledger", "error"] for line in lines)
    cluster.network.partition("cli", "api")
    with pytest.raises(ComponentUnreachable, match=r"Nothing was checked: name a cluster with --kubeconfig"):
        run(cluster, preflight, **DEFAULTS)


def test_names_of_a_hostile_server_cannot_control_the_terminal(cluster: SmallCluster) -> None:
    info = {"bootID": "b", "architecture": "\x1b[2J\x9b\n"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}, "status": {"nodeInfo": info}}
    copy = cluster.store.snapshot()
    try:
        cluster.store.create(cluster.store.registry.find("", "v1", "nodes"), node)
        _, lines, _ = run(cluster, preflight, **DEFAULTS)
    finally:
        cluster.store.restore(copy)
    assert all(line.isprintable() for line in lines)
    assert any("evil (\N{REPLACEMENT CHARACTER}[2J" in line for line in lines)


def test_a_subnet_is_named_with_its_network(cluster: SmallCluster, invoke: Invoke) -> None:
    with pytest.raises(InvalidInput, match="--subnet 'pods': not a subnet"):
        run(cluster, preflight, **DEFAULTS | {"subnet": "pods"})
    code, _, stderr = invoke("preflight", "--kubeconfig", "/none", "--ledger", "none")
    assert 2 == code
    assert "/none" in stderr
