"""What plugin and agent say to each other, and what a runtime reads."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.cni.protocol import (
    LARGEST_BODY,
    VERSIONS,
    Answer,
    BadFrame,
    CniError,
    Code,
    Lease,
    Request,
    body_length,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    framed,
    parse_config,
    result_of_add,
    result_of_error,
    result_of_version,
    stated_version,
)
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
requests = st.builds(
    Request,
    command=words,
    container_id=words,
    netns=words,
    ifname=words,
    args=words,
    path=words,
    stdin=st.binary(max_size=100),
)
V4 = Lease(address=parse_address("10.241.0.5"), prefix=16, gateway="10.241.0.1")
V6 = Lease(address=parse_address("fd00::5"), prefix=64, gateway="fd00::1")


class TestFrames:
    @given(requests)
    def test_a_request_arrives_as_it_was_sent(self, request: Request) -> None:
        assert request == decode_request(encode_request(request))

    @given(st.binary(max_size=100), st.integers(0, 255))
    def test_an_answer_arrives_as_it_was_sent(self, stdout: bytes, code: int) -> None:
        assert Answer(stdout, code) == decode_answer(encode_answer(Answer(stdout, code)))

    @given(st.binary(max_size=200))
    def test_bytes_of_others_are_refused_and_nothing_else_happens(self, body: bytes) -> None:
        try:
            decode_request(body)
        except BadFrame as error:
            assert "podpool cni install" in str(error)

    def test_a_value_with_a_nul_cannot_be_sent(self) -> None:
        with pytest.raises(InvalidInput, match="NUL"):
            encode_request(Request(command="ADD", ifname="eth0\0"))

    def test_a_frame_has_its_length_before_it(self) -> None:
        assert b"\0\0\0\3abc" == framed(b"abc")
        assert 3 == body_length(b"\0\0\0\3")
        assert None is body_length(b"\0\0\0")

    def test_a_frame_is_bounded_both_ways(self) -> None:
        with pytest.raises(BadFrame, match="too long"):
            framed(bytes(LARGEST_BODY + 1))
        with pytest.raises(BadFrame, match="too long"):
            body_length(b"\xff\xff\xff\xff")

    def test_an_empty_answer_is_none(self) -> None:
        with pytest.raises(BadFrame):
            decode_answer(b"")

    def test_arguments_are_pairs(self) -> None:
        request = Request(command="ADD", args="IgnoreUnknown=1;K8S_POD_NAME=web-0;;odd;A=b=c")
        assert {"IgnoreUnknown": "1", "K8S_POD_NAME": "web-0", "A": "b=c"} == request.arguments()


class TestResults:
    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
    def test_the_oldest_form_has_one_field_per_family(self, version: str) -> None:
        told = json.loads(result_of_add([V4], version).stdout)
        ip4 = {"ip": "10.241.0.5/16", "gateway": "10.241.0.1", "routes": [{"dst": "0.0.0.0/0"}]}
        assert {"cniVersion": version, "ip4": ip4, "dns": {}} == told
        assert "fd00::5/64" == json.loads(result_of_add([V6], version).stdout)["ip6"]["ip"]

    @pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
    def test_the_middle_form_states_the_ip_version(self, version: str) -> None:
        told = json.loads(result_of_add([V4], version).stdout)
        assert [{"version": "4", "address": "10.241.0.5/16", "gateway": "10.241.0.1"}] == told["ips"]
        assert [{"dst": "0.0.0.0/0"}] == told["routes"]
        assert "6" == json.loads(result_of_add([V6], version).stdout)["ips"][0]["version"]

    @pytest.mark.parametrize("version", ["1.0.0", "1.1.0"])
    def test_the_newest_form_does_not(self, version: str) -> None:
        told = json.loads(result_of_add([V6], version).stdout)
        assert [{"address": "fd00::5/64", "gateway": "fd00::1"}] == told["ips"]
        assert [{"dst": "::/0"}] == told["routes"]

    def test_without_a_gateway_there_is_no_default_route(self) -> None:
        told = json.loads(result_of_add([msgspec.structs.replace(V4, gateway="")], "1.0.0").stdout)
        assert [{"address": "10.241.0.5/16"}] == told["ips"]
        assert [] == told["routes"]

    def test_an_error_is_told_with_its_code_and_ends_the_plugin_with_1(self) -> None:
        answer = result_of_error(CniError(Code.TRY_AGAIN_LATER, "later", "why"), "0.4.0")
        assert {"cniVersion": "0.4.0", "code": 11, "msg": "later", "details": "why"} == json.loads(answer.stdout)
        assert 1 == answer.exit_code

    def test_version_tells_all_versions(self) -> None:
        assert list(VERSIONS) == json.loads(result_of_version().stdout)["supportedVersions"]


class TestConfigurations:
    def test_without_a_version_it_is_the_oldest(self) -> None:
        assert "0.1.0" == parse_config(b'{"name": "net"}').cni_version

    @pytest.mark.parametrize("stdin", [b"", b"{", b"[]", b'{"cniVersion": 1}', b"\xff"])
    def test_what_cannot_be_read_is_a_decode_failure(self, stdin: bytes) -> None:
        with pytest.raises(CniError) as raised:
            parse_config(stdin)
        assert Code.DECODE_FAILURE == raised.value.code
        assert "0.1.0" == stated_version(stdin)

    def test_an_unknown_version_is_incompatible(self) -> None:
        with pytest.raises(CniError, match="9.9.9") as raised:
            parse_config(b'{"cniVersion": "9.9.9"}')
        assert Code.INCOMPATIBLE_VERSION == raised.value.code
