"""From a request to grants, and back."""

import asyncio

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS, NetworkContainer
from podpool.core.scaling import Scaler, target
from podpool.ledger.messages import ReconcileRequest, SubnetGrowth
from tests.controller.harness import SUBNET, Place, Site, until
from tests.kube.loops import in_loop


def names(shown: NetworkContainer) -> list[str]:
    return [each.name for each in shown.ip_assignments]


class TestGrowing:
    @in_loop
    async def test_a_node_with_25_pods_has_48_addresses_its_primary_among_them(self, place: Place) -> None:
        async with place.running("n1") as site:
            wanted = target(demand=25, scaler=Scaler(16, 50), primaries=1, maximum=250)
            shown = await site.granted("n1", wanted, demand=25)
            assert 48 == len({shown.primary_ip, *(each.ip for each in shown.ip_assignments)})
            config = await site.config("n1")
            assert config
            assert (47, "Updated") == (config.status.assigned, config.status.status)

    @in_loop
    async def test_each_change_has_a_higher_version_and_keeps_what_was_given(self, place: Place) -> None:
        async with place.running("n1") as site:
            versions, given = [0], set[str]()
            for wanted in (15, 31, 47):
                shown = await site.granted("n1", wanted)
                versions.append(shown.version)
                assert given <= set(names(shown))
                given = set(names(shown))
            assert sorted(set(versions)) == versions

    @in_loop
    async def test_all_that_change_in_a_moment_are_one_call(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/16")
            site.start()
            nodes = [f"n{number}" for number in range(20)]
            await site.joined(*nodes)
            site.calls.sent.clear()
            site.road.sent.clear()
            await asyncio.gather(*(site.request(node, 15) for node in nodes))
            await asyncio.gather(*(site.holding(node, 15) for node in nodes))
            calls = [_items(each.body) for each in site.calls.sent if each.path == "/v1/reconcile"]
            asked = [name for call in calls for name in call]
            assert sorted(nodes) == sorted(asked), "once each, and not again when the status comes back"
            assert len(calls) < len(nodes)
            told = [each for each in site.road.sent if each.method == "PATCH" and each.path.endswith("/status")]
            assert len(nodes) == len(told)


def _items(body: bytes) -> list[str]:
    return [item.node for item in msgspec.json.decode(body, type=ReconcileRequest).items]


class TestLettingGo:
    @in_loop
    async def test_only_what_the_agent_named_is_taken(self, place: Place) -> None:
        async with place.running("n1") as site:
            before = await site.granted("n1", 31)
            await site.request("n1", 15)  # less, and nobody named
            await site.request("n1", 15, names=tuple(names(before)[:10]))
            shown = await site.holding("n1", 21)
            assert names(before)[10:] == names(shown)
            assert shown.version > before.version

    @in_loop
    async def test_names_and_a_larger_request_go_together(self, place: Place) -> None:
        """A release and a top-up in one: what is named goes, whatever comes."""
        async with place.running("n1") as site:
            before = await site.granted("n1", 15)
            await site.request("n1", 31, names=tuple(names(before)[:4]))
            shown = await site.holding("n1", 31)
            assert set(names(before)[4:]) < set(names(shown))
            assert not set(names(before)[:4]) & set(names(shown))

    @in_loop
    async def test_a_late_release_frees_nothing_new(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=1)
            site.start()
            await site.joined("n1", "n2")
            first = await site.granted("n1", 8)
            await site.request("n1", 0, names=tuple(names(first)))
            await site.holding("n1", 0)
            second = await site.granted("n2", 8)
            await site.request("n1", 1, names=tuple(names(first)))
            await site.holding("n1", 1)
            assert second == await site.container("n2")


class TestShort:
    @in_loop
    async def test_what_is_there_is_given_and_the_rest_when_it_is_free(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=1)
            site.start()
            await site.joined("n1", "n2")
            first = await site.granted("n1", 8)
            await site.request("n2", 8, demand=8, waiting=5)
            await site.holding("n2", 3)
            config = await site.config("n2")
            assert config
            assert ("Updating", "NCUpdateSubnetFullError") == (
                config.status.status,
                config.status.network_containers[0].status,
            )
            (told,) = await until(lambda: site.events("SubnetShort"), "it is told")
            assert ("Node", "n2", "Warning") == (told.regarding.kind, told.regarding.name, told.type)
            assert "subnet vnet.pods gave 3 of 8 addresses" in told.note
            await site.request("n1", 1, names=tuple(names(first)[1:]))
            await site.holding("n2", 8)
            config = await site.config("n2")
            assert config
            assert ("Updated", "NCUpdateSuccess") == (
                config.status.status,
                config.status.network_containers[0].status,
            )

    @in_loop
    async def test_a_subnet_without_even_a_primary_is_told_and_tried_again(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/30", reserved_for_primaries=0)
            site.start()
            await site.joined("n1", "n2")
            await site.join("n3")
            await until(lambda: site.events("AddressesRefused"), "it is told")

            async def error() -> bool:
                config = await site.config("n3")
                return bool(config and "Error" == config.status.status)

            await until(error, "its NNC says so")
            await site.ledger.grow_subnet(SUBNET, SubnetGrowth(cidr="10.0.0.0/24"))
            await site.served("n3")
            config = await site.config("n3")
            assert config
            assert "Updated" == config.status.status


class TestSteady:
    @in_loop
    async def test_nothing_is_written_but_the_lease_when_nothing_changes(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start(pod_history=True)
            await site.joined("n1", "n2")
            await site.granted("n1", 15, demand=2)
            await _quiet(site)
            site.road.sent.clear()
            await asyncio.sleep(3.0)  # fifteen polls, a dozen looks for who is gone, three for what is left
            assert [] == _writes(site)
            assert [] == [each for each in site.calls.sent if each.path == "/v1/pods"]


def _writes(site: Site) -> list[str]:
    return [
        f"{each.method} {each.path}" for each in site.road.sent if each.method != "GET" and "leases" not in each.path
    ]


async def _quiet(site: Site) -> None:
    async def quiet() -> bool:
        site.road.sent.clear()
        await asyncio.sleep(0.5)
        return not _writes(site)

    await until(quiet, "everything is told")


@pytest.mark.parametrize("foreign", [True, False])
@in_loop
async def test_a_new_scaler_is_written_into_the_nncs_of_foreign_agents_alone(place: Place, foreign: bool) -> None:
    async with place.running("n1") as site:
        if foreign:
            patch = {"spec": {"requestedIPCount": 15}}
            await site.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", patch, namespace=site.namespace)
            await site.holding("n1", 15)
        else:
            await site.granted("n1", 15)
        await site.override(batch=8)

        async def batch() -> bool:
            shown = await site.shown()
            return bool(shown and 8 == shown.status.scaler.batch)

        await until(batch, "the new batch is told")
        await _quiet(site)
        config = await site.config("n1")
        assert config
        assert (8 if foreign else 16) == config.status.scaler.batch_size
