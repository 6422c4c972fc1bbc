"""An underlay that must know of an address before it works: until then nobody gets it."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from podpool.agent.pool import Pool
from podpool.agent.records import Adopted
from podpool.agent.underlay import BadUnderlay, HostAgent
from podpool.runtime.http import HttpTransport, serving
from podpool.runtime.transport import Request, Response, Unreachable
from tests.agent.statuses import CONTAINER, grants, status
from tests.agent.test_lanes import FOUR, SIX, addresses, beside, started
from tests.agent.test_pool import accepted, after
from tests.agent.test_pool import started as begun
from tests.agent.worlds import SETTLED, World, in_world
from tests.kube.loops import in_loop, in_virtual_time


class Host:
    """An underlay that a test sets."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.away = False
        self.asked = 0

    async def programmed(self) -> Mapping[str, int]:
        self.asked += 1
        if self.away:
            raise Unreachable("the host", "it is away")
        return self.versions


def told(*containers: tuple[str, str], **others: str) -> bytes:
    """Word an answer as a host does."""
    listed = [{"networkContainerId": name, "version": version} for name, version in containers]
    return json.dumps({"httpStatusCode": "200", "networkContainers": listed, **others}).encode()


class TestPending:
    @in_world
    async def test_who_asks_before_it_is_known_waits(self, world: World) -> None:
        host = Host()
        world.options = {"underlay": host}
        agent = await started(world)
        asking = asyncio.create_task(addresses(world, "a"))
        await asyncio.sleep(SETTLED)
        assert not asking.done()
        assert (0, 8) == (agent.picture().available, agent.picture().unprogrammed)
        host.versions["nc-1"] = 2
        assert ["10.0.1.1/16"] == await asking
        assert (7, 0) == (agent.picture().available, agent.picture().unprogrammed)

    @in_world
    async def test_what_was_known_is_given_while_newer_ones_are_not(self, world: World) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        world.options = {"underlay": host}
        agent = await started(world, {"four-1": "10.0.1.1"})
        await world.write_status(version=3, grants=FOUR)
        await asyncio.sleep(SETTLED)
        assert ["10.0.1.1/16"] == await addresses(world, "a")
        refused = await world.call("ADD", "b")
        assert 11 == json.loads(refused.stdout)["code"]
        assert "7 that the underlay does not know yet" in refused.stdout.decode()
        host.versions["nc-1"] = 3
        assert ["10.0.1.2/16"] == await addresses(world, "b")
        assert not list(agent.pool.unprogrammed())

    @in_world
    async def test_each_container_is_known_by_itself(self, world: World) -> None:
        host = Host()
        host.versions["nc-1"] = 9
        world.options = {"underlay": host}
        await started(world, beside=[beside(1, SIX)])
        asking = asyncio.create_task(addresses(world, "a"))
        await asyncio.sleep(SETTLED)
        assert not asking.done()
        host.versions["nc-six"] = 1
        assert ["10.0.1.1/16", "fd00::1:1/64"] == await asking

    @in_world
    async def test_names_are_the_same_however_they_are_spelled(self, world: World) -> None:
        """Azure's CNS never gives addresses of a container whose name has capitals."""
        host = Host()
        host.versions["NC-1"] = 2
        world.options = {"underlay": host}
        await started(world)
        assert ["10.0.1.1/16"] == await addresses(world, "a")

    @in_world
    async def test_a_node_is_ready_when_its_container_is_known(self, world: World) -> None:
        host = Host()
        world.options = {"underlay": host}
        agent = await started(world)
        assert not agent.able.is_set()
        assert "does not know container nc-1" in (agent.missing() or "")
        host.versions["nc-1"] = 1
        await asyncio.sleep(SETTLED)
        assert agent.able.is_set()
        assert None is agent.missing()

    def test_what_nobody_can_use_yet_goes_back_first(self) -> None:
        pool = Pool(programmed=lambda _container, version: version < 2)
        pool = after(pool, begun(), Adopted(container=CONTAINER), accepted(status(1, grants(1, 2))))
        pool.apply(accepted(status(2, grants(1, 2, 3)), at=5.0))
        assert ["g3", "g2", "g1"] == [each.id for each in pool.releasable(now=9.0, rest=30.0)]
        assert ["g3"] == [each.id for each in pool.unprogrammed()]


class TestAsking:
    @in_world
    async def test_it_is_asked_only_while_something_is_newer(self, world: World) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        world.options = {"underlay": host}
        await started(world)
        asked = host.asked
        await asyncio.sleep(600.0)
        assert asked == host.asked

    @in_world
    async def test_one_that_is_away_is_told_of_once_and_asked_again(self, world: World) -> None:
        host = Host()
        host.away = True
        world.options = {"underlay": host}
        await started(world)
        await asyncio.sleep(60.0)
        assert 1 == len([each for each in world.told if "wait for the underlay" in each])
        host.away, host.versions = False, {"nc-1": 2}
        assert ["10.0.1.1/16"] == await addresses(world, "a")

    @in_world
    async def test_a_restart_remembers_and_a_reboot_asks_again(self, world: World) -> None:
        host = Host()
        host.versions["nc-1"] = 2
        world.options = {"underlay": host}
        await started(world)
        await world.kill()
        host.versions.clear()
        await world.start()
        assert ["10.0.1.1/16"] == await addresses(world, "a")
        await world.kill()
        world.boot_id = "boot-2"
        await world.report_boot("boot-2")
        agent = await world.start()
        assert 8 == len(list(agent.pool.unprogrammed()))


class TestWire:
    """What an Azure host answers, and what it should not."""

    @in_loop
    async def test_versions_by_container(self) -> None:
        asked: list[Request] = []

        async def host(request: Request) -> Response:
            asked.append(request)
            return Response(200, told(("a", "3"), ("b", "-1")))

        async with serving(host, host="127.0.0.1", port=0) as port:
            road = HttpTransport(f"http://127.0.0.1:{port}")
            assert {"a": 3, "b": -1} == await HostAgent(road).programmed()
            await road.close()
        (request,) = asked
        assert ("GET", "/machine/plugins") == (request.method, request.path)
        assert {"comp": "nmagent", "type": "NetworkManagement/interfaces/api-version/2"} == request.query

    @pytest.mark.parametrize(
        ("code", "body", "word"),
        [
            (503, b"", "status 503"),
            (200, b"<html>", "malformed"),
            (200, told(httpStatusCode="401"), "httpStatusCode 401"),
            (200, told(("a", "new")), "'new'"),
            (200, b'{"networkContainers":[{"version":"1"}]}', "networkContainerId"),
        ],
    )
    def test_what_cannot_be_used_is_said(self, code: int, body: bytes, word: str) -> None:
        class Road:
            async def send(self, _request: Request) -> Response:
                return Response(code, body)

        with pytest.raises(BadUnderlay, match=word):
            asyncio.run(self._ask(HostAgent(Road())))

    @in_virtual_time
    async def test_no_answer_ends_the_wait(self) -> None:
        class Silent:
            async def send(self, _request: Request) -> Response:
                await asyncio.Event().wait()
                raise AssertionError

        with pytest.raises(Unreachable, match="within 5 s"):
            await HostAgent(Silent()).programmed()

    async def _ask(self, host: HostAgent) -> None:
        await host.programmed()
