"""`podpool who`, `why` and `history`: present and past owners of addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool.cli.commands import history
from podpool.cli.errors import ComponentUnreachable
from podpool.cli.spec.model import Output
from podpool.core.errors import InvalidInput
from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.client import LedgerClient
from tests.cli.small_cluster import run, small_cluster

if TYPE_CHECKING:
    from podpool.cli.context import ClusterContext
    from tests.cli.small_cluster import SmallCluster


def test_the_owner_of_an_address(cluster: SmallCluster) -> None:
    code, lines, _ = run(cluster, history.who, address="10.0.0.3", at="")
    assert (0, f"10.0.0.3 belongs to Pod {cluster.pods[3]} on node two.") == (code, lines[0])
    head, row = (line.split() for line in lines[2:])
    assert ["ADDRESS", "NETWORK", "NODE", "POD", "SINCE", "UNTIL", "GRANTED", "RELEASED"] == head
    shown = dict(zip(head, row, strict=True))
    assert (cluster.pods[3], "now", "now") == (shown["POD"], shown["UNTIL"], shown["RELEASED"])
    assert shown["GRANTED"] < shown["SINCE"], "the node had the address before the Pod"
    assert ["10.0.0.63 belongs to no node of this cluster."] == run(cluster, history.who, address="10.0.0.63", at="")[1]
    assert "is idle on node two" in run(cluster, history.who, address="10.0.0.5", at="")[1][0]


def test_past_owners_need_the_ledger(cluster: SmallCluster) -> None:
    before = "2020-01-01T00:00:00Z"
    _, lines, _ = run(cluster, history.who, address="10.0.0.3", at=before)
    assert [f"10.0.0.3: no records at {before}; history is kept for 720 h."] == lines
    with pytest.raises(InvalidInput, match="--at 'yesterday': is not a time"):
        run(cluster, history.who, address="10.0.0.3", at="yesterday")
    with pytest.raises(InvalidInput, match="--at '2020-01-01': has no time zone"):
        run(cluster, history.who, address="10.0.0.3", at="2020-01-01")
    with pytest.raises(InvalidInput, match="ADDRESS '10.0.0'"):
        run(cluster, history.who, address="10.0.0", at="")
    future = "2099-01-01T00:00:00Z"
    with pytest.raises(InvalidInput, match=f"--at '{future}': is in the future"):
        run(cluster, history.who, address="10.0.0.3", at=future)
    with pytest.raises(InvalidInput, match=f"--at '{future}': is in the future"):
        run(cluster, history.node_history, node="two", at=future)
    cluster.network.partition("cli", "ledger")
    with pytest.raises(ComponentUnreachable, match="Without --at"):
        run(cluster, history.who, address="10.0.0.3", at="2026-11-16T02:30:00Z")


def test_why(cluster: SmallCluster) -> None:
    code, lines, _ = run(cluster, history.explain, pod=cluster.pods[3].removeprefix("default/"), namespace="default")
    assert (0, [f"{cluster.pods[3]}: It has 10.0.0.3 on node two."]) == (code, lines)
    code, lines, _ = run(cluster, history.explain, pod="other/pod-9", namespace="default")
    assert (1, "other/pod-9: The Pod does not exist.") == (code, lines[0])


def test_without_a_namespace_it_is_the_contexts(cluster: SmallCluster) -> None:
    async def elsewhere(context: ClusterContext) -> int:
        return await history.explain(msgspec.structs.replace(context, namespace="shop"), pod="web", namespace="")

    assert "shop/web: The Pod does not exist." == run(cluster, elsewhere)[1][0]


def test_an_address_of_a_secondary_network(cluster: SmallCluster) -> None:
    """The ledger does not manage it, but it was reported."""
    client = LedgerClient(cluster.network.transport("controller", cluster.ledger_host.replicas[0]))
    use = PodUsage(
        network="default/fast",
        address="10.9.0.7",
        namespace="default",
        name="web",
        uid="u",
        since="2027-01-15T08:00:00Z",
        node="one",
    )
    cluster.loop.run_until_complete(client.report_pods(PodReport(cluster="c", pods=(use,))))
    _, lines, _ = run(cluster, history.who, address="10.9.0.7", at="")
    assert "10.9.0.7 belongs to Pod default/web in network default/fast." == lines[0]
    assert ["10.9.0.7", "default/fast", "one"] == lines[3].split()[:3]
    assert "10.9.0.7" in [line.split()[0] for line in run(cluster, history.node_history, node="one", at="")[1]]


class TestHistory:
    def test_of_a_pod_a_node_and_an_address(self, cluster: SmallCluster) -> None:
        code, lines, _ = run(
            cluster, history.pod_history, pod=cluster.pods[3].removeprefix("default/"), namespace="default", at=""
        )
        assert (0, 2) == (code, len(lines))
        assert ["10.0.0.3", "vnet", "two", cluster.pods[3], "now"] == [lines[1].split()[at] for at in (0, 1, 2, 3, 5)]
        assert ["POD", "SINCE", "UNTIL"] == lines[0].split()[3:]
        assert lines == run(cluster, history.pod_history, pod=cluster.pods[3], namespace="x", at="")[1]
        assert 16 == len(run(cluster, history.node_history, node="two", at="")[1]) - 1
        (_, line) = run(cluster, history.address_history, address="10.0.0.3", at="")[1]
        assert line.startswith("10.0.0.3  vnet.pods  two ")

    def test_no_records(self, cluster: SmallCluster) -> None:
        code, lines, _ = run(cluster, history.pod_history, pod="none", namespace="default", at="")
        assert (0, ["Pod default/none: no records; history is kept for 720 h."]) == (code, lines)

    def test_json_has_all_fields(self, cluster: SmallCluster) -> None:
        _, lines, _ = run(
            cluster,
            history.pod_history,
            Output.JSON,
            pod=cluster.pods[3].removeprefix("default/"),
            namespace="default",
            at="",
        )
        (use,) = json.loads("\n".join(lines))["pod_usages"]
        assert ("10.0.0.3", "two", None) == (use["address"], use["node"], use["until"])

    def test_it_needs_the_ledger(self, cluster: SmallCluster) -> None:
        cluster.network.partition("cli", "ledger")
        with pytest.raises(
            ComponentUnreachable, match="`podpool pods` and `podpool nodes` show the present without it"
        ):
            run(cluster, history.node_history, node="two", at="")


def test_a_deleted_pod_is_found_by_its_name() -> None:
    with small_cluster() as cluster:
        cluster.delete_pod(cluster.pods[3])
        cluster.loop.run_until_complete(cluster.run_for(60.0))
        code, lines, _ = run(
            cluster, history.explain, pod=cluster.pods[3].removeprefix("default/"), namespace="default"
        )
        assert 1 == code
        assert lines[0].startswith(f"{cluster.pods[3]}: It was deleted: until 2027-01-15T08:0")
        assert lines[0].endswith(" it had 10.0.0.3 on node two.")
        (_, line) = run(
            cluster, history.pod_history, pod=cluster.pods[3].removeprefix("default/"), namespace="default", at=""
        )[1]
        assert "now" not in line
