"""Addresses that may be assigned from a configured range."""

import pytest

from podpool.core.errors import InvalidInput
from podpool.core.range_spec import parse_range_spec


@pytest.mark.parametrize(
    ("text", "start", "end", "bounds"),
    [
        ("192.168.21.100/30", None, None, "192.168.21.101-192.168.21.102"),
        ("192.168.2.200/24", "192.168.2.23", None, "192.168.2.23-192.168.2.254"),
        ("192.168.2.200/24", None, None, "192.168.2.1-192.168.2.254"),
        ("192.168.2.200/27", None, None, "192.168.2.193-192.168.2.222"),
        ("192.168.2.0/24", None, "192.168.2.100", "192.168.2.1-192.168.2.100"),
        ("192.168.2.0/24", "192.168.2.50", "192.168.2.100", "192.168.2.50-192.168.2.100"),
        ("192.168.2.0/24", "192.168.2.50", "192.168.2.50", "192.168.2.50-192.168.2.50"),
        ("2001::/116", None, None, "2001::1-2001::ffe"),
        ("fd:db8:abcd:12::/96", None, None, "fd:db8:abcd:12::1-fd:db8:abcd:12::ffff:fffe"),
        ("2001:db8:abcd:12::/64", None, None, "2001:db8:abcd:12::1-2001:db8:abcd:12:ffff:ffff:ffff:fffe"),
        ("2001:db8::/64", "2001:db8::50", "2001:db8::100", "2001:db8::50-2001:db8::100"),
        ("2001:db8::/64", "2001:db8::100", "2001:db8::100", "2001:db8::100-2001:db8::100"),
        ("192.168.0.0/29", "192.168.0.0", "192.168.0.8", "192.168.0.1-192.168.0.6"),
        ("192.168.1.5-192.168.1.25/24", None, None, "192.168.1.5-192.168.1.25"),
        ("00192.00168.1.5-000000192.168.1.25/24", None, None, "192.168.1.5-192.168.1.25"),
        ("192.168.1.5-192.168.1.25/24", "192.168.1.7", "192.168.1.8", "192.168.1.5-192.168.1.25"),
        ("010.000.1.0/24", "010.0.1.05", "010.0.1.09", "10.0.1.5-10.0.1.9"),
        (
            "2001:db8:480:603d:0304:0403:000:0000-2001:db8:480:603d:0304:0403:0000:0004/64",
            None,
            None,
            "2001:db8:480:603d:304:403::-2001:db8:480:603d:304:403:0:4",
        ),
    ],
)
def test_bounds_follow_whereabouts(text: str, start: str | None, end: str | None, bounds: str) -> None:
    assert bounds == str(parse_range_spec(text, start=start, end=end).bounds)


@pytest.mark.parametrize(
    ("start", "end", "bounds"),
    [
        ("2001:db8::100", "2001:db8::50", "2001:db8::100-2001:db8::ffff:ffff:ffff:fffe"),
        ("2001:db9::1", "2001:db9::2", "2001:db8::1-2001:db8::ffff:ffff:ffff:fffe"),
        ("10.0.0.1", "10.0.0.2", "2001:db8::1-2001:db8::ffff:ffff:ffff:fffe"),
    ],
)
def test_an_inverted_end_or_a_bound_outside_is_ignored(start: str, end: str, bounds: str) -> None:
    assert bounds == str(parse_range_spec("2001:db8::/64", start=start, end=end).bounds)


def test_an_inverted_range_ends_at_the_last_usable_address() -> None:
    assert "10.0.0.20-10.0.0.254" == str(parse_range_spec("10.0.0.20-10.0.0.5/24").bounds)


@pytest.mark.parametrize(
    ("text", "exclude", "first"),
    [
        ("100::2:1/125", ["100::2:1/126"], "100::2:4"),
        ("100::2:1/125", ["100::2:1"], "100::2:2"),
        ("2001:db8::/30", ["2001:db8::0/32"], "2001:db9::"),
        ("192.168.0.0/28", ["192.168.0.0/30", "192.168.0.6/31", "192.168.0.8/31", "192.168.0.4/30"], "192.168.0.10"),
        ("192.168.0.0/28", ["192.168.0.8/31", "192.168.0.4/30", "192.168.0.14/31", "192.168.0.0/30"], "192.168.0.10"),
        ("192.168.1.0/24", ["192.168.1.0/28", "192.168.1.16/28"], "192.168.1.32"),
        ("2001::1/116", ["2001::0/128", "2001::1/128", "2001::2/128"], "2001::3"),
        ("caa5::0/112", ["caa5::0/113"], "caa5::8000"),
        ("192.168.0.0/28", ["fd00::/8"], "192.168.0.1"),
        ("192.168.0.4-192.168.0.9/28", ["192.168.0.4/31"], "192.168.0.6"),
    ],
)
def test_exclusions_apply_in_any_order(text: str, exclude: list[str], first: str) -> None:
    allocation = parse_range_spec(text, exclude=exclude)
    assert first == allocation.prefix.family.text(allocation.members.ranges[0].first)


def test_addresses_that_end_in_0_or_255_inside_a_range_are_assigned() -> None:
    allocation = parse_range_spec("10.0.0.0/23", start="10.0.0.254")
    assert ["10.0.0.254-10.0.1.254"] == [str(each) for each in allocation.members.ranges]


def test_a_whole_range_may_be_excluded() -> None:
    assert 0 == parse_range_spec("10.0.0.0/24", exclude=["10.0.0.0/24"]).members.size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("foo-10.0.0.5/24", "the start 'foo' is not an IPv4 or IPv6 address"),
        ("10.0.0.1-foo/24", "the end 'foo/24'"),
        ("10.0.0.1-10.0.0.9", "CIDR notation"),
        ("10.0.0.5 - 10.0.0.20/24", "the start '10.0.0.5 '"),
        ("192.168.1.5-192.168.2.25/28", "the start 192.168.1.5 is not in 192.168.2.16/28"),
        ("10.0.0.1-fd00::5/64", "the start 10.0.0.1 is not in fd00::/64"),
    ],
)
def test_an_invalid_range_is_rejected_with_its_invalid_part(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_range_spec(text)
    assert reason in caught.value.reason
    assert ("range", text) == (caught.value.what, caught.value.value)


@pytest.mark.parametrize(("start", "end", "field"), [("bogus", None, "range_start"), (None, "bogus", "range_end")])
def test_an_invalid_bound_is_rejected_by_its_key(start: str | None, end: str | None, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field} 'bogus': not an"):
        parse_range_spec("10.0.0.0/24", start=start, end=end)
