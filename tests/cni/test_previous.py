"""Results of earlier plugins, as a CHECK reads them."""

import pytest

from podpool.cni.protocol import CniError, Code, parse_config, shown_addresses


def shown(previous: bytes) -> list[str]:
    return shown_addresses(parse_config(b'{"cniVersion":"1.0.0","prevResult":%s}' % previous, command="CHECK"))


def test_addresses_are_spelled_as_ours_are() -> None:
    told = b'{"ips":[{"address":"10.0.0.5/24"},{"address":"FD00:0::5/64"},{"address":"what/8"}]}'
    assert ["10.0.0.5", "fd00::5", "what"] == shown(told)


def test_without_addresses_there_is_nothing_to_compare() -> None:
    assert [] == shown(b"{}")
    assert [] == shown_addresses(parse_config(b'{"cniVersion":"1.0.0"}', command="CHECK"))


def test_what_is_no_result_is_a_decode_failure() -> None:
    with pytest.raises(CniError) as raised:
        shown(b"[1]")
    assert Code.DECODE_FAILURE == raised.value.code


@pytest.mark.parametrize(
    ("command", "version"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0"), ("STATUS", "0.4.0")]
)
def test_a_command_is_not_older_than_its_version(command: str, version: str) -> None:
    with pytest.raises(CniError, match=f"{command} is part of CNI since") as raised:
        parse_config(b'{"cniVersion":"%s"}' % version.encode(), command=command)
    assert Code.INCOMPATIBLE_VERSION == raised.value.code
