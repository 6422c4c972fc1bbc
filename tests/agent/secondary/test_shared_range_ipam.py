"""Ranges that all nodes share: what an ADD, a DEL, a CHECK and a GC do to the cluster's objects."""

import asyncio
from collections.abc import Awaitable

import pytest

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION, ReservationSpec
from podpool.cni.protocol import CniError, ErrorCode
from podpool.core.addresses import parse_address
from tests.agent.secondary.shared_range_env import (
    REQUEST_TIMEOUT,
    SYSTEM,
    SharedRangeCluster,
    WhereaboutsPlugin,
    network,
    pod_interface,
    run_in,
)

ONE, DUAL = network("10.0.0.0/24"), network("10.0.0.0/24", "fd00::/64")
WIDE, NARROW = network("10.0.0.0/24"), network("10.0.0.0/28")


in_cluster = run_in(SharedRangeCluster)


async def holders(cluster: SharedRangeCluster) -> dict[str, str]:
    """Which sandbox has which address."""
    return {str(address): owner.container_id for (_, address), owner in (await cluster.entries()).items()}


async def failed(request: Awaitable[object]) -> CniError:
    with pytest.raises(CniError) as error:
        await request
    return error.value


class TestAdd:
    @in_cluster
    async def test_the_lowest_address_of_each_range_is_stored_before_it_is_told(
        self, cluster: SharedRangeCluster
    ) -> None:
        assert ("10.0.0.1", "fd00::1") == await cluster.node("a").add(pod_interface("p"), DUAL)
        assert {"10.0.0.1": "c-p", "fd00::1": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_the_same_sandbox_gets_the_same_again(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        assert await node.add(pod_interface("p"), DUAL) == await node.add(pod_interface("p"), DUAL)
        assert 2 == len(await holders(cluster))

    @in_cluster
    async def test_a_new_sandbox_of_the_pod_takes_the_entry_over_and_the_old_ones_del_finds_nothing(
        self, cluster: SharedRangeCluster
    ) -> None:
        """On whichever node: a StatefulSet's Pod comes back under its name."""
        one, other = cluster.node("a"), cluster.node("b")
        given = await one.add(pod_interface("web-0", container_id="c1"), ONE)
        assert given == await other.add(pod_interface("web-0", container_id="c2"), ONE)
        await one.delete(pod_interface("web-0", container_id="c1"), ONE)
        assert {given[0]: "c2"} == await holders(cluster)
        assert [ReservationSpec(podref="default/web-0", ifname="net1", containerid="c2")] == [
            *(await cluster.reservations()).values()
        ]

    @in_cluster
    async def test_many_at_once_share_patches(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await asyncio.gather(*(node.add(pod_interface(f"p{each}"), ONE) for each in range(16)))
        assert 16 == len(set(given))
        assert node.transport.calls("PATCH") <= 3

    @in_cluster
    async def test_nodes_that_write_at_once_never_take_one_address_twice(self, cluster: SharedRangeCluster) -> None:
        nodes = [cluster.node(f"n{each}") for each in range(8)]
        given = await asyncio.gather(
            *(node.add(pod_interface(f"{node.name}-{n}"), ONE) for node in nodes for n in range(4))
        )
        assert 32 == len(set(given))
        assert {each for (each,) in given} == set(await holders(cluster))

    @in_cluster
    async def test_a_full_range_is_told_with_code_11_and_leaves_nothing_of_the_other_ranges(
        self, cluster: SharedRangeCluster
    ) -> None:
        node, tight = cluster.node("a"), network("10.0.0.0/24", "10.9.0.0/30")
        for each in "pq":
            await node.add(pod_interface(each), tight)
        error = await failed(node.add(pod_interface("r"), tight))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "no address of 10.9.0.1-10.9.0.2 of 10.9.0.0/30 is free: 2 are allocated" in error.message
        await asyncio.sleep(1)
        assert "c-r" not in (await holders(cluster)).values()

    @pytest.mark.parametrize("status", [422, 500])
    def test_what_is_not_stored_is_not_told_as_success(self, status: int) -> None:
        """Whereabouts answers with the address although its patch failed, when only the reservation went well."""

        @in_cluster
        async def story(cluster: SharedRangeCluster) -> None:
            await cluster.fill("10.0.0.0/24")
            node = cluster.node("a")
            node.transport.refuse = lambda each: status if each.method == "PATCH" and "/ippools/" in each.path else None
            error = await failed(node.add(pod_interface("p"), ONE))
            assert ErrorCode.TRY_AGAIN_LATER == error.code
            assert f"not now ({status}" in error.message
            assert node.transport.calls("PATCH", "ippools") > 1
            assert {} == await cluster.entries()
            assert {} == await cluster.reservations()

        story()

    @in_cluster
    async def test_while_the_api_server_is_away_an_add_says_so_within_its_deadline(
        self, cluster: SharedRangeCluster
    ) -> None:
        node = cluster.node("a")
        node.transport.cut = True
        begun = asyncio.get_running_loop().time()
        error = await failed(node.add(pod_interface("p"), ONE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "could not be written in time" in error.message
        assert asyncio.get_running_loop().time() - begun < REQUEST_TIMEOUT + 1

    @in_cluster
    async def test_a_name_that_no_object_can_have_is_refused_with_the_key_to_set(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Whereabouts fails at each create, with the API server's words."""
        error = await failed(cluster.node("a").add(pod_interface("p"), network("::/126")))
        assert ErrorCode.INVALID_CONFIG == error.code
        assert "set network_name" in error.message

    @in_cluster
    async def test_far_addresses_of_ipv6_are_kept(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts cannot read keys of 2^63 and more, and gives such an address to the next Pod too."""
        far = network("fd00::8000:0:0:1-fd00::8000:0:0:9/64")
        node = cluster.node("a")
        assert ("fd00::8000:0:0:1",) == await node.add(pod_interface("p"), far)
        assert ("fd00::8000:0:0:2",) == await node.add(pod_interface("q"), far)
        assert {"fd00::8000:0:0:1": "c-p", "fd00::8000:0:0:2": "c-q"} == await holders(cluster)

    @in_cluster
    async def test_an_address_that_was_given_back_here_is_given_last(self, cluster: SharedRangeCluster) -> None:
        """To its own Pod at once; other nodes know nothing of it."""
        node, other = cluster.node("a"), cluster.node("b")
        await node.add(pod_interface("p"), ONE)
        await node.delete(pod_interface("p"), ONE)
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), ONE)
        assert ("10.0.0.1",) == await node.add(pod_interface("p", container_id="again"), ONE)
        await node.delete(pod_interface("p", container_id="again"), ONE)
        assert ("10.0.0.1",) == await other.add(pod_interface("r"), ONE)

    @in_cluster
    async def test_a_del_ends_the_waiting_of_its_sandbox(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        node.transport.cut = True
        adding = asyncio.get_running_loop().create_task(node.add(pod_interface("p"), ONE))
        await asyncio.sleep(1)
        await node.delete(pod_interface("p"), ONE)
        assert "the sandbox was deleted" in (await failed(adding)).message


class TestCutIntoSlices:
    """The controller has marked a pool: nodes have slices of its range."""

    @in_cluster
    async def test_nothing_new_is_given_and_the_error_names_the_cure(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), WIDE)
        await shut(cluster, "10.0.0.0-24")
        error = await failed(node.add(pod_interface("q"), WIDE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert (
            "10.0.0.0/24 is divided into node slices, according to IPPool 10.0.0.0-24: set node_slice_size"
            in error.message
        )
        assert {given[0]: "c-p"} == await holders(cluster)

    @in_cluster
    async def test_nor_through_a_range_that_overlaps_also_where_its_pool_is_not_there(
        self, cluster: SharedRangeCluster
    ) -> None:
        await cluster.fill("10.0.0.0/24")
        await shut(cluster, "10.0.0.0-24")
        error = await failed(cluster.node("a").add(pod_interface("p"), NARROW))
        assert "10.0.0.0/28 is divided into node slices, according to IPPool 10.0.0.0-24" in error.message
        assert ["10.0.0.0-24"] == [each.metadata.name for each in (await cluster.kube.list(IP_POOLS)).items]

    @in_cluster
    async def test_who_has_an_entry_gets_it_again_and_gives_it_back(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), WIDE)
        await shut(cluster, "10.0.0.0-24")
        assert given == await node.add(pod_interface("p", container_id="next"), WIDE)
        await node.delete(pod_interface("p", container_id="next"), WIDE)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_who_had_looked_before_the_mark_stores_nothing(self, cluster: SharedRangeCluster) -> None:
        """Its patch fits only the version that it looked at."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24")
        adding = asyncio.get_running_loop().create_task(
            node.add(pod_interface("p"), network("10.0.0.0/24", sleep_for_race=1))
        )
        await asyncio.sleep(0.5)
        await shut(cluster, "10.0.0.0-24")
        assert "is divided into node slices" in (await failed(adding)).message
        assert {} == await holders(cluster)


async def shut(cluster: SharedRangeCluster, name: str) -> None:
    """Mark a pool as the controller does."""
    await cluster.kube.merge_patch(
        IP_POOLS, name, {"metadata": {"annotations": {SEALED_ANNOTATION: "word"}}}, namespace=SYSTEM
    )


class TestDel:
    @in_cluster
    async def test_every_range_is_looked_at(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts stops at the first that has nothing."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24")
        await cluster.fill("fd00::/64", (7, pod_interface("p")))
        await node.delete(pod_interface("p"), DUAL)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_nothing_there_is_a_success(self, cluster: SharedRangeCluster) -> None:
        await cluster.node("a").delete(pod_interface("p"), DUAL)

    @in_cluster
    async def test_only_its_own_sandbox_interface_is_freed(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), ONE)
        await node.add(pod_interface("p", ifname="net2"), ONE)
        await node.delete(pod_interface("p", ifname="net2"), ONE)
        assert {"10.0.0.1": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_a_reservation_of_another_stays(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts deletes whichever has the address for a name, also that of a Pod that runs."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24", (5, pod_interface("p")))
        await cluster.reserve("10.0.0.5", "default/another")
        await node.delete(pod_interface("p"), ONE)
        assert {} == await holders(cluster)
        assert ["10.0.0.5"] == [*await cluster.reservations()]

    @in_cluster
    async def test_while_the_api_server_is_away_it_succeeds_and_is_done_later_by_whichever_agent(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Whereabouts answers with success too, and forgets it."""
        node = cluster.node("a")
        await node.add(pod_interface("p"), DUAL)
        node.transport.cut = True
        await node.delete(pod_interface("p"), DUAL)
        await node.kill()
        node.start()
        await asyncio.sleep(60)
        assert 2 == len(await holders(cluster))
        node.transport.cut = False
        await asyncio.sleep(60)
        assert {} == await holders(cluster)
        assert {} == await cluster.reservations()

    @in_cluster
    async def test_also_by_the_next_boot(self, cluster: SharedRangeCluster) -> None:
        """What was answered is on the platter."""
        node = cluster.node("a")
        await node.add(pod_interface("p"), ONE)
        node.transport.cut = True
        await node.delete(pod_interface("p"), ONE)
        await node.reboot()
        node.transport.cut = False
        node.start()
        await asyncio.sleep(60)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_it_finds_what_was_given_whatever_the_configuration_says_by_then(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Another network, other ranges, slices, or nothing that could be read."""
        node = cluster.node("a")
        for pod, by_then in (("p", network("10.9.0.0/24")), ("q", network("10.0.0.0/24", network_name="blue"))):
            await node.add(pod_interface(pod), DUAL)
            await node.delete(pod_interface(pod), by_then)
        await node.add(pod_interface("r"), DUAL)
        await node.ipam.release(node.request(pod_interface("r"), DUAL).attachment)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_one_that_nobody_waits_for_is_done_as_well(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), DUAL)
        await cluster.fill("10.9.0.0/24", (7, pod_interface("q")))
        node.ipam.schedule_release(node.request(pod_interface("p"), DUAL).attachment)
        stranger = node.request(pod_interface("q"), network("10.9.0.0/24"))
        node.ipam.schedule_release(stranger.attachment, stranger)
        await asyncio.sleep(1)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_a_pool_that_cannot_be_read_holds_up_no_other_and_is_done_when_it_is_mended(
        self, cluster: SharedRangeCluster
    ) -> None:
        node, other = cluster.node("a"), network("10.9.0.0/24")
        await node.add(pod_interface("p"), ONE)
        await node.add(pod_interface("q"), other)
        await cluster.kube.merge_patch(IP_POOLS, "10.0.0.0-24", {"spec": {"range": "10.0.0.0/99"}}, namespace=SYSTEM)
        node.transport.cut = True
        for each, settings in (("p", ONE), ("q", other)):
            await node.delete(pod_interface(each), settings)
        node.transport.cut = False
        await asyncio.sleep(60)
        await cluster.kube.merge_patch(IP_POOLS, "10.0.0.0-24", {"spec": {"range": "10.0.0.0/24"}}, namespace=SYSTEM)
        assert {"10.0.0.1": "c-p"} == await holders(cluster)
        await asyncio.sleep(60)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_one_that_was_kept_is_forgotten_when_the_sandbox_is_added_again(
        self, cluster: SharedRangeCluster
    ) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), ONE)
        node.transport.cut = True
        await node.delete(pod_interface("p"), ONE)
        node.transport.cut = False
        assert given == await node.add(pod_interface("p"), ONE)
        await asyncio.sleep(120)
        assert {given[0]: "c-p"} == await holders(cluster)


class TestOverlap:
    @in_cluster
    async def test_an_address_is_taken_in_every_range_that_has_it(self, cluster: SharedRangeCluster) -> None:
        one, other = cluster.node("a"), cluster.node("b")
        given = await asyncio.gather(
            *(one.add(pod_interface(f"p{each}"), WIDE) for each in range(5)),
            *(other.add(pod_interface(f"q{each}"), NARROW) for each in range(5)),
        )
        assert 10 == len(set(given))

    @in_cluster
    async def test_the_entries_of_other_pools_count_without_reservations(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28", (1, pod_interface("old")), (2, pod_interface("older")))
        assert ("10.0.0.3",) == await cluster.node("a").add(pod_interface("p"), WIDE)

    @in_cluster
    async def test_what_another_has_reserved_is_left_alone(self, cluster: SharedRangeCluster) -> None:
        await cluster.reserve("10.0.0.1", "default/another")
        assert ("10.0.0.2",) == await cluster.node("a").add(pod_interface("p"), WIDE)
        assert {"10.0.0.2": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_networks_with_names_are_kept_apart(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        red, blue = network("10.0.0.0/24", network_name="red"), network("10.0.0.0/24", network_name="blue")
        assert await node.add(pod_interface("p"), red) == await node.add(pod_interface("q"), blue)
        assert {"red-10.0.0.1", "blue-10.0.0.1"} == set(await cluster.reservations())

    @in_cluster
    async def test_beside_foreign_plugins_every_address_is_reserved(self, cluster: SharedRangeCluster) -> None:
        """They look at reservations alone, and may make a range that overlaps at any time."""
        await cluster.node("a").add(pod_interface("p"), ONE)
        assert {"10.0.0.1"} == set(await cluster.reservations())
        assert "10.0.0.2" == await WhereaboutsPlugin(cluster, "elsewhere").add(pod_interface("q"), NARROW)

    @in_cluster
    async def test_among_ours_only_where_ranges_overlap(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", third_party=False)
        await node.add(pod_interface("p"), WIDE)
        assert {} == await cluster.reservations()
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), NARROW)
        assert {"10.0.0.2"} == set(await cluster.reservations())

    @in_cluster
    async def test_or_where_the_configuration_insists(self, cluster: SharedRangeCluster) -> None:
        await cluster.node("a", third_party=False).add(
            pod_interface("p"), network("10.0.0.0/24", enable_overlapping_ranges=True)
        )
        assert {"10.0.0.1"} == set(await cluster.reservations())

    @in_cluster
    async def test_and_never_where_it_forbids(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        first = network("192.168.33.0/24", enable_overlapping_ranges=False)
        second = network("192.168.33.0/28", enable_overlapping_ranges=False)
        assert ("192.168.33.1",) == await node.add(pod_interface("p"), first)
        assert ("192.168.33.1",) == await node.add(pod_interface("q"), second)
        assert {} == await cluster.reservations()

    @in_cluster
    async def test_who_forbids_it_and_who_does_not_may_ask_at_once(self, cluster: SharedRangeCluster) -> None:
        """Each goes by its own configuration, in one pool."""
        await cluster.fill("10.0.0.0/24", (1, pod_interface("p")))
        node, forbidding = cluster.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        given = await asyncio.gather(node.add(pod_interface("q"), NARROW), node.add(pod_interface("r"), forbidding))
        assert [("10.0.0.2",), ("10.0.0.1",)] == [*given]

    @in_cluster
    async def test_who_forbids_it_keeps_its_own_when_the_pool_has_lost_it(self, cluster: SharedRangeCluster) -> None:
        node, forbidding = cluster.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        copy = cluster.server.store.snapshot()
        await node.add(pod_interface("p"), forbidding)
        cluster.server.store.restore(copy)
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), forbidding)


class TestLease:
    @in_cluster
    async def test_it_is_taken_where_ranges_overlap_and_given_back(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28")
        await cluster.node("a").add(pod_interface("p"), WIDE)
        lease = await cluster.kube.get(LEASES, "whereabouts", namespace=SYSTEM)
        assert "" == (lease.spec.holder_identity or "")
        assert 0 == lease.spec.lease_transitions

    @in_cluster
    async def test_nobody_writes_there_while_a_foreign_plugin_has_it(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28")
        spec = {"holderIdentity": "default/foreign", "leaseDurationSeconds": 4}
        await cluster.kube.create(LEASES, {"metadata": {"name": "whereabouts", "namespace": SYSTEM}, "spec": spec})
        adding = asyncio.get_running_loop().create_task(cluster.node("a").add(pod_interface("p"), WIDE))
        await asyncio.sleep(3)
        assert {} == await holders(cluster)
        assert ("10.0.0.1",) == await adding

    @in_cluster
    async def test_it_is_not_touched_where_nothing_overlaps_nor_among_ours_nor_for_a_del(
        self, cluster: SharedRangeCluster
    ) -> None:
        plain, ours = cluster.node("a"), cluster.node("b", third_party=False)
        await plain.add(pod_interface("p"), ONE)
        await cluster.fill("10.0.0.0/28")
        await ours.add(pod_interface("q"), ONE)
        await plain.delete(pod_interface("p"), ONE)
        assert [] == [each for node in (plain, ours) for each in node.transport.sent if "lease" in each[1]]


class TestRuntime:
    @in_cluster
    async def test_check_tells_what_the_sandbox_has(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), DUAL)
        assert tuple(map(parse_address, given)) == await node.ipam.check(node.request(pod_interface("p"), DUAL))
        error = await failed(node.ipam.check(node.request(pod_interface("q"), DUAL)))
        assert ErrorCode.CHECK_MISMATCH == error.code

    @in_cluster
    async def test_gc_frees_what_the_runtime_does_not_list_of_its_network(self, cluster: SharedRangeCluster) -> None:
        """Also what an earlier agent of this node gave; never what another node has."""
        node, other = cluster.node("a"), cluster.node("b")
        for pod in ("kept", "lost"):
            await node.add(pod_interface(pod), ONE)
        await other.add(pod_interface("elsewhere"), ONE)
        await node.kill()
        node.start()
        valid = frozenset({node.request(pod_interface("kept"), ONE).attachment})
        await node.ipam.collect_garbage("another", valid)
        assert 3 == len(await holders(cluster))
        await node.ipam.collect_garbage(ONE.name, valid)
        assert {"c-kept", "c-elsewhere"} == set((await holders(cluster)).values())

    @in_cluster
    async def test_a_runtime_that_hangs_up_does_not_hold_up_the_others(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        asked = [asyncio.get_running_loop().create_task(node.add(pod_interface(f"p{each}"), ONE)) for each in range(4)]
        await asyncio.sleep(0.005)
        asked[0].cancel()
        given = await asyncio.gather(*asked[1:])
        assert 3 == len(set(given))
