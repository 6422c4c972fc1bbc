"""`podpool status --wait` returns when the cluster is healthy, or says what is missing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from podpool.cli.commands.status import status
from podpool.cli.parser import parse
from podpool.cli.spec import COMMANDS
from podpool.cli.spec.model import Output
from podpool.core.errors import InvalidInput
from podpool.lab.apiserver.registry import NODES
from podpool.lab.sim.manual_edits import edit_nnc
from tests.cli.small_cluster import run, small_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.small_cluster import SmallCluster

GRACE = 30.0
"""Seconds of virtual time in which a cluster recovers."""


@pytest.fixture
def fresh() -> Iterator[SmallCluster]:
    with small_cluster() as made:
        yield made


def reasons(cluster: SmallCluster) -> list[str]:
    """Return what the status waits for at its deadline."""
    code, lines, remark = run(cluster, status, Output.JSON, wait="1s")
    found = [f"{each['subject']}: {each['message']}" for each in json.loads("\n".join(lines))["unhealthy"]]
    assert (1 if found else 0) == code
    assert not found or f"not healthy after 1s: {'; '.join(found)}" in remark
    return found


def test_a_healthy_cluster_needs_no_wait(cluster: SmallCluster) -> None:
    at = cluster.loop.time()
    code, lines, remark = run(cluster, status, wait="5m")
    assert (0, "", "Every Pod has an address.") == (code, remark, lines[0])
    assert cluster.loop.time() - at < 2


def test_it_waits_until_a_new_node_has_its_addresses(fresh: SmallCluster) -> None:
    fresh.add_host("three")
    code, _, remark = run(fresh, status, wait="1m")
    assert 0 == code
    assert "podpool: waiting: nodes: without a network container: three" in remark
    assert [] == reasons(fresh)


def test_an_unreachable_component_explains_all_else(cluster: SmallCluster) -> None:
    cluster.network.partition("cli", "ledger")
    (found,) = reasons(cluster)
    assert found.startswith("ledger: the ledger cannot be reached")
    cluster.network.partition("cli", "api")
    assert "cluster: " == reasons(cluster)[0][:9]


def test_a_controller_that_stopped_is_noticed(fresh: SmallCluster) -> None:
    for process in fresh.controllers.values():
        process.kill()
    fresh.loop.run_until_complete(fresh.run_for(90))
    (found,) = reasons(fresh)
    assert re.fullmatch(r"controller: the leader \S+ has not renewed its Lease for 9\d s", found)


def test_pods_without_an_address_are_named(fresh: SmallCluster) -> None:
    names = [fresh.bind("one") for _ in range(4)]
    fresh.stop_all()
    assert [f"Pods: 4 without an address: {', '.join(names[:3])} and 1 more"] == reasons(fresh)


def test_an_agent_reports_after_each_boot_and_a_third_partys_never(fresh: SmallCluster) -> None:
    fresh.stop_all()
    info = {"nodeInfo": {"bootID": "another"}}
    fresh.store.update(NODES, "one", lambda was: {**was, "status": {**was["status"], **info}}, subresource="status")
    assert "nodes: whose agent has not reported: one" in reasons(fresh)
    edit_nnc(fresh.store, "one", lambda was: {**was, "metadata": {**was["metadata"], "annotations": {}}})
    assert not [each for each in reasons(fresh) if "agent" in each]


def test_a_node_that_is_not_ready_is_named(fresh: SmallCluster) -> None:
    state = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    fresh.store.update(NODES, "two", lambda was: {**was, "status": {**was["status"], **state}}, subresource="status")
    assert ["nodes: not ready: two"] == reasons(fresh)


def test_the_value_of_wait_is_optional() -> None:
    command = COMMANDS["status"]
    assert ["", "5m", "30s"] == [parse(command, words, {})["wait"] for words in ([], ["--wait"], ["--wait=30s"])]


def test_the_value_is_a_duration(cluster: SmallCluster) -> None:
    with pytest.raises(InvalidInput, match="--wait 'soon': not a duration"):
        run(cluster, status, wait="soon")
