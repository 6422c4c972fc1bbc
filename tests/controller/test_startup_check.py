"""The start-up check of the ledger: what it reports names the option to correct."""

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec
import pytest

from podpool.api.builtin import Node
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.settings import SUBNET_LABEL, ControllerSettings
from podpool.controller.startup_check import MAX_LISTED, LedgerCheck
from podpool.core.scaling import Scaler
from podpool.kube.cache import ObjectCache
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Forbidden, LedgerError, NotFound, Unauthorized
from podpool.ledger.messages import SubnetList, SubnetName, SubnetState
from podpool.runtime.transport import Request, Response, Unreachable
from tests.kube.event_loops import run_in_virtual_time

SUBNET = SubnetName(network="vnet", name="pods")
URL = "http://127.0.0.1:7780"


def subnet_state(name: str) -> SubnetState:
    return SubnetState(
        subnet=SubnetName(network="vnet", name=name),
        cidr="10.0.0.0/24",
        capacity=254,
        reserved=0,
        cooldown=30.0,
        scaler=Scaler(16, 50),
        revision=1,
        timestamp="",
    )


def refused(error: LedgerError) -> Response:
    return Response(error.status, msgspec.json.encode(error.response))


class FakeLedger:
    """Answers each read of the subnet with `respond`, and lists `subnets`."""

    def __init__(self, respond: Callable[[], Response]) -> None:
        self.respond = respond
        self.subnets: tuple[str, ...] = ()
        self.nodes = ObjectCache[Node]()
        self.nodes.replace([])
        settings, rng = ControllerSettings(subnet=SUBNET), random.Random(1)  # noqa: S311  seeded
        self.check = LedgerCheck(LedgerClient(self), self.nodes, LedgerHealth(), settings=settings, rng=rng)

    async def send(self, request: Request) -> Response:
        if request.path == "/v1/subnets":
            listed = SubnetList(revision=1, subnets=tuple(map(subnet_state, self.subnets)))
            return Response(200, msgspec.json.encode(listed))
        return self.respond()

    @property
    def failures(self) -> dict[str, str]:
        return {each.name: each.failure for each in self.check.checks()}


def unreachable() -> Response:
    raise Unreachable(URL, "connection refused")


def found() -> Response:
    return Response(200, msgspec.json.encode(subnet_state("pods")))


async def after_a_while(ledger: FakeLedger) -> "asyncio.Task[None]":
    running = asyncio.ensure_future(ledger.check.run())
    await asyncio.sleep(1.0)
    return running


@pytest.mark.parametrize(
    ("respond", "flag", "cause"),
    [
        (unreachable, "--ledger", f"{URL} cannot be reached: connection refused"),
        (lambda: refused(Unauthorized("no valid token")), "--ledger-token-file", "rejects the token"),
        (lambda: refused(Forbidden("token x is not bound to cluster y")), "--ledger-token-file", "not bound"),
        (lambda: Response(200, b"<html>"), "--ledger", "no response of a ledger"),
        (lambda: Response(502, b"<html>"), "--ledger", "502"),
    ],
)
def test_a_ledger_that_cannot_be_used_names_the_option(respond: Callable[[], Response], flag: str, cause: str) -> None:
    @run_in_virtual_time
    async def scenario() -> None:
        ledger = FakeLedger(respond)
        assert {"ledger": "no response yet", "subnet": "no response yet"} == ledger.failures
        running = await after_a_while(ledger)
        assert cause in ledger.failures["ledger"]
        assert f"check {flag}" in ledger.failures["ledger"]
        assert ledger.failures["subnet"]
        ledger.respond = found
        await running
        assert {"ledger": "", "subnet": ""} == ledger.failures

    scenario()


@run_in_virtual_time
async def test_a_missing_subnet_names_the_option_and_the_existing_subnets() -> None:
    ledger = FakeLedger(lambda: refused(NotFound("there is no subnet vnet.pods")))
    running = await after_a_while(ledger)
    assert "" == ledger.failures["ledger"]
    assert "no subnet vnet.pods (existing: none): correct --subnet" in ledger.failures["subnet"]
    ledger.subnets = tuple(f"s{number:03}" for number in range(MAX_LISTED + 30))
    await asyncio.sleep(20.0)
    assert "(existing: vnet.s000, vnet.s001, " in ledger.failures["subnet"]
    assert "vnet.s019, and 30 more)" in ledger.failures["subnet"]
    ledger.respond = found
    await running


def node(name: str, **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


@run_in_virtual_time
async def test_a_missing_subnet_that_no_node_uses_is_a_note() -> None:
    ledger = FakeLedger(lambda: refused(NotFound("there is no subnet vnet.pods")))
    labelled = node("n1", **{SUBNET_LABEL: "vnet.other"})
    ledger.nodes.replace([labelled, node("n2")])
    running = await after_a_while(ledger)
    assert "correct --subnet" in ledger.failures["subnet"]
    ledger.nodes.replace([labelled])
    await running
    assert {"ledger": "", "subnet": ""} == ledger.failures
    notes = {each.name: each.note for each in ledger.check.checks()}
    assert notes["subnet"].startswith("no Node uses it, but the ledger has no subnet vnet.pods")


def test_a_failure_is_logged_once_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    @run_in_virtual_time
    async def scenario() -> None:
        ledger = FakeLedger(lambda: refused(Unauthorized("no valid token")))
        running = await after_a_while(ledger)
        await asyncio.sleep(600.0)
        ledger.respond = found
        await running

    with caplog.at_level(logging.INFO, "podpool.controller.startup_check"):
        scenario()
    assert ["ERROR", "INFO"] == [each.levelname for each in caplog.records]
