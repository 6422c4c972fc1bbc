"""For any input, a parser returns a value or raises `InvalidInput`."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from podpool.api.whereabouts import Allocation, IPPoolSpec
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.config_merge import RawIpamConfig
from podpool.whereabouts.ippool import parse_ippool
from podpool.whereabouts.nad import parse_nad
from podpool.whereabouts.network_plan import plan_networks
from podpool.whereabouts.object_names import PoolIdentifier, parse_pool_name
from tests.whereabouts.builders import nad, nad_object, read_config

KEYS = [field.replace("ip_ranges", "ipRanges") for field in RawIpamConfig.__struct_fields__ if field != "type"]
texts = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[0-9a-f.:/-]{0,24}", fullmatch=True),
    st.sampled_from(["10.0.0.0/8", "10.0.0.5-10.0.0.9/24", "fd00::/64", "fd00::5", "/24", "", "0x10", "٣"]),
)
scalars = st.one_of(texts, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))
parts = st.dictionaries(
    st.sampled_from(["range", "range_start", "range_end", "exclude", "address", "gateway", "dst", "gw", "kubeconfig"]),
    st.one_of(scalars, st.lists(texts, max_size=2)),
    max_size=3,
)
values = st.one_of(scalars, st.lists(st.one_of(scalars, parts), max_size=3), parts)
ipams = st.dictionaries(st.sampled_from(KEYS), values, max_size=5)


def evaluate_lazy_properties(config: IpamConfig) -> None:
    for range_ in config.ranges:
        with suppress(InvalidInput):
            assert range_.layout.count
        with suppress(InvalidInput):
            assert 0 <= range_.spec.members.size


@given(ipams, st.none() | ipams, st.text(max_size=20) | st.sampled_from(["IP=x", "IP=10.0.0.1/8;GATEWAY=10.0.0.9"]))
def test_configurations(ipam: dict[str, object], flat: dict[str, object] | None, args: str) -> None:
    text = json.dumps({"name": "n", "type": "macvlan", "ipam": {**ipam, "type": "podpool"}})
    try:
        config = read_config(text, flat=None if flat is None else json.dumps(flat), args=args)
    except InvalidInput as error:
        assert str(error)
    else:
        evaluate_lazy_properties(config)


@given(st.binary(max_size=40) | st.text(max_size=40) | st.recursive(scalars, st.lists, max_leaves=4).map(json.dumps))
def test_configuration_bytes(text: str | bytes) -> None:
    try:
        read_config(text)
    except InvalidInput as error:
        assert str(error)


@given(st.dictionaries(st.sampled_from(["name", "type", "ipam", "plugins", "cniVersion"]), values))
def test_nads(document: dict[str, object]) -> None:
    try:
        parse_nad(nad_object("any", json.dumps(document)))
    except InvalidInput as error:
        assert str(error)


@given(st.lists(ipams, max_size=3))
def test_an_invalid_nad_does_not_affect_others(ipams: list[dict[str, object]]) -> None:
    good = nad("good", network_name="good", range="10.0.0.0/8", node_slice_size="/24")
    others = []
    for number, ipam in enumerate(ipams):
        text = json.dumps({"name": f"n{number}", "type": "macvlan", "ipam": {**ipam, "type": "podpool"}})
        try:
            others.append(parse_nad(nad_object(f"d{number}", text)))
        except InvalidInput:
            continue
    found = plan_networks([good, *(each for each in others if each)])
    assert "default/good" in {name for plan in found.tables for name in plan.nads}


@given(texts, st.dictionaries(texts, st.builds(Allocation, id=texts, podref=texts)))
def test_ippools(range_: str, allocations: dict[str, Allocation]) -> None:
    try:
        parsed = parse_ippool(IPPoolSpec(range=range_, allocations=allocations))
    except InvalidInput:
        return
    assert sorted(allocations) == sorted([*(each.key for each in parsed.entries), *parsed.invalid_keys])


@given(st.text(max_size=30), st.lists(texts), st.lists(texts))
def test_pool_names(name: str, nodes: list[str], networks: list[str]) -> None:
    range_ = parse_prefix("10.0.0.0/24")
    parsed = parse_pool_name(f"{name}-10.0.0.0-24", range_=range_, nodes=nodes, networks=networks)
    assert isinstance(parsed, PoolIdentifier)
