"""Whatever a runtime or the author of a configuration sends, it gets an error, and the agent goes on."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from podpool.agent.cni_socket import serve_cni
from podpool.agent.pool_ipam import PoolIPAM
from podpool.cni.protocol import ErrorCode, PluginRequest, decode_response, encode_frame, encode_request
from tests.agent.node_env import NodeEnv, in_node_env
from tests.agent.secondary.slice_env import enable_slices
from tests.agent.test_cni_socket import exchange

CONFIG = b'{"cniVersion": "1.0.0", "name": "net", "ipam": {"type": "podpool"}}'
RANGE = b'{"cniVersion": "1.0.0", "name": "net", "ipam": {"type": "whereabouts", "range": "10.9.0.0/24"%s}}'
ARGS = b"K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"


def body(*, command: bytes = b"ADD", sandbox: bytes = b"a", args: bytes = ARGS, stdin: bytes = CONFIG) -> bytes:
    return b"\0".join([b"podpool/1", command, sandbox, b"/run/netns/x", b"eth0", args, b"/opt/cni/bin", stdin])


def error_of(answer: bytes) -> dict[str, Any]:
    response = decode_response(answer)
    assert 1 == response.exit_code
    found: dict[str, Any] = json.loads(response.stdout)
    assert len(response.stdout) < 1000
    return found


HOSTILE = {
    "container ID that is not UTF-8": body(sandbox=b"\xff\xfe"),
    "Pod name that is not UTF-8": body(args=b"K8S_POD_NAME=\xff"),
    "container ID with a path": body(sandbox=b"../../x"),
    "long container ID": body(sandbox=b"a" * 5000),
    "long arguments": body(args=b"K8S_POD_NAME=" + b"x" * 100_000),
    "deep JSON": body(stdin=b'{"x":' + b"[" * 200_000),
    "deep ipam": body(stdin=b'{"ipam":{"type":"whereabouts","range":' + b"[" * 100_000),
    "invalid UTF-8 in the name": body(stdin=b'{"name": "\xff"}'),
    "unpaired surrogate": body(stdin=rb'{"name": "\ud800"}'),
    "long configuration": body(stdin=RANGE % (b', "exclude": [' + b'"10.9.0.1",' * 10_000 + b'"10.9.0.2"]')),
    "huge number": body(stdin=RANGE % (b', "leader_lease_duration": ' + b"9" * 5000)),
    "no JSON": body(stdin=b"range whereabouts"),
    "unknown command": body(command=b"FROBNICATE"),
    "routes without a destination": body(stdin=b'{"ipam": {"type": "podpool", "routes": [{"gw": "10.0.0.1"}]}}'),
    "routes of the wrong type": body(stdin=b'{"ipam": {"type": "podpool", "routes": {}}}'),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_request_is_refused_with_a_defined_code(what: str) -> None:
    @in_node_env
    async def test(env: NodeEnv) -> None:
        agent = await enable_slices(env).start()
        error = error_of(await agent.handle(HOSTILE[what]))
        assert error["code"] in (ErrorCode.INVALID_ENVIRONMENT, ErrorCode.DECODE_FAILURE, ErrorCode.INVALID_CONFIG)
        assert await env.add("b")

    test()


@in_node_env
async def test_an_add_that_would_wait_with_a_bad_id_does_not_end_the_agent(env: NodeEnv) -> None:
    """It would be journalled when an address arrives, outside of its own request."""
    env.capacity = 0
    agent = await env.start()
    refused = asyncio.create_task(agent.handle(HOSTILE["container ID that is not UTF-8"]))
    waiting = asyncio.create_task(env.add("b"))
    await asyncio.sleep(1.0)
    env.capacity = 100
    assert ErrorCode.INVALID_ENVIRONMENT == error_of(await refused)["code"]
    assert await waiting


@in_node_env
async def test_random_and_damaged_requests_are_answered(env: NodeEnv) -> None:
    agent, rng = await enable_slices(env).start(), random.Random(7)  # noqa: S311  seeded
    samples = [body(), body(stdin=RANGE % b""), body(command=b"GC", sandbox=b""), body(command=b"STATUS")]
    for _ in range(500):
        sample = bytearray(rng.choice(samples) if rng.random() < 0.9 else rng.randbytes(60))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(sample))
            sample[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        async with asyncio.timeout(60):
            assert decode_response(await agent.handle(bytes(sample))).exit_code in (0, 1)
    assert await env.add("b")


@in_node_env
async def test_a_defect_is_an_internal_error_for_one_request(env: NodeEnv) -> None:
    agent = await env.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PoolIPAM, "allocate", lambda *_: 1 / 0)
        error = error_of(await agent.handle(body()))
    assert (ErrorCode.INTERNAL, "1.0.0") == (error["code"], error["cniVersion"])
    assert "division" not in error["msg"]
    assert any("request failed" in line for line in env.warnings)
    assert await env.add("b")


def test_the_socket_serves_on_after_any_bytes(tmp_path: Path) -> None:
    async def handle(sent: bytes) -> bytes:
        if sent == b"defect":
            raise ZeroDivisionError
        return b"\0" + sent

    async def run() -> None:
        path, rng = tmp_path / "agent.sock", random.Random(3)  # noqa: S311  seeded
        async with asyncio.timeout(30), serve_cni(path, handle, timeout=0.2):
            asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
            random_bytes = [rng.randbytes(24) for _ in range(20)]
            for sent in (encode_frame(b"defect"), b"\xff" * 8, b"", *random_bytes):
                await exchange(path, sent)
            request = encode_request(PluginRequest(command="STATUS"))
            assert encode_frame(b"\0" + request) == await exchange(path, encode_frame(request))

    asyncio.run(run())
