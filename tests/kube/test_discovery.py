"""The ID of a cluster, and whether it serves a kind."""

import asyncio
import random

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import KIND_POLL_INTERVAL, cluster_uid, wait_until_served
from podpool.runtime.transport import Request, Response, Unreachable
from tests.kube.event_loops import run_in_virtual_time

RNG = random.Random(1)  # noqa: S311  seeded


class ScriptedServer:
    """Answers each request with the next response; an empty one is a server that cannot be reached."""

    def __init__(self, *responses: tuple[int, bytes] | None) -> None:
        self._responses = iter(responses)
        self.client = KubeClient(self)

    async def send(self, request: Request) -> Response:  # noqa: ARG002  the interface
        response = next(self._responses)
        if response is None:
            raise Unreachable("the API server", "connection refused")
        return Response(*response)


@run_in_virtual_time
async def test_the_cluster_id_is_read_until_the_server_answers() -> None:
    server = ScriptedServer(None, (403, b"{}"), (200, b'{"metadata": {"uid": "u1"}}'))
    assert "u1" == await cluster_uid(server.client, rng=RNG)


@run_in_virtual_time
async def test_a_kind_that_is_not_served_is_polled() -> None:
    missing: list[float] = []
    loop = asyncio.get_running_loop()
    server = ScriptedServer((404, b"{}"), None, (404, b"{}"), (200, b'{"items": []}'))
    begun = loop.time()
    await wait_until_served(
        server.client, NODE_NETWORK_CONFIGS, rng=RNG, missing=lambda: missing.append(loop.time() - begun)
    )
    assert 2 == len(missing)
    assert loop.time() - begun >= 2 * KIND_POLL_INTERVAL
