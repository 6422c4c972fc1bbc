"""Exponential back-off with jitter."""

import asyncio
import random

import pytest

from podpool.kube.backoff import Backoff, backoff_delay, retry
from tests.kube.event_loops import run_in_virtual_time


def make(*, base: float = 1.0, maximum: float = 8.0) -> Backoff:
    return Backoff(rng=random.Random(1), base=base, maximum=maximum)  # noqa: S311  seeded


def test_delays_double_up_to_the_maximum_with_jitter() -> None:
    backoff = make()
    delays = [backoff.fail() for _ in range(6)]
    assert all(full / 2 <= delay <= full for full, delay in zip((1, 2, 4, 8, 8, 8), delays, strict=True))
    assert 6 == backoff.failures
    backoff.reset()
    assert 0.5 <= backoff.fail() <= 1.0


def test_a_requested_delay_is_a_minimum() -> None:
    assert 100.0 == make().fail(at_least=100.0)


def test_many_failures_do_not_overflow() -> None:
    assert backoff_delay(10_000, rng=random.Random(1), base=0.1, maximum=60.0) <= 60.0  # noqa: S311  seeded


class TestRetry:
    @run_in_virtual_time
    async def test_an_operation_is_called_until_it_succeeds(self) -> None:
        errors: list[Exception] = []
        results = iter([OSError("first"), OSError("second"), "done"])

        async def operation() -> str:
            match next(results):
                case OSError() as error:
                    raise error
                case result:
                    return str(result)

        backoff, begun = make(), asyncio.get_running_loop().time()
        assert "done" == await retry(operation, backoff, on=(OSError,), failed=errors.append)
        assert ["first", "second"] == list(map(str, errors))
        assert 1.5 <= asyncio.get_running_loop().time() - begun <= 3.1
        assert 0 == backoff.failures

    @run_in_virtual_time
    async def test_other_errors_are_raised(self) -> None:
        async def operation() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            await retry(operation, make(), on=(OSError,))
