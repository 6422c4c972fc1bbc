"""ADD, DEL, CHECK and GC in shared ranges, and their effect on the cluster's objects."""

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest

from podpool.agent.abandoned_adds import AbandonedAdds
from podpool.agent.secondary.ippool_batcher import (
    BLOCKED_SECONDS,
    MAX_SLEEP_FOR_RACE,
    IPPoolBatcher,
    PoolRequest,
    ReleasedWhileWaiting,
)
from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION, ReservationSpec
from podpool.cni.protocol import CniError, ErrorCode
from podpool.core.addresses import Address, parse_address
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Request, Unreachable
from podpool.whereabouts.config import IpamConfig
from tests.agent.disks import DroppingDisk, SlowDisk
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
    """Return the container ID of each address."""
    return {str(address): owner.container_id for (_, address), owner in (await cluster.entries()).items()}


async def failure(request: Awaitable[object]) -> CniError:
    with pytest.raises(CniError) as error:
        await request
    return error.value


class TestAdd:
    @in_cluster
    async def test_the_lowest_address_of_each_range_is_stored(self, cluster: SharedRangeCluster) -> None:
        assert ("10.0.0.1", "fd00::1") == await cluster.node("a").add(pod_interface("p"), DUAL)
        assert {"10.0.0.1": "c-p", "fd00::1": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_the_same_sandbox_gets_the_same_addresses(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        assert await node.add(pod_interface("p"), DUAL) == await node.add(pod_interface("p"), DUAL)
        assert 2 == len(await holders(cluster))

    @in_cluster
    async def test_a_new_sandbox_of_a_pod_takes_over_the_entry_from_a_late_del(
        self, cluster: SharedRangeCluster
    ) -> None:
        """On any node: a Pod of a StatefulSet keeps its name."""
        one, other = cluster.node("a"), cluster.node("b")
        given = await one.add(pod_interface("web-0", container_id="c1"), ONE)
        assert given == await other.add(pod_interface("web-0", container_id="c2"), ONE)
        await one.delete(pod_interface("web-0", container_id="c1"), ONE)
        assert {given[0]: "c2"} == await holders(cluster)
        assert [ReservationSpec(podref="default/web-0", ifname="net1", containerid="c2")] == [
            *(await cluster.reservations()).values()
        ]

    @in_cluster
    async def test_concurrent_adds_share_patches(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await asyncio.gather(*(node.add(pod_interface(f"p{each}"), ONE) for each in range(16)))
        assert 16 == len(set(given))
        assert node.transport.calls("PATCH") <= 3

    @in_cluster
    async def test_concurrent_nodes_never_allocate_an_address_twice(self, cluster: SharedRangeCluster) -> None:
        nodes = [cluster.node(f"n{each}") for each in range(8)]
        given = await asyncio.gather(
            *(node.add(pod_interface(f"{node.name}-{n}"), ONE) for node in nodes for n in range(4))
        )
        assert 32 == len(set(given))
        assert {each for (each,) in given} == set(await holders(cluster))

    @in_cluster
    async def test_a_full_range_fails_with_code_11_and_releases_the_other_ranges(
        self, cluster: SharedRangeCluster
    ) -> None:
        node, tight = cluster.node("a"), network("10.0.0.0/24", "10.9.0.0/30")
        for each in "pq":
            await node.add(pod_interface(each), tight)
        error = await failure(node.add(pod_interface("r"), tight))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "no address of 10.9.0.1-10.9.0.2 of 10.9.0.0/30 is free: 2 are allocated" in error.message
        await asyncio.sleep(1)
        assert "c-r" not in (await holders(cluster)).values()

    @pytest.mark.parametrize("status", [422, 500])
    def test_an_add_fails_if_its_entry_is_not_stored(self, status: int) -> None:
        """Whereabouts returns the address although its patch failed, if the reservation succeeded."""

        @in_cluster
        async def body(cluster: SharedRangeCluster) -> None:
            await cluster.fill("10.0.0.0/24")
            node = cluster.node("a")
            node.transport.reject = lambda each: status if each.method == "PATCH" and "/ippools/" in each.path else None
            error = await failure(node.add(pod_interface("p"), ONE))
            assert ErrorCode.TRY_AGAIN_LATER == error.code
            assert f"not now ({status}" in error.message
            assert node.transport.calls("PATCH", "ippools") > 1
            assert {} == await cluster.entries()
            assert {} == await cluster.reservations()

        body()

    @in_cluster
    async def test_an_add_fails_within_its_deadline_if_the_api_server_is_unreachable(
        self, cluster: SharedRangeCluster
    ) -> None:
        node = cluster.node("a")
        node.transport.cut = True
        begun = asyncio.get_running_loop().time()
        error = await failure(node.add(pod_interface("p"), ONE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "could not be written in time" in error.message
        assert asyncio.get_running_loop().time() - begun < REQUEST_TIMEOUT + 1

    @in_cluster
    async def test_an_invalid_object_name_is_rejected_with_the_key_to_set(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts fails at each create, with the error of the API server."""
        error = await failure(cluster.node("a").add(pod_interface("p"), network("::/126")))
        assert ErrorCode.INVALID_CONFIG == error.code
        assert "set network_name" in error.message

    @in_cluster
    async def test_large_ipv6_offsets_are_kept(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts cannot read keys of 2^63 and more, and allocates such an address twice."""
        far = network("fd00::8000:0:0:1-fd00::8000:0:0:9/64")
        node = cluster.node("a")
        assert ("fd00::8000:0:0:1",) == await node.add(pod_interface("p"), far)
        assert ("fd00::8000:0:0:2",) == await node.add(pod_interface("q"), far)
        assert {"fd00::8000:0:0:1": "c-p", "fd00::8000:0:0:2": "c-q"} == await holders(cluster)

    @in_cluster
    async def test_a_released_address_cools_down(self, cluster: SharedRangeCluster) -> None:
        """Its own Pod gets it at once. Other nodes have no record of the release."""
        node, other = cluster.node("a"), cluster.node("b")
        await node.add(pod_interface("p"), ONE)
        await node.delete(pod_interface("p"), ONE)
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), ONE)
        assert ("10.0.0.1",) == await node.add(pod_interface("p", container_id="again"), ONE)
        await node.delete(pod_interface("p", container_id="again"), ONE)
        assert ("10.0.0.1",) == await other.add(pod_interface("r"), ONE)

    @in_cluster
    async def test_a_del_cancels_the_waiting_add_of_its_sandbox(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        node.transport.cut = True
        adding = asyncio.get_running_loop().create_task(node.add(pod_interface("p"), ONE))
        await asyncio.sleep(1)
        await node.delete(pod_interface("p"), ONE)
        assert "the sandbox was deleted" in (await failure(adding)).message

    @pytest.mark.parametrize("third_party", [True, False])
    def test_an_add_and_a_del_of_one_sandbox_at_once_leave_nothing(self, third_party: bool) -> None:
        """Whenever the DEL arrives: a plugin whose parent was killed sends its ADD although the runtime gave it up."""
        for step in range(60):

            @in_cluster
            async def test(cluster: SharedRangeCluster, *, seconds: float = 0.004 * step) -> None:
                node = cluster.node("a", third_party=third_party)
                adding = asyncio.get_running_loop().create_task(node.add(pod_interface("p"), DUAL))
                await asyncio.sleep(seconds)
                answered = adding.done()
                await node.delete(pod_interface("p"), DUAL)
                (answer,) = await asyncio.gather(adding, return_exceptions=True)
                assert answered is not isinstance(answer, CniError)
                node.ipam.on_restored()
                await asyncio.sleep(60.0)
                assert ({}, {}) == (await holders(cluster), await cluster.reservations())
                assert [] == list(node.ipam.interfaces())

            test()

    def test_a_del_between_two_ranges_of_an_add_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @in_cluster
        async def test(cluster: SharedRangeCluster) -> None:
            node, process, deleted = cluster.node("a"), IPPoolBatcher.process, asyncio.Event()

            async def delete_after_the_first(batcher: IPPoolBatcher, request: PoolRequest) -> Address | None:
                address = await process(batcher, request)
                if request.range and not deleted.is_set():
                    deleted.set()
                    await node.delete(pod_interface("p"), DUAL)
                return address

            monkeypatch.setattr(IPPoolBatcher, "process", delete_after_the_first)
            assert "the sandbox was deleted" in (await failure(node.add(pod_interface("p"), DUAL))).message
            await asyncio.sleep(60.0)
            assert {} == await holders(cluster)

        test()

    def test_the_outcome_of_a_request_is_set_once(self) -> None:
        request = PoolRequest(pod_interface("p"), ONE, ONE.ranges[0])
        request.finish(ReleasedWhileWaiting())
        request.finish(parse_address("10.0.0.1"))
        assert isinstance(request.outcome, ReleasedWhileWaiting)

    @in_cluster
    async def test_an_add_that_arrives_during_the_del_of_its_sandbox_fails(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), DUAL)
        deleting = asyncio.get_running_loop().create_task(node.delete(pod_interface("p"), DUAL))
        await asyncio.sleep(0.001)
        assert "the sandbox was deleted" in (await failure(node.add(pod_interface("p"), DUAL))).message
        await deleting
        await asyncio.sleep(60.0)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_an_add_that_arrives_during_the_second_del_of_its_sandbox_fails(
        self, cluster: SharedRangeCluster
    ) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), ONE)
        loop = asyncio.get_running_loop()
        first = loop.create_task(node.delete(pod_interface("p"), ONE))
        await asyncio.sleep(0.001)  # the first is being processed
        second = loop.create_task(node.delete(pod_interface("p"), ONE))
        await first
        assert not second.done()
        assert "the sandbox was deleted" in (await failure(node.add(pod_interface("p"), ONE))).message
        await second
        assert {} == await holders(cluster)


class TestRepeatedAdd:
    """The runtime repeats the ADD of a sandbox that has an address: it stays until the DEL, whatever the outcome."""

    @pytest.mark.parametrize("edited", [ONE, network("10.0.0.0/28"), network("10.0.0.0/24", network_name="blue")])
    @pytest.mark.parametrize("pod_uid", ["", "not in the records of the previous agent"])
    def test_one_that_fails_releases_nothing(self, edited: IpamConfig, pod_uid: str) -> None:
        @in_cluster
        async def test(cluster: SharedRangeCluster) -> None:
            node = cluster.node("a")
            await node.add(pod_interface("p"), ONE)
            node.transport.cut = True
            request = msgspec.structs.replace(node.request(pod_interface("p"), edited), pod_uid=pod_uid)
            assert ErrorCode.TRY_AGAIN_LATER == (await failure(node.ipam.allocate(request))).code
            node.transport.cut = False
            await asyncio.sleep(60.0)
            assert {"10.0.0.1": "c-p"} == await holders(cluster)
            assert [("10.0.0.1",)] == [each.addresses for each in node.ipam.interfaces()]

        test()

    @pytest.mark.parametrize("deferred", [False, True])
    def test_what_it_had_of_the_former_range_is_released_if_the_new_one_is_full(self, deferred: bool) -> None:
        @in_cluster
        async def test(cluster: SharedRangeCluster) -> None:
            node, full = cluster.node("a"), network("10.9.0.0/30")
            await cluster.fill("10.9.0.0/30", (1, pod_interface("x")), (2, pod_interface("y")))
            await node.add(pod_interface("p"), ONE)
            if deferred:
                node.transport.cut = True
                await node.delete(pod_interface("p"), ONE)
                node.transport.cut = False
            assert "is free: 2 are allocated" in (await failure(node.add(pod_interface("p"), full))).message
            await asyncio.sleep(60.0)
            assert deferred is ("10.0.0.1" not in await holders(cluster))
            await node.ipam.release(node.request(pod_interface("p"), full).attachment)
            assert {"c-x", "c-y"} == set((await holders(cluster)).values())

        test()

    @in_cluster
    async def test_a_del_releases_the_former_and_the_new_range(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), ONE)
        assert ("10.9.0.1",) == await node.add(pod_interface("p"), network("10.9.0.0/24"))
        assert [("10.9.0.1",)] == [each.addresses for each in node.ipam.interfaces()]
        await node.ipam.release(node.request(pod_interface("p"), ONE).attachment)
        assert {} == await holders(cluster)

    @pytest.mark.parametrize("killed", [False, True])
    def test_the_address_of_an_interrupted_one_is_restored(self, killed: bool) -> None:
        @in_cluster
        async def test(cluster: SharedRangeCluster) -> None:
            node, copy = cluster.node("a"), cluster.server.store.snapshot()
            await node.add(pod_interface("p"), ONE)
            request = msgspec.structs.replace(node.request(pod_interface("p"), ONE), pod_uid="new")
            adding = asyncio.get_running_loop().create_task(node.ipam.allocate(request))
            await asyncio.sleep(0.001)
            if killed:
                await node.kill()
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            cluster.server.store.restore(copy)
            if killed:
                node.start()
            node.ipam.on_restored()
            await asyncio.sleep(5.0)
            assert {"10.0.0.1": "c-p"} == await holders(cluster)

        test()


class TestSealedPool:
    """The controller has sealed a pool: its range is divided into slices."""

    @in_cluster
    async def test_nothing_new_is_allocated_and_the_error_has_the_remedy(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), WIDE)
        await seal(cluster, "10.0.0.0-24")
        error = await failure(node.add(pod_interface("q"), WIDE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert (
            "10.0.0.0/24 is divided into node slices, according to IPPool 10.0.0.0-24: set node_slice_size"
            in error.message
        )
        assert {given[0]: "c-p"} == await holders(cluster)

    @in_cluster
    async def test_nothing_is_allocated_from_an_overlapping_range_even_without_a_pool(
        self, cluster: SharedRangeCluster
    ) -> None:
        await cluster.fill("10.0.0.0/24")
        await seal(cluster, "10.0.0.0-24")
        error = await failure(cluster.node("a").add(pod_interface("p"), NARROW))
        assert "10.0.0.0/28 is divided into node slices, according to IPPool 10.0.0.0-24" in error.message
        assert ["10.0.0.0-24"] == [each.metadata.name for each in (await cluster.kube.list(IP_POOLS)).items]

    @in_cluster
    async def test_an_existing_allocation_is_returned_and_released(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), WIDE)
        await seal(cluster, "10.0.0.0-24")
        assert given == await node.add(pod_interface("p", container_id="next"), WIDE)
        await node.delete(pod_interface("p", container_id="next"), WIDE)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_an_add_that_read_the_pool_before_the_seal_stores_nothing(self, cluster: SharedRangeCluster) -> None:
        """Its patch has the resourceVersion that it read as precondition."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24")
        adding = asyncio.get_running_loop().create_task(
            node.add(pod_interface("p"), network("10.0.0.0/24", sleep_for_race=1))
        )
        await asyncio.sleep(0.5)
        await seal(cluster, "10.0.0.0-24")
        assert "is divided into node slices" in (await failure(adding)).message
        assert {} == await holders(cluster)


async def seal(cluster: SharedRangeCluster, name: str) -> None:
    """Seal a pool as the controller does."""
    await cluster.kube.merge_patch(
        IP_POOLS, name, {"metadata": {"annotations": {SEALED_ANNOTATION: "word"}}}, namespace=SYSTEM
    )


class TestDel:
    @in_cluster
    async def test_every_range_is_released(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts stops at the first range without an entry."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24")
        await cluster.fill("fd00::/64", (7, pod_interface("p")))
        await node.delete(pod_interface("p"), DUAL)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_a_del_without_allocations_succeeds(self, cluster: SharedRangeCluster) -> None:
        await cluster.node("a").delete(pod_interface("p"), DUAL)

    @in_cluster
    async def test_only_its_own_interface_is_released(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), ONE)
        await node.add(pod_interface("p", ifname="net2"), ONE)
        await node.delete(pod_interface("p", ifname="net2"), ONE)
        assert {"10.0.0.1": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_a_reservation_of_another_pod_is_kept(self, cluster: SharedRangeCluster) -> None:
        """Whereabouts deletes any reservation of the address, also of a running Pod."""
        node = cluster.node("a")
        await cluster.fill("10.0.0.0/24", (5, pod_interface("p")))
        await cluster.reserve("10.0.0.5", "default/another")
        await node.delete(pod_interface("p"), ONE)
        assert {} == await holders(cluster)
        assert ["10.0.0.5"] == [*await cluster.reservations()]

    @in_cluster
    async def test_it_succeeds_while_the_api_server_is_unreachable_and_is_done_after_a_restart(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Whereabouts succeeds too, but does not release the address."""
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
    async def test_a_deferred_release_survives_a_reboot(self, cluster: SharedRangeCluster) -> None:
        """It is synced before the DEL is answered."""
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
    async def test_it_releases_what_was_allocated_under_another_configuration(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Another network, other ranges, or no configuration."""
        node = cluster.node("a")
        for pod, later in (("p", network("10.9.0.0/24")), ("q", network("10.0.0.0/24", network_name="blue"))):
            await node.add(pod_interface(pod), DUAL)
            await node.delete(pod_interface(pod), later)
        await node.add(pod_interface("r"), DUAL)
        await node.ipam.release(node.request(pod_interface("r"), DUAL).attachment)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_a_scheduled_release_is_done(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        await node.add(pod_interface("p"), DUAL)
        await cluster.fill("10.9.0.0/24", (7, pod_interface("q")))
        node.ipam.schedule_release(node.request(pod_interface("p"), DUAL).attachment)
        unknown = node.request(pod_interface("q"), network("10.9.0.0/24"))
        node.ipam.schedule_release(unknown.attachment, unknown)
        await asyncio.sleep(1)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_an_invalid_pool_blocks_no_other_and_is_released_when_repaired(
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

    @pytest.mark.parametrize("status", [403, 422])
    def test_a_pool_that_cannot_be_written_blocks_no_other(self, status: int) -> None:
        @in_cluster
        async def test(cluster: SharedRangeCluster) -> None:
            node, other = cluster.node("a"), network("10.9.0.0/24")
            for pod, settings in (("p", ONE), ("q", other)):
                await node.add(pod_interface(pod), settings)
            node.transport.reject = lambda each: status if "/ippools/10.0.0.0-24" in each.path else None
            for pod, settings in (("p", ONE), ("q", other)):
                node.ipam.schedule_release(node.request(pod_interface(pod), settings).attachment)
            await asyncio.sleep(60)
            assert {"10.0.0.1": "c-p"} == await holders(cluster)
            node.transport.reject = lambda _: None
            await asyncio.sleep(60)
            assert {} == await holders(cluster)

        test()

    @in_cluster
    async def test_a_deferred_release_is_dropped_when_the_sandbox_is_added_again(
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


class TestReboot:
    """No sandbox survives it, but the entries of all do."""

    @in_cluster
    async def test_entries_of_the_former_boot_are_released_after_their_cooldown(
        self, cluster: SharedRangeCluster
    ) -> None:
        """Also of a Pod that lives on, in a range that was divided into slices meanwhile."""
        node = cluster.node("a", cooldown=30)
        given = await node.add(pod_interface("p"), DUAL)
        await seal(cluster, "10.0.0.0-24")
        await node.reboot()
        node.start()
        await asyncio.sleep(29)
        assert dict.fromkeys(given, "c-p") == await holders(cluster)
        await asyncio.sleep(2)
        assert {} == await holders(cluster)
        assert {} == await cluster.reservations()

    @in_cluster
    async def test_an_entry_that_the_next_sandbox_has_taken_over_is_kept(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", cooldown=30)
        given = await node.add(pod_interface("p"), ONE)
        await node.reboot()
        node.start()
        assert given == await node.add(pod_interface("p", container_id="next"), ONE)
        await asyncio.sleep(60)
        assert {given[0]: "next"} == await holders(cluster)
        assert ["next"] == [each.sandbox for each in node.ipam.interfaces()]

    @in_cluster
    async def test_a_restart_of_the_agent_releases_nothing(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", cooldown=30)
        given = await node.add(pod_interface("p"), ONE)
        await node.kill()
        node.start()
        await asyncio.sleep(60)
        assert {given[0]: "c-p"} == await holders(cluster)

    @in_cluster
    async def test_a_power_failure_during_an_add_leaves_nothing(self, cluster: SharedRangeCluster) -> None:
        """What an ADD is about to have is synced before the IPPool is written."""
        node = cluster.node("a", cooldown=30)
        await cluster.fill("10.0.0.0/24")
        left = []

        def observe(request: Request) -> None:
            if request.method == "PATCH":
                left.append(node.disk.after_reboot())

        node.transport.reject = observe
        await node.add(pod_interface("p"), ONE)
        await node.reboot()
        node.disk = left[0]
        node.start()
        await asyncio.sleep(60)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_all_entries_are_released_with_few_requests(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", third_party=False, cooldown=30)
        await asyncio.gather(*(node.add(pod_interface(f"p{each}"), ONE) for each in range(50)))
        await node.reboot()
        node.start()
        await asyncio.sleep(29)
        node.transport.sent.clear()
        await asyncio.sleep(30)
        assert {} == await holders(cluster)
        assert 2 == node.transport.calls("PATCH")  # one alone, the others while it waits
        assert 2 == node.transport.calls("GET", "ippools")

    @in_cluster
    async def test_while_the_api_server_is_unreachable_all_releases_are_tried_as_one(
        self, cluster: SharedRangeCluster
    ) -> None:
        node = cluster.node("a", third_party=False, cooldown=30)
        await asyncio.gather(*(node.add(pod_interface(f"p{each}"), ONE) for each in range(50)))
        await node.reboot()
        node.start()
        await asyncio.sleep(29)

        def fail(_request: Request) -> None:
            raise Unreachable("the API server", "no response")

        node.transport.reject = fail
        node.transport.sent.clear()
        await asyncio.sleep(60)
        assert len(node.transport.sent) <= 10
        node.transport.reject = lambda _request: None
        await asyncio.sleep(60)
        assert {} == await holders(cluster)


class TestSync:
    """The log is synced before an IPPool is written."""

    @in_cluster
    async def test_an_add_fails_with_nothing_stored_if_the_log_cannot_be_synced(
        self, cluster: SharedRangeCluster
    ) -> None:
        disk = DroppingDisk()
        node = cluster.node("a", disk=disk)
        disk.failing = 1
        with pytest.raises(OSError, match="Input/output error"):
            await node.add(pod_interface("p"), ONE)
        assert {} == await holders(cluster)
        assert ("10.0.0.1",) == await node.add(pod_interface("q"), ONE)

    @in_cluster
    async def test_an_add_fails_in_time_if_the_disk_does_not_answer(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", disk=SlowDisk(600.0))
        error = await failure(node.add(pod_interface("p"), ONE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "could not be synced in time" in error.message
        assert REQUEST_TIMEOUT == pytest.approx(node.clock.boot(), abs=1.0)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_an_add_whose_sandbox_is_deleted_meanwhile_stores_nothing(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", disk=SlowDisk(1.0))
        adding = asyncio.get_running_loop().create_task(node.add(pod_interface("p"), ONE))
        await asyncio.sleep(0.5)
        await node.delete(pod_interface("p"), ONE)
        assert "was deleted while it waited" in (await failure(adding)).message
        assert 0 == node.transport.calls("PATCH")
        assert [] == [*node.ipam.interfaces()]


class TestOverlap:
    @in_cluster
    async def test_an_address_is_taken_in_every_range_that_contains_it(self, cluster: SharedRangeCluster) -> None:
        one, other = cluster.node("a"), cluster.node("b")
        given = await asyncio.gather(
            *(one.add(pod_interface(f"p{each}"), WIDE) for each in range(5)),
            *(other.add(pod_interface(f"q{each}"), NARROW) for each in range(5)),
        )
        assert 10 == len(set(given))

    @in_cluster
    async def test_entries_of_overlapping_pools_count_without_reservations(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28", (1, pod_interface("old")), (2, pod_interface("older")))
        assert ("10.0.0.3",) == await cluster.node("a").add(pod_interface("p"), WIDE)

    @in_cluster
    async def test_a_reserved_address_is_skipped(self, cluster: SharedRangeCluster) -> None:
        await cluster.reserve("10.0.0.1", "default/another")
        assert ("10.0.0.2",) == await cluster.node("a").add(pod_interface("p"), WIDE)
        assert {"10.0.0.2": "c-p"} == await holders(cluster)

    @in_cluster
    async def test_named_networks_are_independent(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        red, blue = network("10.0.0.0/24", network_name="red"), network("10.0.0.0/24", network_name="blue")
        assert await node.add(pod_interface("p"), red) == await node.add(pod_interface("q"), blue)
        assert {"red-10.0.0.1", "blue-10.0.0.1"} == set(await cluster.reservations())

    @in_cluster
    async def test_with_third_party_plugins_every_address_is_reserved(self, cluster: SharedRangeCluster) -> None:
        """They read only reservations, and may create an overlapping range at any time."""
        await cluster.node("a").add(pod_interface("p"), ONE)
        assert {"10.0.0.1"} == set(await cluster.reservations())
        assert "10.0.0.2" == await WhereaboutsPlugin(cluster, "elsewhere").add(pod_interface("q"), NARROW)

    @in_cluster
    async def test_among_podpool_agents_only_overlaps_are_reserved(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a", third_party=False)
        await node.add(pod_interface("p"), WIDE)
        assert {} == await cluster.reservations()
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), NARROW)
        assert {"10.0.0.2"} == set(await cluster.reservations())

    @in_cluster
    async def test_addresses_are_reserved_if_configured(self, cluster: SharedRangeCluster) -> None:
        await cluster.node("a", third_party=False).add(
            pod_interface("p"), network("10.0.0.0/24", enable_overlapping_ranges=True)
        )
        assert {"10.0.0.1"} == set(await cluster.reservations())

    @in_cluster
    async def test_addresses_are_not_reserved_if_disabled(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        first = network("192.168.33.0/24", enable_overlapping_ranges=False)
        second = network("192.168.33.0/28", enable_overlapping_ranges=False)
        assert ("192.168.33.1",) == await node.add(pod_interface("p"), first)
        assert ("192.168.33.1",) == await node.add(pod_interface("q"), second)
        assert {} == await cluster.reservations()

    @in_cluster
    async def test_requests_with_and_without_overlap_check_share_a_batch(self, cluster: SharedRangeCluster) -> None:
        """Each follows its own configuration, in one pool."""
        await cluster.fill("10.0.0.0/24", (1, pod_interface("p")))
        node, unchecked = cluster.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        given = await asyncio.gather(node.add(pod_interface("q"), NARROW), node.add(pod_interface("r"), unchecked))
        assert [("10.0.0.2",), ("10.0.0.1",)] == [*given]

    @in_cluster
    async def test_without_overlap_check_lost_entries_of_the_node_still_count(
        self, cluster: SharedRangeCluster
    ) -> None:
        node, unchecked = cluster.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        copy = cluster.server.store.snapshot()
        await node.add(pod_interface("p"), unchecked)
        cluster.server.store.restore(copy)
        assert ("10.0.0.2",) == await node.add(pod_interface("q"), unchecked)


class TestLease:
    @in_cluster
    async def test_it_is_taken_if_ranges_overlap_and_released(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28")
        await cluster.node("a").add(pod_interface("p"), WIDE)
        lease = await cluster.kube.get(LEASES, "whereabouts", namespace=SYSTEM)
        assert "" == (lease.spec.holder_identity or "")
        assert 0 == lease.spec.lease_transitions

    @in_cluster
    async def test_nothing_is_written_while_a_third_party_plugin_holds_it(self, cluster: SharedRangeCluster) -> None:
        await cluster.fill("10.0.0.0/28")
        spec = {"holderIdentity": "default/third-party", "leaseDurationSeconds": 4}
        await cluster.kube.create(LEASES, {"metadata": {"name": "whereabouts", "namespace": SYSTEM}, "spec": spec})
        adding = asyncio.get_running_loop().create_task(cluster.node("a").add(pod_interface("p"), WIDE))
        await asyncio.sleep(3)
        assert {} == await holders(cluster)
        assert ("10.0.0.1",) == await adding

    @in_cluster
    async def test_invalid_times_of_one_network_fail_only_its_own_adds(self, cluster: SharedRangeCluster) -> None:
        """Both are served by one batch, in either order."""
        await cluster.fill("10.0.0.0/28")
        node, invalid = cluster.node("a"), network("10.0.0.0/24", leader_lease_duration=500)
        for first, second in ((invalid, WIDE), (WIDE, invalid)):
            names = f"{first is WIDE}-1", f"{first is WIDE}-2"
            adds = [node.add(pod_interface(name), each) for name, each in zip(names, (first, second), strict=True)]
            outcomes = await asyncio.gather(*adds, return_exceptions=True)
            refused = outcomes[0 if first is invalid else 1]
            assert isinstance(refused, CniError)
            assert refused.message.startswith("leader times")
            assert 1 == sum(isinstance(each, tuple) for each in outcomes)

    @in_cluster
    async def test_sleep_for_race_of_one_network_is_bounded(self, cluster: SharedRangeCluster) -> None:
        node, slow = cluster.node("a"), network("10.0.0.0/24", sleep_for_race=10**6)
        started = asyncio.get_running_loop().time()
        await asyncio.gather(node.add(pod_interface("p"), slow), node.add(pod_interface("q"), ONE))
        assert asyncio.get_running_loop().time() - started < 2 * MAX_SLEEP_FOR_RACE

    @in_cluster
    async def test_it_is_not_needed_without_overlap_or_among_podpool_agents_or_for_a_del(
        self, cluster: SharedRangeCluster
    ) -> None:
        with_third_party, without = cluster.node("a"), cluster.node("b", third_party=False)
        await with_third_party.add(pod_interface("p"), ONE)
        await cluster.fill("10.0.0.0/28")
        await without.add(pod_interface("q"), ONE)
        await with_third_party.delete(pod_interface("p"), ONE)
        assert [] == [
            each for node in (with_third_party, without) for each in node.transport.sent if "lease" in each[1]
        ]


class TestRuntime:
    @in_cluster
    async def test_check_returns_what_the_sandbox_has(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        given = await node.add(pod_interface("p"), DUAL)
        assert tuple(map(parse_address, given)) == await node.ipam.check(node.request(pod_interface("p"), DUAL))
        error = await failure(node.ipam.check(node.request(pod_interface("q"), DUAL)))
        assert ErrorCode.CHECK_MISMATCH == error.code

    @in_cluster
    async def test_gc_releases_invalid_attachments_of_its_network(self, cluster: SharedRangeCluster) -> None:
        """Also what a former agent of this node allocated; never what another node has."""
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
    async def test_an_add_that_is_abandoned_after_a_deferred_del_is_undone(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        abandoned = AbandonedAdds([node.ipam])

        async def add() -> None:
            request = node.request(pod_interface("p"), ONE)
            await abandoned.undo_if_cancelled(request.attachment, node.ipam.allocate(request), get_logger("test"))

        await add()
        node.transport.cut = True
        await node.delete(pod_interface("p"), ONE)
        adding = asyncio.get_running_loop().create_task(add())
        await asyncio.sleep(1)
        adding.cancel()
        node.transport.cut = False
        await asyncio.sleep(60)
        assert {} == await holders(cluster)

    @in_cluster
    async def test_what_is_kept_of_a_range_ends_with_its_last_request(self, cluster: SharedRangeCluster) -> None:
        """Also of a range that only a failed ADD or a DEL has named, and after an address of another owner."""
        node = cluster.node("a", cooldown=BLOCKED_SECONDS)
        ranges = [network(f"10.{each}.0.0/30", network_name=f"n{each}") for each in range(20)]
        for each, settings in enumerate(ranges):
            await cluster.reserve(f"n{each}-10.{each}.0.1", "default/another")
            await node.add(pod_interface(f"p{each}"), settings)
            await failure(node.add(pod_interface("r"), settings))
            await node.delete(pod_interface(f"p{each}"), settings)
        await asyncio.sleep(BLOCKED_SECONDS)
        await node.add(pod_interface("q"), ONE)
        await node.delete(pod_interface("q"), ONE)
        assert {} == node.ipam._batchers  # noqa: SLF001  its size
        assert 1 == len(node.ipam._cooldown._released)  # noqa: SLF001  its size

    @in_cluster
    async def test_a_cancelled_add_does_not_block_others(self, cluster: SharedRangeCluster) -> None:
        node = cluster.node("a")
        tasks = [asyncio.get_running_loop().create_task(node.add(pod_interface(f"p{each}"), ONE)) for each in range(4)]
        await asyncio.sleep(0.005)
        tasks[0].cancel()
        given = await asyncio.gather(*tasks[1:])
        assert 3 == len(set(given))
