"""One leader at a time, and soon another when it is gone."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from podpool.api.builtin import LEASES, Lease
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.kube.leader_election import DEFAULT_TIMING, LeaderElector, LeadershipLost, LeaseTiming
from podpool.runtime.transport import Response, Transport, Unreachable
from tests.kube.api_servers import ApiServerUnderTest, FixedClock, lite_api_server
from tests.kube.disturbable_transport import DisturbableTransport
from tests.kube.election_candidate import SHORT_TIMING
from tests.kube.event_loops import run_in_loop, run_in_virtual_time


class Election:
    """The Lease of the candidates; records each leader and asserts that there is only one."""

    def __init__(self, server: Transport, namespace: str = "kube-system") -> None:
        self.server = server
        self.namespace = namespace
        self.leads: list[tuple[float, str]] = []
        self.leader = ""
        self.changed = asyncio.Event()

    async def lead(self, name: str) -> None:
        assert not self.leader, f"{name} leads beside {self.leader}"
        self.leader = name
        self.leads.append((asyncio.get_running_loop().time(), name))
        self.changed.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.leader = ""

    async def led_by(self, name: str) -> float:
        """Wait until it leads, and return when."""
        async with asyncio.timeout(120):
            while self.leader != name:
                self.changed.clear()
                await self.changed.wait()
        return self.leads[-1][0]


class Candidate:
    def __init__(self, election: Election, name: str, timing: LeaseTiming = DEFAULT_TIMING) -> None:
        self.election = election
        self.name = name
        self.transport = DisturbableTransport(election.server)
        self.clock = FixedClock()  # a wall clock that stands still decides nothing
        self.elector = LeaderElector(
            KubeClient(self.transport),
            name="controller",
            namespace=election.namespace,
            identity=name,
            clock=self.clock,
            rng=random.Random(name),  # noqa: S311  seeded
            timing=timing,
        )
        self.leaders: list[str] = []
        """Who led while this candidate was a standby."""
        self.running = asyncio.ensure_future(
            self.elector.run(lambda: election.lead(name), on_standby=self.leaders.append)
        )

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError, LeadershipLost):  # but not the assertions of the election
            await self.running


@asynccontextmanager
async def candidates(
    election: Election, *names: str, timing: LeaseTiming = DEFAULT_TIMING
) -> AsyncIterator[list[Candidate]]:
    all_of_them = [Candidate(election, name, timing) for name in names]
    try:
        yield all_of_them
    finally:
        for each in all_of_them:
            await each.stop()


async def lease(election: Election) -> Lease:
    return await KubeClient(election.server).get(LEASES, "controller", namespace=election.namespace)


async def holder(election: Election) -> str | None:
    try:
        return (await lease(election)).spec.holder_identity
    except ApiNotFound:
        return None


class TestLeading:
    @run_in_virtual_time
    async def test_a_standby_learns_each_leader_once(self) -> None:
        election = Election(lite_api_server(), "default")
        async with candidates(election, "a") as (first,):
            await election.led_by("a")
            async with candidates(election, "b", "c") as (second, third):
                await asyncio.sleep(60.0)
                assert ([], ["a"], ["a"]) == (first.leaders, second.leaders, third.leaders)
                await first.stop()
                await asyncio.sleep(60.0)
                follower = second if election.leader == "c" else third
                assert ["a", election.leader] == follower.leaders

    @pytest.mark.integration
    @run_in_loop
    async def test_one_leads_and_the_next_follows_at_once_on_a_clean_stop(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            async with candidates(election, "a") as (first,):
                await election.led_by("a")
                assert first.elector.is_leader
                async with candidates(election, "b") as (second,):
                    assert not second.elector.is_leader
                    await first.stop()
                    freed = asyncio.get_running_loop().time()
                    assert (await lease(election)).spec.holder_identity == ""
                    assert await election.led_by("b") - freed < 10, "no candidate waited for the Lease to expire"
                    held = (await lease(election)).spec
                    assert ("b", 15, 1) == (held.holder_identity, held.lease_duration_seconds, held.lease_transitions)

    @run_in_virtual_time
    async def test_a_leader_renews_and_stays(self) -> None:
        election = Election(lite_api_server())
        async with candidates(election, "a", "b", "c"):
            await asyncio.sleep(3600)
            assert 1 == len(election.leads)

    @pytest.mark.integration
    @run_in_loop
    async def test_it_renews_and_stays_on_either_server(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            async with candidates(election, "a", "b", "c", timing=SHORT_TIMING):
                await election.changed.wait()
                await asyncio.sleep(3 * SHORT_TIMING.duration)
                assert 1 == len(election.leads)

    @pytest.mark.integration
    @run_in_loop
    async def test_the_lead_ends_with_its_work(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            candidate = Candidate(election, "a", SHORT_TIMING)
            await candidate.stop()

            async def short() -> None:
                await asyncio.sleep(SHORT_TIMING.duration)

            async def failing() -> None:
                raise ValueError("broken")

            await candidate.elector.run(short)
            assert "" == await holder(election)
            with pytest.raises(ValueError, match="broken"):
                await candidate.elector.run(failing)
            assert "" == await holder(election)


class TestLosing:
    @pytest.mark.integration
    @run_in_loop
    async def test_who_cannot_renew_has_stopped_when_another_starts_on_either_server(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            async with candidates(election, "a", timing=SHORT_TIMING) as (first,):
                await election.led_by("a")
                async with candidates(election, "b", timing=SHORT_TIMING):
                    first.transport.hangs = True
                    with pytest.raises(LeadershipLost):
                        await first.running
                    await election.led_by("b")

    @run_in_virtual_time
    async def test_a_leader_that_cannot_renew_stops_before_another_starts(self) -> None:
        election = Election(lite_api_server())
        async with candidates(election, "a") as (first,):
            await election.led_by("a")
            async with candidates(election, "b"):
                await asyncio.sleep(60)
                first.transport.hangs = True
                began = asyncio.get_running_loop().time()
                with pytest.raises(LeadershipLost, match="kube-system/controller"):
                    await first.running
                stopped = asyncio.get_running_loop().time() - began
                assert 8 <= stopped <= 10, "counted from when the last renewal was sent"
                assert 13 <= await election.led_by("b") - began <= 20

    @run_in_virtual_time
    async def test_one_lost_answer_does_not_cost_the_lead(self) -> None:
        election = Election(lite_api_server())
        async with candidates(election, "a", "b") as both:
            await asyncio.sleep(60)
            leader = next(each for each in both if each.name == election.leader)

            def lost(_: object) -> Response | None:
                leader.transport.answer = lambda _: None
                raise Unreachable("the server", "cut")

            for _ in range(20):
                leader.transport.answer = lost
                await asyncio.sleep(9)
            assert 1 == len(election.leads)

    @run_in_virtual_time
    async def test_a_renewal_that_was_done_but_not_answered_is_found_again(self) -> None:
        election = Election(lite_api_server())
        async with candidates(election, "a") as (only,):
            await election.led_by("a")
            inner = only.transport.inner

            class Deaf:
                async def send(self, request: object) -> Response:
                    only.transport.inner = inner
                    await inner.send(request)  # type: ignore[arg-type]  # whatever a person may write
                    raise Unreachable("the server", "cut")

            only.transport.inner = Deaf()
            await asyncio.sleep(60)
            assert 1 == len(election.leads)
            assert only.elector.is_leader

    @run_in_loop
    async def test_a_leader_whose_lease_is_anothers_stops_at_the_next_look(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            async with candidates(election, "a", timing=SHORT_TIMING) as (first,):
                await election.led_by("a")
                theirs = {"spec": {"holderIdentity": "b", "renewTime": "2030-01-01T00:00:00.000000Z"}}
                await api.client.merge_patch(LEASES, "controller", theirs, namespace=api.namespace)
                with pytest.raises(LeadershipLost):
                    await first.running
                assert (await lease(election)).spec.holder_identity == "b", (
                    "the Lease of another candidate is not released"
                )

    @run_in_loop
    async def test_a_deleted_lease_is_made_again(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            election = Election(api.transport, api.namespace)
            async with candidates(election, "a", timing=SHORT_TIMING) as (first,):
                await election.led_by("a")
                await api.client.delete(LEASES, "controller", namespace=api.namespace)
                held_by = None
                async with asyncio.timeout(60):
                    while held_by != "a":
                        await asyncio.sleep(0.1)
                        held_by = await holder(election)
                assert not first.running.done()
                assert 1 == len(election.leads)

    @run_in_virtual_time
    async def test_a_lease_that_vanishes_is_not_taken_before_who_held_it_has_stopped(self) -> None:
        election = Election(lite_api_server())
        async with candidates(election, "a") as (first,), candidates(election, "b"):
            await election.led_by("a")
            await asyncio.sleep(10)
            first.transport.hangs = True
            await KubeClient(election.server).delete(LEASES, "controller", namespace="kube-system")
            await election.led_by("b")

    @pytest.mark.parametrize("pause", [3.0, 3.5, 4.0, 4.5, 4.9])
    @run_in_virtual_time
    async def test_a_renewal_that_others_cannot_see_is_none(self, pause: float) -> None:
        """A successor of the same name, whose clock stands still, writes what is there already."""
        election = Election(lite_api_server())
        async with candidates(election, "a") as (first,):
            await election.led_by("a")
            first.transport.hangs = True
            async with candidates(election, "b"):
                with pytest.raises(LeadershipLost):
                    await first.running
                await asyncio.sleep(pause)
                async with candidates(election, "a"):
                    await asyncio.sleep(60)
                    assert election.leader

    @run_in_virtual_time
    async def test_two_never_lead_whatever_the_transports_do(self) -> None:
        """The election asserts it; this checks that the leader changes often enough."""
        election, rng = Election(lite_api_server()), random.Random(5)  # noqa: S311  seeded
        async with candidates(election, "a", "b", "c") as all_three:
            for _ in range(400):
                each = rng.choice(all_three)
                each.transport.hangs = not each.transport.hangs
                await asyncio.sleep(rng.uniform(0, 20))
                for index, candidate in enumerate(all_three):
                    if candidate.running.done():
                        assert isinstance(candidate.running.exception(), LeadershipLost)
                        all_three[index] = Candidate(election, candidate.name)
        assert len(election.leads) > 20
