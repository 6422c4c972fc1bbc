"""The occupancy of a subnet, and what each caller sees of it."""

import pytest

from podpool.ledger.admin_messages import Occupancy
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, addresses, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


def seen(harness: LedgerHarness, cluster: str | None = None) -> Occupancy:
    return run(harness.ledger.admin.occupancy(SUBNET, cluster=cluster))


def test_occupants_have_their_node_names() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", gateway="10.0.0.1", excluded_ranges=("10.0.0.8",))
    state = Leader(harness).node("n1", wanted=3, demand=3)
    result = run(harness.client.occupancy(SUBNET))
    (occupant,) = result.occupants
    assert ("c1", "n1") == (occupant.cluster, occupant.node)
    assert (state.primary,) == occupant.primaries
    assert addresses(state) == list(occupant.secondaries)
    assert ("10.0.0.2-10.0.0.7", "10.0.0.9-10.0.0.14") == result.members
    assert ("10.0.0.0/28",) == result.cidrs
    assert () == result.cooling_down


def test_released_address_cools_down_then_is_free() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", cooldown=30.0)
    leader = Leader(harness)
    state = leader.node("n1", wanted=3, demand=3)
    leader.reconcile_one(item("n1", state, wanted=1, released=ids(state)[:2]))
    assert set(addresses(state)[:2]) == {each.address for each in seen(harness).cooling_down}
    harness.advance(31.0)
    assert () == seen(harness).cooling_down


def test_cluster_sees_only_addresses_of_others() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/26")
    mine = Leader(harness, "c1").node("n1", wanted=2, demand=2)
    Leader(harness, "c2").node("n9", wanted=2, demand=2)
    own, other = sorted(seen(harness, "c1").occupants, key=lambda each: each.node, reverse=True)
    assert ("c1", "n1", addresses(mine)) == (own.cluster, own.node, list(own.secondaries))
    assert ("", "", 2) == (other.cluster, other.node, len(other.secondaries))


def test_ipv6_subnet_reads_only_created_blocks() -> None:
    harness = LedgerHarness()
    harness.subnet("fd00::/64")
    Leader(harness).node("n1", wanted=20, demand=20)
    result = seen(harness)
    assert 20 == len(result.occupants[0].secondaries)
    assert result.complete
