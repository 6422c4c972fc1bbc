"""What agents are told of a subnet that runs short."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, ClusterSubnet, ClusterSubnetState, SubnetScaler
from podpool.controller.scaler_policy import offer
from podpool.controller.settings import ControllerSettings, Scarcity
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.kube.errors import ApiInvalid
from podpool.ledger.messages import SubnetState
from tests.controller.harness import BRISK, SUBNET, Place, Site, until
from tests.kube.loops import in_loop

NOTHING = SubnetScaler()


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
            pytest.param(True, 85, 85, True, id="between, from above"),
            pytest.param(False, 85, 85, False, id="between, from below"),
            pytest.param(True, 80, 80, True, id="not below t"),
            pytest.param(True, 79, 90, False, id="below t, and what follows fits"),
            pytest.param(True, 79, 91, True, id="below t, but what follows does not fit"),
        ],
    )
    def test_it_rises_above_the_upper_threshold_and_falls_below_the_lower(
        self, before: bool, reserved: int, projected: int, exhausted: bool
    ) -> None:
        made = offer(
            state(reserved, projected=projected), NOTHING, exhausted_before=before, settings=settings("exhaustion")
        )
        assert exhausted == made.exhausted

    def test_nodes_scale_by_single_addresses_then(self) -> None:
        made = offer(state(95), NOTHING, exhausted_before=False, settings=settings("exhaustion"))
        assert (Scaler(1, 50), Scaler(16, 50)) == (made.scaler, made.pinned)

    def test_the_thresholds_are_the_controller_s(self) -> None:
        made = offer(
            state(51),
            NOTHING,
            exhausted_before=False,
            settings=settings("exhaustion", upper_threshold=50, lower_threshold=40),
        )
        assert made.exhausted


def test_graded_is_what_the_ledger_decides() -> None:
    made = offer(state(50, exhausted=True, batch=4), NOTHING, exhausted_before=False, settings=settings("graded"))
    assert (Scaler(4, 50), True, None) == (made.scaler, made.exhausted, made.pinned)


def test_off_is_never_exhausted() -> None:
    made = offer(state(100, exhausted=True, batch=1), NOTHING, exhausted_before=True, settings=settings("off"))
    assert (Scaler(16, 50), False) == (made.scaler, made.exhausted)


@pytest.mark.parametrize("scarcity", ["off", "exhaustion", "graded"])
class TestOverrides:
    def test_a_person_s_scaler_comes_before_all_others(self, scarcity: Scarcity) -> None:
        override = SubnetScaler(batch=8, buffer=Decimal("0.25"))
        made = offer(state(95, exhausted=True), override, exhausted_before=False, settings=settings(scarcity))
        assert (Scaler(8, 25), Scaler(8, 25), "") == (made.scaler, made.pinned, made.refused)

    def test_half_of_one_leaves_the_other_half(self, scarcity: Scarcity) -> None:
        made = offer(state(10), SubnetScaler(batch=8), exhausted_before=False, settings=settings(scarcity))
        assert Scaler(8, 50) == made.scaler

    def test_one_against_the_rules_is_refused_with_the_rule(self, scarcity: Scarcity) -> None:
        made = offer(state(10), SubnetScaler(batch=300), exhausted_before=False, settings=settings(scarcity))
        assert Scaler(16, 50) == made.scaler
        assert "batch" in made.refused
        assert "must be from 1 to 256" in made.refused


async def told(site: Site) -> tuple[ClusterSubnet, ClusterSubnetState]:
    shown, older = await site.shown(), await site.state()
    assert shown
    assert older
    return shown, older


async def becomes(site: Site, *, exhausted: bool, batch: int) -> None:
    async def is_so() -> bool:
        shown, older = await site.shown(), await site.state()
        both = shown and older and (shown.status.exhausted, older.status.exhausted) == (exhausted, exhausted)
        return bool(both and shown and batch == shown.status.scaler.batch)

    await until(is_so, f"exhausted is {exhausted} and the batch {batch}")


class TestTold:
    @in_loop
    async def test_exhaustion_as_the_first_phase_has_it(self, place: Place) -> None:
        """Of 124 addresses: exhausted from 112 on, all clear at 99 (98 and the primary), and nothing in between."""
        async with place.site() as site:
            await site.subnet("10.0.0.0/25", gateway="10.0.0.1", reserved_for_primaries=0, keep_back=("10.0.0.2",))
            site.start(scarcity="exhaustion")
            await site.joined("n1")
            await becomes(site, exhausted=False, batch=16)
            await site.granted("n1", 110, demand=0)
            before = await told(site)
            assert not before[0].status.exhausted
            held = await site.granted("n1", 111, demand=0)
            await becomes(site, exhausted=True, batch=1)
            exhausted = await told(site)
            names = tuple(each.name for each in held.ip_assignments)
            await site.request("n1", 99, names=names[99:])
            await site.holding("n1", 99)
            site.calls.sent.clear()
            await until(lambda: _polled(site), "the ledger was asked again")
            assert exhausted == await told(site)
            await site.request("n1", 98, names=names[98:])
            await becomes(site, exhausted=False, batch=16)

    @in_loop
    async def test_the_all_clear_waits_until_what_follows_it_fits(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/26", gateway="10.0.0.1", reserved_for_primaries=0)
            site.start(scarcity="exhaustion")
            nodes = [f"n{number}" for number in range(4)]
            await site.joined(*nodes)
            for node in nodes:  # with batch 16 they will hold 64 of 61
                await site.request(node, 14, demand=5)
            await becomes(site, exhausted=True, batch=1)
            for node in nodes:
                shown = await site.container(node)
                assert shown
                await site.request(node, 6, demand=5, names=tuple(each.name for each in shown.ip_assignments[6:]))
                await site.holding(node, 6)
            site.calls.sent.clear()
            await until(lambda: _polled(site), "the ledger was asked again")
            exhausted = await told(site)
            assert exhausted[0].status.exhausted

    @in_loop
    async def test_the_ledger_s_batch_is_followed(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/25", reserved_for_primaries=0)
            site.start()
            nodes = ("n1", "n2", "n3", "n4")
            await site.joined(*nodes)
            await becomes(site, exhausted=False, batch=16)
            for node in nodes:  # 126 addresses: four nodes of 48 with batch 16, of 32 with 8, of 28 with 4
                await site.request(node, 15, demand=25)
            await becomes(site, exhausted=False, batch=4)

    @in_loop
    async def test_a_person_s_scaler_wins_and_is_seen_and_ends(self, place: Place) -> None:
        async with place.running("n1") as site:
            await becomes(site, exhausted=False, batch=16)
            await site.override(batch=8, buffer=0.25)
            await becomes(site, exhausted=False, batch=8)
            shown, _ = await told(site)
            assert Decimal("0.25") == shown.status.scaler.buffer
            await site.granted("n1", 7)
            await site.override()
            await becomes(site, exhausted=False, batch=16)

    @in_loop
    async def test_a_scaler_against_the_rules_is_refused(self, place: Place) -> None:
        """By the API server where it knows the rule, else by the controller, in the status and in an Event."""
        async with place.site() as site:
            await site.subnet()
            site.start()
            await becomes(site, exhausted=False, batch=16)
            try:
                await site.override(buffer=0.125)
            except ApiInvalid as refused:
                assert "at most two decimals" in str(refused)
                return
            (event,) = await until(lambda: site.events("ScalerRefused", site.namespace), "it is told")
            assert ("ClusterSubnet", SUBNET.name) == (event.regarding.kind, event.regarding.name)
            shown, _ = await told(site)
            assert shown.status.message == event.note
            assert Decimal("0.5") == shown.status.scaler.buffer
            await site.override()

            async def forgotten() -> bool:
                shown, _ = await told(site)
                return not shown.status.message

            await until(forgotten, "it is no longer told")

    @in_loop
    async def test_off_tells_the_controller_s_scaler_whatever_happens(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=0)
            site.start(scarcity="off", common=msgspec.structs.replace(BRISK, batch=4))
            await site.joined("n1")
            await becomes(site, exhausted=False, batch=4)
            before = await told(site)
            await site.granted("n1", 13)
            site.calls.sent.clear()
            await until(lambda: _polled(site), "the ledger was asked again")
            assert before == await told(site)

    @in_loop
    async def test_subnets_do_not_disturb_each_other(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=0)
            await site.subnet("10.1.0.0/24", name="wide")
            await site.subnet("10.2.0.0/24", name="of-others")
            site.start()
            await site.joined("n1")
            await site.join("n2", podpool_io__subnet="vnet.wide")
            await site.served("n2")
            wide = await site.shown("wide")
            await site.granted("n1", 13, demand=13)
            await until(lambda: _exhausted(site), "the first is exhausted")
            assert wide == await site.shown("wide")
            assert await site.shown("of-others") is None

    @in_loop
    async def test_what_somebody_deletes_or_edits_is_told_again(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start()
            await becomes(site, exhausted=False, batch=16)
            await site.forget_subnet()
            await becomes(site, exhausted=False, batch=16)
            lie = {"status": {"exhausted": True, "timestamp": "never"}}
            await site.client.merge_patch(CLUSTER_SUBNETS, SUBNET.name, lie, namespace=site.namespace, subresource="status")
            await site.client.merge_patch(CLUSTER_SUBNET_STATES, SUBNET.name, lie, namespace=site.namespace, subresource="status")
            await becomes(site, exhausted=False, batch=16)


async def _polled(site: Site) -> bool:
    return 2 <= sum(each.path.endswith("/subnets/pods") for each in site.calls.sent)


async def _exhausted(site: Site) -> bool:
    shown = await site.shown()
    return bool(shown and shown.status.exhausted)
