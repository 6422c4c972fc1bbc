"""What is published about a subnet, and how its scarcity is handled."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, ClusterSubnet, ClusterSubnetState, SubnetScaler
from podpool.controller.scaler_policy import published_subnet, rounded_nodes
from podpool.controller.settings import SUBNET_LABEL, ControllerSettings, Scarcity
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.kube.errors import ApiInvalid
from podpool.ledger.messages import SubnetState
from tests.controller.controller_env import FAST_SETTINGS, SUBNET, ControllerEnv, ControllerEnvs, until
from tests.kube.event_loops import run_in_loop

NO_OVERRIDE = SubnetScaler()


def state(reserved: int, *, projected: int = 0, exhausted: bool = False, batch: int = 16) -> SubnetState:
    return SubnetState(
        subnet=SUBNET,
        revision=1,
        timestamp="",
        cidr="10.0.0.0/24",
        capacity=100,
        reserved=reserved,
        projected=projected,
        cooldown=30.0,
        scaler=Scaler(batch, 50),
        exhausted=exhausted,
    )


def settings(scarcity: Scarcity, **common: Any) -> ControllerSettings:  # noqa: ANN401  as Settings has them
    return ControllerSettings(subnet=SUBNET, scarcity=scarcity, common=Settings(**common))


class TestExhaustion:
    """T is 0.9 and t 0.8 of 100 addresses."""

    @pytest.mark.parametrize(
        ("before", "reserved", "projected", "exhausted"),
        [
            pytest.param(False, 90, 90, False, id="not above T"),
            pytest.param(False, 91, 91, True, id="above T"),
            pytest.param(True, 85, 85, True, id="between, exhausted before"),
            pytest.param(False, 85, 85, False, id="between, not exhausted before"),
            pytest.param(True, 80, 80, True, id="not below t"),
            pytest.param(True, 79, 90, False, id="below t, and the projection fits"),
            pytest.param(True, 79, 91, True, id="below t, but the projection does not fit"),
        ],
    )
    def test_it_is_set_above_the_upper_threshold_and_cleared_below_the_lower(
        self, before: bool, reserved: int, projected: int, exhausted: bool
    ) -> None:
        published = published_subnet(
            state(reserved, projected=projected), NO_OVERRIDE, exhausted_before=before, settings=settings("exhaustion")
        )
        assert exhausted == published.exhausted

    def test_nodes_scale_by_single_addresses_while_exhausted(self) -> None:
        published = published_subnet(state(95), NO_OVERRIDE, exhausted_before=False, settings=settings("exhaustion"))
        assert (Scaler(1, 50), Scaler(16, 50)) == (published.scaler, published.pinned)

    def test_the_thresholds_are_the_controllers(self) -> None:
        published = published_subnet(
            state(51),
            NO_OVERRIDE,
            exhausted_before=False,
            settings=settings("exhaustion", upper_threshold=50, lower_threshold=40),
        )
        assert published.exhausted


class TestCooldown:
    def test_graded_publishes_the_level_of_the_ledger(self) -> None:
        published = published_subnet(state(50), NO_OVERRIDE, exhausted_before=False, settings=settings("graded"))
        assert 30.0 == published.cooldown

    @pytest.mark.parametrize(("scarcity", "level"), [("off", 130.0), ("exhaustion", 5.0)])
    def test_the_others_have_the_controllers_levels(self, scarcity: Scarcity, level: float) -> None:
        published = published_subnet(state(95), NO_OVERRIDE, exhausted_before=False, settings=settings(scarcity))
        assert level == published.cooldown


def test_the_number_of_nodes_changes_when_it_doubles_or_is_much_less() -> None:
    published, written = 0, []
    for count in (*range(5001), *range(5000, 0, -1)):
        before, published = published, rounded_nodes(count, before=published)
        assert count <= published
        written += [published] if published != before else []
    assert [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192] == written[:14]
    assert [2048, 512, 128, 32, 8, 2] == written[14:]


def test_graded_uses_the_decision_of_the_ledger() -> None:
    published = published_subnet(
        state(50, exhausted=True, batch=4), NO_OVERRIDE, exhausted_before=False, settings=settings("graded")
    )
    assert (Scaler(4, 50), True, None) == (published.scaler, published.exhausted, published.pinned)


def test_off_is_never_exhausted() -> None:
    published = published_subnet(
        state(100, exhausted=True, batch=1), NO_OVERRIDE, exhausted_before=True, settings=settings("off")
    )
    assert (Scaler(16, 50), False) == (published.scaler, published.exhausted)


@pytest.mark.parametrize("scarcity", ["off", "exhaustion", "graded"])
class TestOverrides:
    def test_spec_scaler_overrides_all_others(self, scarcity: Scarcity) -> None:
        override = SubnetScaler(batch=8, buffer=Decimal("0.25"))
        published = published_subnet(
            state(95, exhausted=True), override, exhausted_before=False, settings=settings(scarcity)
        )
        assert (Scaler(8, 25), Scaler(8, 25), "") == (published.scaler, published.pinned, published.scaler_error)

    def test_an_override_may_have_only_one_field(self, scarcity: Scarcity) -> None:
        published = published_subnet(
            state(10), SubnetScaler(batch=8), exhausted_before=False, settings=settings(scarcity)
        )
        assert Scaler(8, 50) == published.scaler

    def test_an_invalid_override_is_rejected(self, scarcity: Scarcity) -> None:
        published = published_subnet(
            state(10), SubnetScaler(batch=300), exhausted_before=False, settings=settings(scarcity)
        )
        assert Scaler(16, 50) == published.scaler
        assert "batch" in published.scaler_error
        assert "must be from 1 to 256" in published.scaler_error


async def subnet_objects(env: ControllerEnv) -> tuple[ClusterSubnet, ClusterSubnetState]:
    shown, older = await env.cluster_subnet(), await env.cluster_subnet_state()
    assert shown
    assert older
    return shown, older


async def becomes(env: ControllerEnv, *, exhausted: bool, batch: int) -> None:
    async def is_so() -> bool:
        shown, older = await env.cluster_subnet(), await env.cluster_subnet_state()
        both = shown and older and (shown.status.exhausted, older.status.exhausted) == (exhausted, exhausted)
        return bool(both and shown and batch == shown.status.scaler.batch)

    await until(is_so, f"exhausted is {exhausted} and the batch {batch}")


class TestPublishing:
    @run_in_loop
    async def test_exhaustion_with_thresholds(self, envs: ControllerEnvs) -> None:
        """Of 124 addresses: exhausted from 112 on, cleared at 99 (98 and the primary), and unchanged in between."""
        async with envs.create() as env:
            await env.create_subnet(
                "10.0.0.0/25", gateway="10.0.0.1", reserved_for_primaries=0, excluded_ranges=("10.0.0.2",)
            )
            env.start(scarcity="exhaustion")
            await env.join("n1")
            await becomes(env, exhausted=False, batch=16)
            await env.request_and_wait("n1", 110, demand=0)
            before = await subnet_objects(env)
            assert not before[0].status.exhausted
            held = await env.request_and_wait("n1", 111, demand=0)
            await becomes(env, exhausted=True, batch=1)
            exhausted = await subnet_objects(env)
            names = tuple(each.name for each in held.ip_assignments)
            await env.request("n1", 99, released=names[99:])
            await env.wait_assigned("n1", 99)
            env.ledger_transport.sent.clear()
            await until(lambda: _polled(env), "the ledger was polled again")
            assert exhausted == await subnet_objects(env)
            await env.request("n1", 98, released=names[98:])
            await becomes(env, exhausted=False, batch=16)

    @run_in_loop
    async def test_exhaustion_is_not_cleared_before_the_projection_fits(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/26", gateway="10.0.0.1", reserved_for_primaries=0)
            env.start(scarcity="exhaustion")
            nodes = [f"n{number}" for number in range(4)]
            await env.join(*nodes)
            for node in nodes:  # with batch 16 they will hold 64 of 61
                await env.request(node, 14, demand=5)
            await becomes(env, exhausted=True, batch=1)
            for node in nodes:
                shown = await env.nc(node)
                assert shown
                await env.request(node, 6, demand=5, released=tuple(each.name for each in shown.ip_assignments[6:]))
                await env.wait_assigned(node, 6)
            env.ledger_transport.sent.clear()
            await until(lambda: _polled(env), "the ledger was polled again")
            exhausted = await subnet_objects(env)
            assert exhausted[0].status.exhausted

    @run_in_loop
    async def test_the_batch_of_the_ledger_is_published(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            levels: dict[str, Any] = {"cooldown_roomy": 3.0, "cooldown_filling": 2.0, "cooldown_exhausted": 1.0}
            await env.create_subnet("10.0.0.0/25", reserved_for_primaries=0, **levels)
            env.start()
            nodes = ("n1", "n2", "n3", "n4")
            await env.join(*nodes)
            await becomes(env, exhausted=False, batch=16)
            shown, _ = await subnet_objects(env)
            assert 3.0 == shown.status.scaler.cooldown_seconds
            assert 1.0 == shown.status.scaler.shortest_cooldown_seconds
            for node in nodes:  # 126 addresses: four nodes of 48 with batch 16, of 32 with 8, of 28 with 4
                await env.request(node, 15, demand=25)
            await becomes(env, exhausted=False, batch=4)
            shown, _ = await subnet_objects(env)
            assert (2.0, 4) == (shown.status.scaler.cooldown_seconds, shown.status.nodes)

    @run_in_loop
    async def test_spec_scaler_is_published_until_it_is_removed(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            await becomes(env, exhausted=False, batch=16)
            await env.override(batch=8, buffer=0.25)
            await becomes(env, exhausted=False, batch=8)
            shown, _ = await subnet_objects(env)
            assert Decimal("0.25") == shown.status.scaler.buffer
            await env.request_and_wait("n1", 7)
            await env.override()
            await becomes(env, exhausted=False, batch=16)

    @run_in_loop
    async def test_an_invalid_spec_scaler_is_rejected(self, envs: ControllerEnvs) -> None:
        """By the API server if its CRD has the rule, else by the controller, in the status and in an Event."""
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await becomes(env, exhausted=False, batch=16)
            try:
                await env.override(buffer=0.125)
            except ApiInvalid as error:
                assert "at most two decimals" in str(error)
                return
            (event,) = await until(lambda: env.events("InvalidScaler", env.namespace), "the Event is recorded")
            assert ("ClusterSubnet", SUBNET.name) == (event.regarding.kind, event.regarding.name)
            shown, _ = await subnet_objects(env)
            assert shown.status.message == event.note
            assert Decimal("0.5") == shown.status.scaler.buffer
            await env.override()

            async def cleared() -> bool:
                shown, _ = await subnet_objects(env)
                return not shown.status.message

            await until(cleared, "the message is cleared")

    @run_in_loop
    async def test_off_always_publishes_the_scaler_of_the_controller(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=0)
            env.start(scarcity="off", common=msgspec.structs.replace(FAST_SETTINGS, batch=4))
            await env.join("n1")
            await becomes(env, exhausted=False, batch=4)
            before = await subnet_objects(env)
            await env.request_and_wait("n1", 13)
            env.ledger_transport.sent.clear()
            await until(lambda: _polled(env), "the ledger was polled again")
            assert before == await subnet_objects(env)

    @run_in_loop
    async def test_subnets_are_independent(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=0)
            await env.create_subnet("10.1.0.0/24", name="wide")
            await env.create_subnet("10.2.0.0/24", name="of-others")
            env.start()
            await env.join("n1")
            await env.create_node("n2", **{SUBNET_LABEL: "vnet.wide"})
            await env.wait_nc("n2")
            wide = await env.cluster_subnet("wide")
            await env.request_and_wait("n1", 13, demand=13)
            await until(lambda: _exhausted(env), "the first is exhausted")
            assert wide == await env.cluster_subnet("wide")
            assert await env.cluster_subnet("of-others") is None

    @run_in_loop
    async def test_deleted_or_edited_objects_are_written_again(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await becomes(env, exhausted=False, batch=16)
            await env.delete_subnet_objects()
            await becomes(env, exhausted=False, batch=16)
            edited = {"status": {"exhausted": True, "timestamp": "never"}}
            await env.client.merge_patch(
                CLUSTER_SUBNETS, SUBNET.name, edited, namespace=env.namespace, subresource="status"
            )
            await env.client.merge_patch(
                CLUSTER_SUBNET_STATES, SUBNET.name, edited, namespace=env.namespace, subresource="status"
            )
            await becomes(env, exhausted=False, batch=16)


async def _polled(env: ControllerEnv) -> bool:
    return 2 <= sum(each.path.endswith("/subnets/pods") for each in env.ledger_transport.sent)


async def _exhausted(env: ControllerEnv) -> bool:
    shown = await env.cluster_subnet()
    return bool(shown and shown.status.exhausted)
