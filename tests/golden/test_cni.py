"""Formats between plugin, agent and runtime: a plugin stays on a node while its agent is upgraded."""

from podpool.cni.protocol import (
    VERSIONS,
    CniError,
    ErrorCode,
    IPConfig,
    PluginRequest,
    PluginResponse,
    add_result,
    decode_request,
    decode_response,
    encode_frame,
    encode_request,
    encode_response,
    error_result,
    version_result,
)
from podpool.core.addresses import parse_address
from tests.golden.files import matches_lines, read_text
from tests.golden.samples import sample

IPS = (
    IPConfig(address=parse_address("10.0.0.5"), prefix=24, gateway="10.0.0.1"),
    IPConfig(address=parse_address("fd00::5"), prefix=64),
)


def test_frames_between_plugin_and_agent() -> None:
    request, response = sample(PluginRequest), sample(PluginResponse)
    frames = [encode_frame(encode_request(request)).hex(), encode_frame(encode_response(response)).hex()]
    matches_lines("cni/frames.hex", frames)
    request_body, response_body = (bytes.fromhex(line)[4:] for line in read_text("cni/frames.hex").splitlines())
    assert (request, response) == (decode_request(request_body), decode_response(response_body))


def test_results_for_runtimes() -> None:
    """In every supported CNI version."""
    error = CniError(ErrorCode.TRY_AGAIN_LATER, "message", "details")
    responses = [
        *(add_result(IPS, each) for each in VERSIONS),
        version_result(),
        error_result(error, "1.1.0"),
    ]
    matches_lines("cni/results.jsonl", [f"{each.exit_code} {each.stdout.decode()}" for each in responses])
    matches_lines("cni/codes.txt", [f"{int(code)}" for code in ErrorCode])
