"""The frames between plugin and agent, the results for a runtime, and configurations."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.cni.protocol import (
    MAX_BODY,
    MAX_VARIABLE,
    VERSIONS,
    BadFrame,
    CniError,
    ErrorCode,
    IPConfig,
    PluginRequest,
    PluginResponse,
    ResultExtras,
    add_result,
    decode_length,
    decode_request,
    decode_response,
    encode_frame,
    encode_request,
    encode_response,
    error_result,
    parse_attachment,
    parse_config,
    prev_result_addresses,
    requested_version,
    version_result,
)
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
requests = st.builds(
    PluginRequest,
    command=text,
    container_id=text,
    netns=text,
    ifname=text,
    args=text,
    path=text,
    stdin=st.binary(max_size=100),
)
KEYS = ["cniVersion", "name", "prevResult", "cni.dev/valid-attachments", "ips", "address", "containerID", "x"]
V4 = IPConfig(address=parse_address("10.241.0.5"), prefix=16, gateway="10.241.0.1")
V6 = IPConfig(address=parse_address("fd00::5"), prefix=64, gateway="fd00::1")


class TestFrames:
    @given(requests)
    def test_request_round_trip(self, request: PluginRequest) -> None:
        assert request == decode_request(encode_request(request))

    @given(st.binary(max_size=100), st.integers(0, 255))
    def test_response_round_trip(self, stdout: bytes, code: int) -> None:
        assert PluginResponse(stdout, code) == decode_response(encode_response(PluginResponse(stdout, code)))

    @given(st.binary(max_size=200))
    def test_other_bytes_raise_nothing_but_bad_frame(self, body: bytes) -> None:
        try:
            decode_request(body)
        except BadFrame as error:
            assert "podpool cni install" in str(error)

    @given(st.lists(st.binary(max_size=40), min_size=6, max_size=9))
    def test_any_variables_are_text_or_refused(self, values: list[bytes]) -> None:
        try:
            request = decode_request(b"\0".join([b"podpool/1", *values]))
        except (BadFrame, CniError) as error:
            assert str(error).isprintable()
        else:
            request.container_id.encode()

    @pytest.mark.parametrize("value", [b"\xff\xfe", b"a" * (MAX_VARIABLE + 1)])
    @pytest.mark.parametrize("index", range(6))
    def test_variable_that_is_not_utf8_or_too_long_is_refused_by_name(self, value: bytes, index: int) -> None:
        values = [b"ADD", b"a", b"/ns", b"eth0", b"", b"/bin"]
        values[index] = value
        with pytest.raises(CniError, match="^CNI_") as raised:
            decode_request(b"\0".join([b"podpool/1", *values, b"{}"]))
        assert ErrorCode.INVALID_ENVIRONMENT is raised.value.code
        assert len(str(raised.value)) < 200

    def test_variable_with_nul_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="NUL"):
            encode_request(PluginRequest(command="ADD", ifname="eth0\0"))

    def test_frame_starts_with_its_length(self) -> None:
        assert b"\0\0\0\3abc" == encode_frame(b"abc")
        assert 3 == decode_length(b"\0\0\0\3")
        assert None is decode_length(b"\0\0\0")

    def test_frame_length_is_bounded_in_both_directions(self) -> None:
        with pytest.raises(BadFrame, match="exceeds the limit"):
            encode_frame(bytes(MAX_BODY + 1))
        with pytest.raises(BadFrame, match="exceeds the limit"):
            decode_length(b"\xff\xff\xff\xff")

    def test_empty_response_is_rejected(self) -> None:
        with pytest.raises(BadFrame):
            decode_response(b"")

    def test_cni_args_are_pairs(self) -> None:
        request = PluginRequest(command="ADD", args="IgnoreUnknown=1;K8S_POD_NAME=web-0;;odd;A=b=c")
        assert {"IgnoreUnknown": "1", "K8S_POD_NAME": "web-0", "A": "b=c"} == request.arguments()


class TestResults:
    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
    def test_oldest_form_has_one_field_per_family(self, version: str) -> None:
        result = json.loads(add_result([V4], version).stdout)
        ip4 = {"ip": "10.241.0.5/16", "gateway": "10.241.0.1", "routes": [{"dst": "0.0.0.0/0"}]}
        assert {"cniVersion": version, "ip4": ip4, "dns": {}} == result
        assert "fd00::5/64" == json.loads(add_result([V6], version).stdout)["ip6"]["ip"]

    @pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
    def test_0_3_form_states_the_ip_version(self, version: str) -> None:
        result = json.loads(add_result([V4], version).stdout)
        assert [{"version": "4", "address": "10.241.0.5/16", "gateway": "10.241.0.1"}] == result["ips"]
        assert [{"dst": "0.0.0.0/0"}] == result["routes"]
        assert "6" == json.loads(add_result([V6], version).stdout)["ips"][0]["version"]

    @pytest.mark.parametrize("version", ["1.0.0", "1.1.0"])
    def test_1_0_form_omits_the_ip_version(self, version: str) -> None:
        result = json.loads(add_result([V6], version).stdout)
        assert [{"address": "fd00::5/64", "gateway": "fd00::1"}] == result["ips"]
        assert [{"dst": "::/0"}] == result["routes"]

    def test_no_default_route_without_a_gateway(self) -> None:
        result = json.loads(add_result([msgspec.structs.replace(V4, gateway="")], "1.0.0").stdout)
        assert [{"address": "10.241.0.5/16"}] == result["ips"]
        assert [] == result["routes"]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_gateways_and_default_routes_are_those_of_their_family_in_every_version(self, version: str) -> None:
        result = json.loads(add_result([V4, V6], version).stdout)
        if version in ("0.1.0", "0.2.0"):
            gateways = [result["ip4"]["gateway"], result["ip6"]["gateway"]]
            routes = [*result["ip4"]["routes"], *result["ip6"]["routes"]]
        else:
            gateways, routes = [each["gateway"] for each in result["ips"]], result["routes"]
        assert ["10.241.0.1", "fd00::1"] == gateways
        assert [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}] == routes

    @pytest.mark.parametrize("version", VERSIONS)
    def test_configured_routes_and_dns_replace_the_default_in_every_version(self, version: str) -> None:
        routes = [{"dst": "10.0.0.0/8", "gw": "10.241.0.9"}, {"dst": "fd01::/64"}]
        extras = ResultExtras(routes=routes, dns={"nameservers": ["10.0.0.10"]})
        result = json.loads(add_result([V4, V6], version, extras=extras).stdout)
        if version in ("0.1.0", "0.2.0"):
            assert [routes[0]] == result["ip4"]["routes"]
            assert [routes[1]] == result["ip6"]["routes"]
        else:
            assert routes == result["routes"]
        assert {"nameservers": ["10.0.0.10"]} == result["dns"]

    def test_error_has_its_code_and_exit_code_1(self) -> None:
        response = error_result(CniError(ErrorCode.TRY_AGAIN_LATER, "later", "why"), "0.4.0")
        assert {"cniVersion": "0.4.0", "code": 11, "msg": "later", "details": "why"} == json.loads(response.stdout)
        assert 1 == response.exit_code

    def test_version_lists_all_versions(self) -> None:
        assert list(VERSIONS) == json.loads(version_result().stdout)["supportedVersions"]


class TestConfiguration:
    @pytest.mark.parametrize("stdin", [b'{"name": "net"}', b'{"cniVersion": ""}', b'{"cniVersion": null}'])
    def test_default_version_is_the_oldest(self, stdin: bytes) -> None:
        assert "0.1.0" == parse_config(stdin).cni_version == requested_version(stdin)
        with pytest.raises(CniError, match="CHECK requires CNI 0.4.0 or later, the configuration has version 0.1.0"):
            parse_config(stdin, command="CHECK")

    @given(
        st.binary(max_size=60)
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(KEYS), each, max_size=4),
            max_leaves=8,
        ).map(lambda value: json.dumps(value).encode()),
        st.sampled_from(["ADD", "CHECK", "GC", "STATUS"]),
    )
    def test_anything_is_a_configuration_or_refused(self, stdin: bytes, command: str) -> None:
        assert requested_version(stdin) in VERSIONS
        try:
            prev_result_addresses(parse_config(stdin, command=command))
        except CniError as error:
            assert error.message

    @pytest.mark.parametrize(
        "stdin",
        [
            b"[" * 200_000,
            b'{"cniVersion": "1.0.0", "x": ' + b"[" * 200_000 + b"}",
            b'{"x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        ],
    )
    def test_deep_nesting_is_a_decode_failure(self, stdin: bytes) -> None:
        with pytest.raises(CniError) as raised:
            parse_config(stdin)
        assert ErrorCode.DECODE_FAILURE == raised.value.code
        assert "0.1.0" == requested_version(stdin)

    def test_deep_prev_result_is_a_decode_failure(self) -> None:
        with pytest.raises(CniError) as raised:
            addresses_in(b'{"ips": ' + b"[" * 900 + b"]" * 900 + b"}")
        assert ErrorCode.DECODE_FAILURE == raised.value.code

    def test_long_network_name_is_refused(self) -> None:
        with pytest.raises(CniError, match="255 characters") as raised:
            parse_config(b'{"name": "%s"}' % (b"n" * 256))
        assert ErrorCode.INVALID_CONFIG == raised.value.code

    @pytest.mark.parametrize("stdin", [b"", b"{", b"[]", b'{"cniVersion": 1}', b"\xff"])
    def test_invalid_configuration_is_a_decode_failure(self, stdin: bytes) -> None:
        with pytest.raises(CniError) as raised:
            parse_config(stdin)
        assert ErrorCode.DECODE_FAILURE == raised.value.code
        assert "0.1.0" == requested_version(stdin)

    def test_unknown_version_is_incompatible(self) -> None:
        with pytest.raises(CniError, match="9.9.9") as raised:
            parse_config(b'{"cniVersion": "9.9.9"}')
        assert ErrorCode.INCOMPATIBLE_VERSION == raised.value.code

    @pytest.mark.parametrize(
        ("command", "version"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0"), ("STATUS", "0.4.0")]
    )
    def test_command_newer_than_the_version_is_incompatible(self, command: str, version: str) -> None:
        with pytest.raises(CniError, match=f"{command} requires CNI") as raised:
            parse_config(b'{"cniVersion":"%s"}' % version.encode(), command=command)
        assert ErrorCode.INCOMPATIBLE_VERSION == raised.value.code


class TestAttachment:
    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("CNI_CONTAINERID", ""),
            ("CNI_CONTAINERID", "../../etc"),
            ("CNI_CONTAINERID", "a b"),
            ("CNI_CONTAINERID", "a\n"),
            ("CNI_CONTAINERID", "ä"),
            ("CNI_CONTAINERID", "a" * 256),
            ("CNI_IFNAME", ""),
            ("CNI_IFNAME", "."),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", "a:b"),
            ("CNI_IFNAME", "a b"),
            ("CNI_IFNAME", "sixteencharacter"),
        ],
    )
    def test_names_that_cni_does_not_allow_are_refused(self, variable: str, value: str) -> None:
        names = {"CNI_CONTAINERID": "a", "CNI_IFNAME": "eth0", variable: value}
        request = PluginRequest(command="ADD", container_id=names["CNI_CONTAINERID"], ifname=names["CNI_IFNAME"])
        with pytest.raises(CniError, match=f"^{variable}") as raised:
            parse_attachment(request)
        assert ErrorCode.INVALID_ENVIRONMENT is raised.value.code

    @pytest.mark.parametrize("container_id", ["a", "0f3" * 21, "A-b_c.d"])
    def test_names_of_runtimes_are_accepted(self, container_id: str) -> None:
        request = PluginRequest(command="ADD", container_id=container_id, ifname="net1")
        assert container_id == parse_attachment(request).container_id


class TestPrevResult:
    def test_addresses_are_normalized(self) -> None:
        result = b'{"ips":[{"address":"10.0.0.5/24"},{"address":"FD00:0::5/64"},{"address":"what/8"}]}'
        assert ["10.0.0.5", "fd00::5", "what"] == addresses_in(result)

    def test_no_addresses(self) -> None:
        assert [] == addresses_in(b"{}")
        assert [] == prev_result_addresses(parse_config(b'{"cniVersion":"1.0.0"}', command="CHECK"))

    def test_invalid_result_is_a_decode_failure(self) -> None:
        with pytest.raises(CniError) as raised:
            addresses_in(b"[1]")
        assert ErrorCode.DECODE_FAILURE == raised.value.code


def addresses_in(prev_result: bytes) -> list[str]:
    config = parse_config(b'{"cniVersion":"1.0.0","prevResult":%s}' % prev_result, command="CHECK")
    return prev_result_addresses(config)
