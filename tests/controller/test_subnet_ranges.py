"""CIDRs of the ledger's subnets, which secondary networks must not overlap."""

from msgspec.structs import replace

from podpool.api.azure import NetworkConfigStatus, NetworkContainer, NodeNetworkConfig
from podpool.controller.subnet_ranges import SubnetRanges
from podpool.core.ranges import Prefix, parse_prefix
from podpool.ledger.messages import SubnetState
from tests.controller.test_reconcile_batcher import STATE


def state(*cidrs: str) -> SubnetState:
    return replace(STATE, cidr=cidrs[0], additional_cidrs=cidrs[1:])


def test_a_subnet_that_grows_is_reported_once() -> None:
    ranges = SubnetRanges()
    changes: list[dict[str, tuple[Prefix, ...]]] = []
    ranges.on_change = lambda: changes.append(ranges.all())
    for cidrs in (["10.0.0.0/16"], ["10.0.0.0/16"], ["10.0.0.0/16", "10.1.0.0/16"]):
        ranges.update(state(*cidrs))
    assert [1, 2] == [len(each[STATE.subnet.name]) for each in changes]


def test_nncs_show_subnets_while_the_ledger_does_not_answer() -> None:
    container = NetworkContainer(
        subnet_name=STATE.subnet.name, subnet_address_space="10.0.0.0/16", subnet_address_space_v6="none"
    )
    nnc = NodeNetworkConfig(status=NetworkConfigStatus(network_containers=(container,)))
    ranges = SubnetRanges()
    ranges.seed([nnc])
    assert {STATE.subnet.name: (parse_prefix("10.0.0.0/16"),)} == ranges.all()
    ranges.update(state("10.0.0.0/15"))
    ranges.seed([nnc])
    assert {STATE.subnet.name: (parse_prefix("10.0.0.0/15"),)} == ranges.all()
