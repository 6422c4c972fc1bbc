"""What the plugin, the agent and a runtime say to each other: a plugin stays on a node while its agent is upgraded."""

from podpool.cni.protocol import (
    VERSIONS,
    Answer,
    CniError,
    Code,
    Lease,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    framed,
    result_of_add,
    result_of_error,
    result_of_version,
)
from podpool.core.addresses import parse_address
from tests.golden.files import matches_lines, read_text
from tests.golden.samples import sample

LEASES = (
    Lease(address=parse_address("10.0.0.5"), prefix=24, gateway="10.0.0.1"),
    Lease(address=parse_address("fd00::5"), prefix=64),
)


def test_frames_between_plugin_and_agent() -> None:
    request, answer = sample(Request), sample(Answer)
    frames = [framed(encode_request(request)).hex(), framed(encode_answer(answer)).hex()]
    matches_lines("cni/frames.hex", frames)
    asked, told = (bytes.fromhex(line)[4:] for line in read_text("cni/frames.hex").splitlines())
    assert (request, answer) == (decode_request(asked), decode_answer(told))


def test_results_for_runtimes() -> None:
    """Of every version that is spoken."""
    error = CniError(Code.TRY_AGAIN_LATER, "message", "details")
    answers = [
        *(result_of_add(LEASES, each) for each in VERSIONS),
        result_of_version(),
        result_of_error(error, "1.1.0"),
    ]
    matches_lines("cni/results.jsonl", [f"{each.exit_code} {each.stdout.decode()}" for each in answers])
    matches_lines("cni/codes.txt", [f"{int(code)}" for code in Code])
