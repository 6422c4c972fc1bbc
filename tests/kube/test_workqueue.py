"""Keys that want work."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.errors import PodpoolError
from podpool.kube.errors import ApiTooManyRequests
from podpool.kube.workqueue import Requeue, WorkQueue, run_workers
from tests.kube.api_servers import ApiServerUnderTest
from tests.kube.event_loops import run_in_loop, run_in_virtual_time
from tests.kube.running_informer import NNC, create, running_informer, set_request


def queue() -> WorkQueue:
    return WorkQueue(rng=random.Random(3))  # noqa: S311  seeded


async def worked(queue: WorkQueue, reconcile: Callable[[str], Awaitable[Requeue | None]], seconds: float) -> None:
    """Work for so long."""
    working = asyncio.ensure_future(run_workers(queue, reconcile, workers=3, on_error=lambda _key, _error: None))
    await asyncio.sleep(seconds)
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()


class TestKeys:
    @run_in_virtual_time
    async def test_keys_come_in_order_and_one_that_waits_is_not_added_again(self) -> None:
        keys = queue()
        for key in ("a", "b", "a", "c", "b"):
            keys.add(key)
        assert ["a", "b", "c"] == [await keys.get() for _ in range(3)]
        assert len(keys) == 0

    @run_in_virtual_time
    async def test_a_key_that_is_asked_for_while_worked_on_comes_back_after(self) -> None:
        keys = queue()
        keys.add("a")
        assert "a" == await keys.get()
        keys.add("a")
        keys.add("a")
        assert len(keys) == 0, "not twice at once"
        keys.done("a")
        assert "a" == await keys.get()
        keys.done("a")
        assert keys.idle

    @run_in_virtual_time
    async def test_of_several_delays_the_earliest_counts(self) -> None:
        keys, loop = queue(), asyncio.get_running_loop()
        for seconds in (5.0, 2.0, 8.0):
            keys.add_after("a", seconds)
        await keys.get()
        keys.done("a")
        assert loop.time() == pytest.approx(2.0, abs=0.001)
        await asyncio.sleep(20)
        assert keys.idle

    @run_in_virtual_time
    async def test_what_fails_comes_back_later_each_time_until_it_is_forgotten(self) -> None:
        keys, loop = queue(), asyncio.get_running_loop()
        times = [loop.time()]
        for _ in range(16):
            keys.add_rate_limited("a")
            await keys.get()
            keys.done("a")
            times.append(loop.time())
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert 0.025 <= waits[0] <= 0.05
        assert all(0.5 <= wait / min(60.0, 0.05 * 2**turn) <= 1.0001 for turn, wait in enumerate(waits))
        keys.forget("a")
        keys.add_rate_limited("a")
        await keys.get()
        assert loop.time() - times[-1] <= 0.05


class TestMetrics:
    @run_in_virtual_time
    async def test_metrics_show_the_present_state(self) -> None:
        keys, hanging = queue(), asyncio.Event()

        async def reconcile(key: str) -> Requeue | None:
            await asyncio.sleep(2)
            if key == "bad":
                raise ApiTooManyRequests("patch", retry_after=1000.0)
            if key == "hangs":
                await hanging.wait()
            return Requeue(1000.0) if key == "later" else None

        for key in ("good", "bad", "later", "hangs", "last"):
            keys.add(key)
        working = asyncio.ensure_future(run_workers(keys, reconcile, workers=2, on_error=lambda _key, _error: None))
        await asyncio.sleep(1)
        first = keys.metrics()
        assert (3, 2, 0) == (first.depth, first.active, first.failing)
        assert first.longest_running_seconds == pytest.approx(1, abs=0.001)
        await asyncio.sleep(9)
        now = keys.metrics()
        assert (0, 1, 1) == (now.depth, now.active, now.failing)
        assert now.longest_running_seconds == pytest.approx(8, abs=0.001)
        working.cancel()
        await asyncio.wait([working])


class TestWork:
    @run_in_virtual_time
    async def test_no_key_is_worked_on_twice_at_once_and_nothing_is_lost(self) -> None:
        keys, busy, seen = queue(), set[str](), dict[str, int]()
        wanted = dict[str, int]()

        async def reconcile(key: str) -> None:
            assert key not in busy
            busy.add(key)
            look = wanted[key]
            await asyncio.sleep(0.3)
            seen[key] = look
            busy.discard(key)

        async def change() -> None:
            rng = random.Random(1)  # noqa: S311  seeded
            for turn in range(200):
                key = rng.choice("abcdef")
                wanted[key] = turn
                keys.add(key)
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.2]))

        changing = asyncio.ensure_future(change())
        await worked(keys, reconcile, 100)
        assert changing.done()
        assert wanted == seen, "the last change of each key was looked at"

    @run_in_virtual_time
    async def test_a_result_has_the_time_of_the_next_reconciliation(self) -> None:
        keys, times, loop = queue(), list[float](), asyncio.get_running_loop()

        async def reconcile(_: str) -> Requeue | None:
            times.append(loop.time())
            return Requeue(10.0) if len(times) < 3 else None

        keys.add("a")
        await worked(keys, reconcile, 100)
        assert [0, 10, 20] == pytest.approx(times, abs=0.001)

    @run_in_virtual_time
    async def test_a_failure_is_logged_and_retried_and_does_not_delay_others(self) -> None:
        keys, tries, failures = queue(), list[str](), list[str]()

        async def reconcile(key: str) -> None:
            tries.append(key)
            if key == "bad" and tries.count("bad") < 4:
                raise PodpoolError("not yet")

        keys.add("bad")
        keys.add("good")
        working = asyncio.ensure_future(
            run_workers(keys, reconcile, workers=1, on_error=lambda key, _: failures.append(key))
        )
        await asyncio.sleep(10)
        working.cancel()
        await asyncio.wait([working])
        assert ["bad", "good", "bad", "bad", "bad"] == tries
        assert ["bad"] * 3 == failures

    @run_in_virtual_time
    async def test_a_requested_delay_is_respected(self) -> None:
        keys, times, loop = queue(), list[float](), asyncio.get_running_loop()

        async def reconcile(_: str) -> None:
            times.append(loop.time())
            if len(times) == 1:
                raise ApiTooManyRequests("patch", retry_after=7.0)

        keys.add("a")
        await worked(keys, reconcile, 100)
        assert [0, 7] == pytest.approx(times, abs=0.001)

    @run_in_virtual_time
    async def test_an_exception_of_on_error_ends_the_workers(self) -> None:
        keys = queue()

        async def reconcile(key: str) -> None:
            raise KeyError(key)

        def strict(_: str, error: Exception) -> None:
            raise error

        keys.add("a")
        with pytest.raises(ExceptionGroup) as ended:
            await run_workers(keys, reconcile, on_error=strict)
        assert isinstance(ended.value.exceptions[0], KeyError)

    @run_in_virtual_time
    async def test_after_close_no_delayed_key_is_added(self) -> None:
        keys = queue()
        keys.add_after("a", 50)
        await worked(keys, lambda _: asyncio.sleep(0), 1)
        await asyncio.sleep(100)
        assert keys.idle


class TestReconciling:
    @run_in_loop
    async def test_what_an_informer_shows_is_brought_to_the_desired_state(self, cluster: ApiServerUnderTest) -> None:
        """Although another writes to the same objects: a conflict is a failure like any other."""
        names = [f"n-{number}" for number in range(10)]
        async with cluster.open_namespace() as api, running_informer(api) as seen:
            keys = queue()
            seen.cache.subscribe(lambda _, new: keys.add(new.key) if new else None)

            async def reconcile(key: str) -> None:
                found = seen.cache.get(key)
                if found is not None and found.spec.requested != 7:
                    await api.client.merge_patch(
                        NNC,
                        found.metadata.name,
                        {"spec": {"requestedIPCount": 7}},
                        namespace=api.namespace,
                        precondition=found.metadata.resource_version,
                    )

            working = asyncio.ensure_future(run_workers(keys, reconcile))
            await create(api, *names)
            for turn in range(5):
                for name in names:
                    await set_request(api, name, turn)
            await seen.until(lambda: [7] * 10 == [each.spec.requested for each in seen.cache.values()])
            await seen.equals_a_fresh_list()
            working.cancel()
            await asyncio.wait([working])
            assert working.cancelled()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "take", "done"])), max_size=60))
@run_in_virtual_time
async def test_each_added_key_is_returned_and_never_while_it_is_active(steps: list[tuple[str, str]]) -> None:
    keys, held, due = queue(), list[str](), set[str]()
    for key, step in steps:
        if step == "add":
            keys.add(key)
            due.add(key)
        elif step == "take" and len(keys):
            taken = await keys.get()
            assert taken not in held
            assert taken in due
            held.append(taken)
            due.discard(taken)
        elif step == "done" and held:
            keys.done(held.pop(0))
    assert len(keys) == len(due - set(held))
    assert (len(keys), len(held)) == (keys.metrics().depth, keys.metrics().active)
