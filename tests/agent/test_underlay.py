"""No address is assigned before the underlay has programmed it."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from podpool.agent.pool import Pool
from podpool.agent.records import NCAdopted
from podpool.agent.underlay_poller import BadUnderlay, NMAgentClient
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response, Unreachable
from tests.agent.nc_samples import NC, grants, status
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.test_multiple_ncs import FOUR, SIX, additional_nc, addresses, started
from tests.agent.test_pool import accepted, after
from tests.agent.test_pool import started as agent_started
from tests.kube.event_loops import run_in_loop, run_in_virtual_time


class Host:
    """An underlay that reports what a test sets."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.unreachable = False
        self.polls = 0

    async def programmed(self) -> Mapping[str, int]:
        self.polls += 1
        if self.unreachable:
            raise Unreachable("the host", "test")
        return self.versions


def response(*ncs: tuple[str, str], **others: str) -> bytes:
    """Return a response as an Azure host sends it."""
    listed = [{"networkContainerId": name, "version": version} for name, version in ncs]
    return json.dumps({"httpStatusCode": "200", "networkContainers": listed, **others}).encode()


class TestPendingProgramming:
    @in_node_env
    async def test_an_add_before_it_is_programmed_waits(self, env: NodeEnv) -> None:
        host = Host()
        env.deps = {"underlay": host}
        agent = await started(env)
        adding = asyncio.create_task(addresses(env, "a"))
        await asyncio.sleep(SETTLE_TIME)
        assert not adding.done()
        assert (0, 8) == (agent.metrics_snapshot().available, agent.metrics_snapshot().pending_programming)
        host.versions["nc-1"] = 2
        assert ["10.0.1.1/16"] == await adding
        assert (7, 0) == (agent.metrics_snapshot().available, agent.metrics_snapshot().pending_programming)

    @in_node_env
    async def test_programmed_grants_are_assigned_while_newer_ones_are_pending(self, env: NodeEnv) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        env.deps = {"underlay": host}
        agent = await started(env, {"four-1": "10.0.1.1"})
        await env.write_status(version=3, grants=FOUR)
        await asyncio.sleep(SETTLE_TIME)
        assert ["10.0.1.1/16"] == await addresses(env, "a")
        refused = await env.call("ADD", "b")
        assert 11 == json.loads(refused.stdout)["code"]
        assert "7 pending programming" in refused.stdout.decode()
        host.versions["nc-1"] = 3
        assert ["10.0.1.2/16"] == await addresses(env, "b")
        assert not list(agent.pool.pending_programming())

    @in_node_env
    async def test_each_nc_is_programmed_separately(self, env: NodeEnv) -> None:
        host = Host()
        host.versions["nc-1"] = 9
        env.deps = {"underlay": host}
        await started(env, additional_ncs=[additional_nc(1, SIX)])
        adding = asyncio.create_task(addresses(env, "a"))
        await asyncio.sleep(SETTLE_TIME)
        assert not adding.done()
        host.versions["nc-six"] = 1
        assert ["10.0.1.1/16", "fd00::1:1/64"] == await adding

    @in_node_env
    async def test_nc_ids_are_compared_without_letter_case(self, env: NodeEnv) -> None:
        """Azure's CNS never assigns addresses of an NC whose ID has capital letters."""
        host = Host()
        host.versions["NC-1"] = 2
        env.deps = {"underlay": host}
        await started(env)
        assert ["10.0.1.1/16"] == await addresses(env, "a")

    @in_node_env
    async def test_a_node_is_ready_when_its_nc_is_programmed(self, env: NodeEnv) -> None:
        host = Host()
        env.deps = {"underlay": host}
        agent = await started(env)
        assert not agent.ready.is_set()
        assert "has not programmed network container nc-1" in (agent.not_ready_reason() or "")
        host.versions["nc-1"] = 1
        await asyncio.sleep(SETTLE_TIME)
        assert agent.ready.is_set()
        assert None is agent.not_ready_reason()

    def test_pending_programming_is_released_first(self) -> None:
        pool = Pool(lambda _nc, version: version < 2)
        pool = after(pool, agent_started(), NCAdopted(nc=NC), accepted(status(1, grants(1, 2))))
        pool.apply(accepted(status(2, grants(1, 2, 3)), at=5.0))
        assert ["g3", "g2", "g1"] == [each.id for each in pool.releasable(now=9.0, cooldown=30.0)]
        assert ["g3"] == [each.id for each in pool.pending_programming()]


class TestPolling:
    @in_node_env
    async def test_it_polls_only_while_an_nc_is_newer(self, env: NodeEnv) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        env.deps = {"underlay": host}
        await started(env)
        polls = host.polls
        await asyncio.sleep(600.0)
        assert polls == host.polls

    @in_node_env
    async def test_an_unreachable_underlay_is_logged_once_and_polled_again(self, env: NodeEnv) -> None:
        host = Host()
        host.unreachable = True
        env.deps = {"underlay": host}
        await started(env)
        await asyncio.sleep(60.0)
        assert 1 == len([each for each in env.warnings if "cannot poll the underlay" in each])
        host.unreachable, host.versions = False, {"nc-1": 2}
        assert ["10.0.1.1/16"] == await addresses(env, "a")

    @in_node_env
    async def test_programmed_versions_survive_a_restart_and_not_a_reboot(self, env: NodeEnv) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        env.deps = {"underlay": host}
        await started(env)
        await env.kill()
        host.versions.clear()
        await env.start()
        assert ["10.0.1.1/16"] == await addresses(env, "a")
        await env.kill()
        env.boot_id = "boot-2"
        await env.report_boot("boot-2")
        agent = await env.start()
        assert 8 == len(list(agent.pool.pending_programming()))


class TestWire:
    """Responses of an Azure host."""

    @run_in_loop
    async def test_versions_by_nc(self) -> None:
        received: list[Request] = []

        async def host(request: Request) -> Response:
            received.append(request)
            return Response(200, response(("a", "3"), ("b", "-1")))

        async with serving(host, host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}")
            assert {"a": 3, "b": -1} == await NMAgentClient(transport).programmed()
            await transport.close()
        (request,) = received
        assert ("GET", "/machine/plugins") == (request.method, request.path)
        assert {"comp": "nmagent", "type": "NetworkManagement/interfaces/api-version/2"} == request.query

    @pytest.mark.parametrize(
        ("code", "body", "word"),
        [
            (503, b"", "status 503"),
            (200, b"<html>", "malformed"),
            (200, response(httpStatusCode="401"), "httpStatusCode 401"),
            (200, response(("a", "new")), "'new'"),
            (200, b'{"networkContainers":[{"version":"1"}]}', "networkContainerId"),
        ],
    )
    def test_an_invalid_response_is_an_error_with_its_reason(self, code: int, body: bytes, word: str) -> None:
        class FixedTransport:
            async def send(self, _request: Request) -> Response:
                return Response(code, body)

        with pytest.raises(BadUnderlay, match=word):
            asyncio.run(self._poll(NMAgentClient(FixedTransport())))

    @run_in_virtual_time
    async def test_without_a_response_it_times_out(self) -> None:
        class Silent:
            async def send(self, _request: Request) -> Response:
                await asyncio.Event().wait()
                raise AssertionError

        with pytest.raises(Unreachable, match="within 5 s"):
            await NMAgentClient(Silent()).programmed()

    async def _poll(self, host: NMAgentClient) -> None:
        await host.programmed()
