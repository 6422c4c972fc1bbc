"""`/readyz` of the controller, and what its log says about it."""

import asyncio
import logging
import random
from collections.abc import Mapping

import pytest

from podpool.api.builtin import LEASES
from podpool.controller.controller import Controller
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import SystemClock
from podpool.runtime.logging import fields_of
from podpool.runtime.transport import Request, Response, Unreachable
from tests.controller.controller_env import ControllerEnvs, until
from tests.kube.api_servers import lite_api_server
from tests.kube.event_loops import run_in_loop, run_in_virtual_time


def failures(controller: Controller) -> Mapping[str, str]:
    return {each.name: each.failure for each in controller.health_checks() if each.failure}


def role(controller: Controller) -> str:
    return next(each.note for each in controller.health_checks() if each.name == "leader election")


async def failed(controller: Controller, check: str, *words: str) -> None:
    """Wait until a check fails with these words."""

    async def it_does() -> bool:
        return all(word in failures(controller).get(check, "") for word in words)

    await until(it_does, f"{check} fails with {words}")


async def passed(controller: Controller) -> None:
    async def it_has() -> bool:
        return not failures(controller)

    await until(it_has, "all checks pass")


@run_in_loop
async def test_it_is_ready_after_the_first_call_of_the_ledger_and_a_lookup_of_the_subnet(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        controller = env.start()
        assert {"caches", "ledger", "subnet"} == failures(controller).keys()
        await failed(controller, "subnet", "--subnet", "existing: none")
        assert "ledger" not in failures(controller)
        await env.create_subnet()
        await passed(controller)


@run_in_loop
async def test_a_later_outage_of_the_ledger_does_not_make_it_unready(envs: ControllerEnvs) -> None:
    async with envs.running("n1") as env:
        (controller,) = env.controllers
        await passed(controller)
        env.ledger_transport.hangs = True
        await env.request("n1", 15)
        await asyncio.sleep(0.5)
        assert {} == failures(controller)


@run_in_loop
async def test_a_leader_with_an_admin_token_is_not_ready(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        made = await env.ledger.create_token(CreateTokenRequest(name="another", admin=True))
        env.token = made.secret or ""
        await failed(env.start(), "ledger term", "not an admin token", "--ledger-token-file")


@pytest.mark.integration
@run_in_loop
async def test_a_replica_that_could_not_open_a_term_is_ready_as_a_standby(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        made = await env.ledger.create_token(CreateTokenRequest(name="another", admin=True))
        env.token = made.secret or ""
        controller = env.start()
        await failed(controller, "ledger term", "not an admin token")
        taken = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 600}}
        await env.client.merge_patch(LEASES, "podpool-controller", taken, namespace=env.namespace)
        await passed(controller)
        assert "waiting for the Lease, held by another" == role(controller)


@pytest.mark.integration
@run_in_loop
async def test_a_standby_is_ready_and_names_the_holder_once(
    envs: ControllerEnvs, caplog: pytest.LogCaptureFixture
) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        leader = env.start(host="one")
        await env.join("n1")
        assert "this replica leads" == role(leader)
        with caplog.at_level(logging.INFO, "podpool.controller.controller"):
            standby = env.start(host="two")
            await passed(standby)
            await until(lambda: _is_standby(standby), "the standby names the holder")
            assert role(standby).startswith("waiting for the Lease, held by one_")
            await asyncio.sleep(5.0)  # two more attempts
            lines = [each for each in caplog.records if each.getMessage() == "waiting for the Lease"]
            assert ["one_"] == [str(fields_of(each)["holder"])[:4] for each in lines]
            await env.stop(leader)
            await env.join("n2")
            assert "this replica leads" == role(standby)


async def _is_standby(controller: Controller) -> bool:
    return role(controller).startswith("waiting for the Lease")


class Closed:
    """A ledger that cannot be reached."""

    async def send(self, request: Request) -> Response:  # noqa: ARG002  the interface
        raise Unreachable("http://127.0.0.1:7780", "connection refused")


def test_missing_crds_are_logged_once_with_the_command(caplog: pytest.LogCaptureFixture) -> None:
    reasons: list[str] = []

    @run_in_virtual_time
    async def scenario() -> None:
        controller = Controller(
            KubeClient(lite_api_server()),
            LedgerClient(Closed()),
            settings=ControllerSettings(),
            clock=SystemClock(),
            rng=random.Random(1),  # noqa: S311  seeded
        )
        running = asyncio.ensure_future(controller.run())
        await asyncio.sleep(600.0)
        reasons.append(failures(controller)["caches"])
        running.cancel()
        await asyncio.wait([running])

    with caplog.at_level(logging.INFO, "podpool.kube.informer"):
        scenario()
    lines = [(each.levelname, fields_of(each)) for each in caplog.records if each.name == "podpool.kube.informer"]
    kinds = ["clustersubnets", "clustersubnetstates", "nodenetworkconfigs"]
    assert kinds == sorted(str(fields["kind"]) for _, fields in lines)
    assert {"WARNING"} == {level for level, _ in lines}
    for text in (*reasons, *(str(fields["reason"]) for _, fields in lines)):
        assert "`podpool controller install-crds`" in text
