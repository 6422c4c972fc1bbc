"""From a Node to its NNC: made whole, kept whole, and made again."""

import asyncio
import uuid

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.controller.settings import SUBNET_LABEL
from podpool.kube.errors import ApiNotFound
from tests.controller.harness import Place, Site, until
from tests.kube.loops import in_loop


async def gone(site: Site, name: str) -> None:
    """Delete a Node, and its NNC as the garbage collector does."""
    await site.client.delete(NODES, name)
    try:
        await site.client.delete(NODE_NETWORK_CONFIGS, name, namespace=site.namespace)
    except ApiNotFound:
        return


class TestJoining:
    @in_loop
    async def test_a_new_node_has_all_that_an_agent_needs_and_no_secondaries(self, place: Place) -> None:
        """Also what the CNS of Azure needs before it serves: reference, id, primary, address space, four values."""
        async with place.site() as site:
            await site.subnet(gateway="10.0.0.1")
            site.start()
            node = await site.join("n1")
            shown = await site.served("n1")
            config = await site.config("n1")
            assert config
            assert 0 == config.spec.requested
            assert [FINALIZER] == list(config.metadata.finalizers)
            assert {"managed": "true", "owner": "n1"} == dict(config.metadata.labels)
            (owner,) = config.metadata.owner_references
            assert (node.metadata.uid, True, True) == (owner.uid, owner.controller, owner.block_owner_deletion)
            assert str(uuid.UUID(shown.id)) == shown.id
            assert shown.primary_ip.startswith("10.0.0.")
            assert ("10.0.0.0/24", "10.0.0.1", "192.168.0.7") == (
                shown.subnet_address_space,
                shown.default_gateway,
                shown.node_ip,
            )
            assert ("dynamic", "vnet", "pods", "vnet") == (
                shown.assignment_mode,
                shown.type,
                shown.subnet_name,
                shown.vnet_id,
            )
            assert () == shown.ip_assignments
            scaler = config.status.scaler
            assert (16, 50, 150, 250) == (
                scaler.batch_size,
                scaler.request_threshold_percent,
                scaler.release_threshold_percent,
                scaler.max_ip_count,
            )
            assert (0, "Updated", "NCUpdateSuccess") == (config.status.assigned, config.status.status, shown.status)

    @in_loop
    async def test_it_costs_two_calls_for_each_node(self, place: Place) -> None:
        """One to make the NNC, one for its status; and few calls to the ledger for all of them."""
        async with place.site() as site:
            await site.subnet("10.0.0.0/16")
            site.start()
            await until(site.shown, "the subnet is told")
            names = [f"n{number}" for number in range(30)]
            site.road.sent.clear()
            await asyncio.gather(*map(site.join, names))
            await until(lambda: _all_served(site, len(names)), "everybody has a container")
            ours = [each for each in site.road.sent if "nodenetworkconfigs" in each.path]
            made = [each for each in ours if each.method == "POST"]
            told = [each for each in ours if each.method == "PATCH"]
            assert (30, 30) == (len(made), len(told))
            assert [] == [each for each in ours if each.method == "GET" and each.path.endswith(tuple(names))]
            assert [] == [
                each for each in site.road.sent if each.method == "GET" and each.path.startswith("/api/v1/nodes/")
            ]

    @in_loop
    async def test_a_subnet_without_secondaries_left_still_starts_a_new_node(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=2)
            site.start()
            await site.joined("n1")
            await site.request("n1", 100)
            await site.holding("n1", 14 - 1 - 2)  # less its primary, and what is kept
            await site.joined("n2")
            second = await site.container("n2")
            assert second
            assert () == second.ip_assignments

    @in_loop
    async def test_it_follows_the_exhaustion_state_which_is_told_first(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet("10.0.0.0/28", reserved_for_primaries=1)
            controller = site.start()
            await site.joined("n1")
            await site.granted("n1", 12)
            await until(lambda: _exhausted(site), "the subnet is exhausted")
            await site.stop(controller)
            await site.forget_subnet()
            await site.join("n2")
            site.road.sent.clear()
            site.start()
            await site.served("n2")
            writes = [each.path for each in site.road.sent if each.method == "PATCH" and each.path.endswith("/status")]
            kinds = [path.split("/")[-3] for path in writes]
            assert ["clustersubnets", "clustersubnetstates", "nodenetworkconfigs"] == list(dict.fromkeys(kinds))
            assert await _exhausted(site)


async def _all_served(site: Site, count: int) -> bool:
    found = (await site.client.list(NODE_NETWORK_CONFIGS, namespace=site.namespace)).items
    return count == sum(bool(config.status.network_containers) for config in found)


async def _exhausted(site: Site) -> bool:
    shown = await site.shown()
    return bool(shown and shown.status.exhausted)


class TestSubnets:
    @in_loop
    async def test_a_label_says_which_one_else_it_is_the_default(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            await site.subnet("10.1.0.0/24", network="other", name="special")
            site.start()
            await site.join("n1")
            await site.join("n2", podpool_io__subnet="other.special")
            places = [await site.served(each) for each in ("n1", "n2")]
            assert [("vnet", "pods"), ("other", "special")] == [(each.vnet_id, each.subnet_name) for each in places]
            await until(lambda: site.shown("special"), "the other subnet is told")

    @in_loop
    async def test_a_label_that_says_nothing_is_told_and_the_default_is_taken(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start()
            await site.join("n1", podpool_io__subnet="nonsense")
            shown = await site.served("n1")
            assert "pods" == shown.subnet_name
            (told,) = await until(lambda: site.events("SubnetLabel"), "it is told")
            assert SUBNET_LABEL in told.note
            assert "n1" == told.regarding.name

    @in_loop
    async def test_a_subnet_that_the_ledger_does_not_have_is_told_until_it_has(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            site.start()
            await site.join("n1", podpool_io__subnet="vnet.later")
            await site.joined("n2")
            (told,) = await until(lambda: site.events("AddressesRefused"), "it is told")
            assert "there is no subnet vnet.later" in told.note
            await site.subnet("10.1.0.0/24", name="later")
            await site.served("n1")

    @in_loop
    async def test_two_networks_with_one_subnet_name_are_refused(self, place: Place) -> None:
        async with place.site() as site:
            await site.subnet()
            await site.subnet("10.1.0.0/24", network="other")
            site.start()
            await site.joined("n1")
            await site.join("n2", podpool_io__subnet="other.pods")
            (told,) = await until(lambda: site.events("AddressesRefused"), "it is told")
            assert "subnet other.pods has the name of subnet vnet.pods" in told.note
            assert await site.config("n2") is None


class TestHealing:
    @in_loop
    async def test_a_status_that_was_removed_or_changed_is_written_again(self, place: Place) -> None:
        async with place.running("n1") as site:
            before = await site.granted("n1", 15)
            config = await site.config("n1")
            assert config
            for broken in (
                {"networkContainers": None, "assignedIPCount": None, "scaler": None},
                {"networkContainers": [{"id": before.id, "version": before.version, "ipAssignments": []}]},
            ):
                await site.client.merge_patch(
                    NODE_NETWORK_CONFIGS, "n1", {"status": broken}, namespace=site.namespace, subresource="status"
                )
                assert before == await site.holding("n1", 15)

    @in_loop
    async def test_a_finalizer_that_was_removed_is_put_back(self, place: Place) -> None:
        async with place.running("n1") as site:
            foreign = {"metadata": {"finalizers": ["example.com/other"]}}
            await site.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", foreign, namespace=site.namespace)

            async def back() -> bool:
                config = await site.config("n1")
                return bool(config and {"example.com/other", FINALIZER} == set(config.metadata.finalizers))

            await until(back, "both are there")
            assert await until(lambda: site.events("Mended", site.namespace), "it is told")
            await site.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", {"metadata": {"finalizers": None}}, namespace=site.namespace)
            await until(lambda: _finalized(site), "ours is there")

    @in_loop
    async def test_a_deleted_nnc_is_made_again_with_what_it_had(self, place: Place) -> None:
        async with place.running("n1") as site:
            before = await site.granted("n1", 15, demand=3)
            first = await site.config("n1")
            assert first
            await site.client.delete(NODE_NETWORK_CONFIGS, "n1", namespace=site.namespace)

            async def again() -> bool:
                config = await site.config("n1")
                return bool(config and config.metadata.uid != first.metadata.uid and config.status.network_containers)

            await until(again, "there is another")
            config = await site.config("n1")
            assert config
            assert (before, 15) == (config.status.network_containers[0], config.spec.requested)
            assert config.metadata.annotations == first.metadata.annotations

    @in_loop
    async def test_an_nnc_of_nobody_is_made_anew_for_its_node(self, place: Place) -> None:
        async with place.running("n1") as site:
            before = await site.granted("n1", 15)
            orphaned = {"metadata": {"ownerReferences": None}}
            await site.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", orphaned, namespace=site.namespace)
            assert before == await site.belongs("n1")

    @in_loop
    async def test_the_node_s_own_address_is_followed(self, place: Place) -> None:
        async with place.running("n1") as site:
            moved = {"status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.9"}]}}
            await site.client.merge_patch(NODES, "n1", moved, subresource="status")

            async def told() -> bool:
                shown = await site.container("n1")
                return bool(shown and "192.168.0.9" == shown.node_ip)

            await until(told, "the new address is told")


async def _finalized(site: Site) -> bool:
    config = await site.config("n1")
    return bool(config and [FINALIZER] == list(config.metadata.finalizers))


class TestComingBack:
    @in_loop
    async def test_the_machine_that_it_was_keeps_its_container(self, place: Place) -> None:
        """Deleted and registered again, its Pods still running."""
        async with place.running("n1") as site:
            before = await site.granted("n1", 15, demand=9)
            await gone(site, "n1")
            node = await site.join("n1")
            assert before == await site.belongs("n1", node.metadata.uid)

    @in_loop
    async def test_another_machine_of_the_name_inherits_nothing(self, place: Place) -> None:
        async with place.running("n1") as site:
            before = await site.granted("n1", 15, demand=9)
            await gone(site, "n1")
            await site.join("n1", boot="another")

            async def other() -> bool:
                shown = await site.container("n1")
                return bool(shown and shown.id != before.id)

            await until(other, "it has a container of its own")
            shown = await site.container("n1")
            assert shown
            assert () == shown.ip_assignments

            async def closed() -> bool:
                held = (await site.details()).holders
                return 1 == sum(each.containers for each in held)

            await until(closed, "the old container is given up")
