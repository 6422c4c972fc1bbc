"""Event recorder: series, rate limit and retries."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from parts.control_plane import ControlPlane
from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import EVENTS, NODES, Event, Node, ObjectReference
from podpool.api.meta import ObjectMeta
from podpool.kube.client import KubeClient
from podpool.kube.events import BURST, MAX_SERIES, EventRecorder, object_reference
from podpool.runtime.clock import Clock, SystemClock
from podpool.runtime.transport import Request, Response
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient, lite_api_server
from tests.kube.disturbable_transport import DisturbableTransport
from tests.kube.event_loops import run_in_loop, run_in_virtual_time


class LoopClock:
    """A clock that goes with the loop."""

    def boot(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_700_000_000.0 + asyncio.get_running_loop().time()


def on(name: str, namespace: str = "default") -> ObjectReference:
    """An object that something happens to."""
    return object_reference(
        NODE_NETWORK_CONFIGS, NodeNetworkConfig(metadata=ObjectMeta(name=name, namespace=namespace, uid="u"))
    )


def recorder(client: KubeClient, clock: Clock) -> EventRecorder:
    return EventRecorder(client, component="podpool-agent", instance="n", clock=clock, rng=random.Random(1))  # noqa: S311  seeded


class RecorderFixture:
    """A recorder on the lite API server, with a disturbable transport."""

    def __init__(self) -> None:
        self.transport = DisturbableTransport(lite_api_server())
        self.client = KubeClient(self.transport)
        self.recorder = recorder(self.client, LoopClock())

    def record(self, name: str = "a", *, reason: str = "InsufficientAddresses", note: str = "no address left") -> None:
        self.recorder.record(on(name), reason=reason, action="Scaling", note=note, warning=True)

    async def events(self) -> list[Event]:
        return list((await self.client.list(EVENTS, namespace="default")).items)

    @property
    def writes(self) -> int:
        return sum(each.method != "GET" for each in self.transport.sent)


@asynccontextmanager
async def running(made: EventRecorder) -> AsyncIterator[EventRecorder]:
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def recording() -> AsyncIterator[RecorderFixture]:
    fixture = RecorderFixture()
    async with running(fixture.recorder):
        yield fixture


async def written(api: NamespaceClient, regarding: ObjectReference, *, times: int = 1) -> Event:
    """Wait until it is written that something happened so often to an object."""
    async with asyncio.timeout(30):
        while True:
            for each in (await api.client.list(EVENTS, namespace=regarding.namespace or "default")).items:
                if each.regarding == regarding and (each.series.count if each.series else 1) == times:
                    return each
            await asyncio.sleep(0.02)


@run_in_loop
async def test_an_event_is_valid_and_counted(cluster: ApiServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podpool.kube.events.UPDATE_INTERVAL", 0.1)
    async with cluster.open_namespace() as api, running(recorder(api.client, SystemClock())) as made:
        regarding = on("node-1", api.namespace)
        made.record(regarding, reason="InsufficientAddresses", action="Scaling", note="ü" * 1000, warning=True)
        first = await written(api, regarding)
        assert ("InsufficientAddresses", "Scaling", "Warning") == (first.reason, first.action, first.type)
        assert ("podpool-agent", "n", "ü" * 512) == (first.reporting_controller, first.reporting_instance, first.note)
        made.record(regarding, reason="InsufficientAddresses", action="Scaling", note="another", warning=True)
        again = await written(api, regarding, times=2)
        assert (first.key, first.event_time, first.note) == (again.key, again.event_time, again.note)


@run_in_loop
async def test_events_of_a_node_are_in_the_default_namespace(cluster: ApiServerUnderTest) -> None:
    async with cluster.open_namespace() as api, running(recorder(api.client, SystemClock())) as made:
        node = object_reference(NODES, Node(metadata=ObjectMeta(name=api.namespace)))
        made.record(node, reason="NodeGone", action="Releasing", note="its addresses are free")
        assert "default" == (await written(api, node)).metadata.namespace


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
@run_in_loop
async def test_kubectl_shows_them(control_plane: ControlPlane) -> None:
    async with (
        ApiServerUnderTest(control_plane).open_namespace() as api,
        running(recorder(api.client, SystemClock())) as made,
    ):
        regarding = on("node-1", api.namespace)
        made.record(regarding, reason="InsufficientAddresses", action="Scaling", note="no address left")
        await written(api, regarding)
        table = control_plane.kubectl("get", "events", "-n", api.namespace)
        assert ["Normal", "InsufficientAddresses", "nodenetworkconfig/node-1", "no address left"] == [
            each.strip() for each in table.splitlines()[1].split("  ") if each.strip()
        ][1:]


@run_in_virtual_time
async def test_the_same_thing_is_one_event_written_every_five_minutes() -> None:
    async with recording() as fixture:
        for _ in range(170):
            fixture.record()
            await asyncio.sleep(5)
        (event,) = await fixture.events()
        assert event.series
        assert 3 == fixture.writes
        await asyncio.sleep(300)
        (event,) = await fixture.events()
        assert event.series
        assert (170, 4) == (event.series.count, fixture.writes)
        assert str(event.series.last_observed_time).startswith("2023-11-14T22:27:25.")


@run_in_virtual_time
async def test_after_a_while_it_is_a_new_event_with_its_own_note() -> None:
    async with recording() as fixture:
        fixture.record(note="first")
        await asyncio.sleep(601)
        fixture.record(note="second")
        await asyncio.sleep(1)
        assert ["first", "second"] == [each.note for each in await fixture.events()]


@run_in_virtual_time
async def test_other_objects_and_reasons_are_other_events() -> None:
    async with recording() as fixture:
        for name in ("a", "b"):
            for reason in ("InsufficientAddresses", "Fenced"):
                fixture.record(name, reason=reason)
        await asyncio.sleep(1)
        assert 4 == len(await fixture.events())


@run_in_virtual_time
async def test_many_are_written_at_once_and_then_one_a_second() -> None:
    async with recording() as fixture:
        for number in range(BURST + 10):
            fixture.record(f"n-{number}")
        await asyncio.sleep(0.5)
        assert BURST == len(await fixture.events())
        await asyncio.sleep(5)
        assert BURST + 5 == len(await fixture.events())
        await asyncio.sleep(30)
        assert BURST + 10 == len(await fixture.events())


@run_in_virtual_time
async def test_while_the_server_is_away_they_wait_and_the_oldest_are_forgotten() -> None:
    async with recording() as fixture:
        fixture.transport.answer = lambda _: Response(503, b"")
        for number in range(MAX_SERIES + 5):
            fixture.record(f"n-{number:03}")
        await asyncio.sleep(60)
        fixture.transport.answer = lambda _: None
        await asyncio.sleep(3600)
        names = sorted(each.regarding.name for each in await fixture.events())
        assert [f"n-{number:03}" for number in range(5, MAX_SERIES + 5)] == names


@run_in_virtual_time
async def test_what_is_refused_is_given_up() -> None:
    async with recording() as fixture:
        fixture.transport.answer = lambda request: Response(403, b"") if request.method == "POST" else None
        fixture.record()
        fixture.recorder.record(on("x", "no-such-place"), reason="Lost", action="Looking", note="nowhere")
        await asyncio.sleep(200)
        assert 2 == fixture.writes


@run_in_virtual_time
async def test_one_that_the_server_forgot_is_written_anew() -> None:
    async with recording() as fixture:
        fixture.record()
        await asyncio.sleep(1)
        (old,) = await fixture.events()
        await fixture.client.delete(EVENTS, old.metadata.name, namespace="default")
        fixture.record()
        await asyncio.sleep(301)
        (new,) = await fixture.events()
        assert new.series
        assert (2, old.event_time) == (new.series.count, new.event_time)
        assert old.metadata.name != new.metadata.name


@run_in_virtual_time
async def test_a_name_that_is_taken_is_not_used() -> None:
    async with recording() as fixture:
        taken: list[bytes] = []

        def once(request: Request) -> Response | None:
            if request.method != "POST" or taken:
                return None
            taken.append(request.body)
            return Response(409, b'{"reason": "AlreadyExists"}')

        fixture.transport.answer = once
        fixture.record()
        await asyncio.sleep(5)
        assert 1 == len(await fixture.events())
