"""A Node and its NNC: created, repaired, and created again."""

import asyncio
import uuid

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.controller.settings import SUBNET_LABEL
from podpool.kube.errors import ApiNotFound
from tests.controller.controller_env import ControllerEnv, ControllerEnvs, until
from tests.kube.event_loops import run_in_loop


async def delete_node(env: ControllerEnv, name: str) -> None:
    """Delete a Node, and its NNC as Kubernetes' garbage collector does."""
    await env.client.delete(NODES, name)
    try:
        await env.client.delete(NODE_NETWORK_CONFIGS, name, namespace=env.namespace)
    except ApiNotFound:
        return


class TestJoining:
    @run_in_loop
    async def test_a_new_node_has_all_that_an_agent_needs_and_no_secondaries(self, envs: ControllerEnvs) -> None:
        """Including what Azure's CNS needs: owner reference, ID, primary, address space, all values of the scaler."""
        async with envs.create() as env:
            await env.create_subnet(gateway="10.0.0.1")
            env.start()
            node = await env.create_node("n1")
            shown = await env.wait_nc("n1")
            config = await env.nnc("n1")
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

    @run_in_loop
    async def test_a_new_node_costs_two_calls(self, envs: ControllerEnvs) -> None:
        """One to create the NNC, and one to write its status."""
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/16")
            env.start()
            await until(env.cluster_subnet, "the subnet is published")
            names = [f"n{number}" for number in range(30)]
            env.transport.sent.clear()
            await asyncio.gather(*map(env.create_node, names))
            await until(lambda: _all_served(env, len(names)), "every node has an NC")
            ours = [each for each in env.transport.sent if "nodenetworkconfigs" in each.path]
            created = [each for each in ours if each.method == "POST"]
            patched = [each for each in ours if each.method == "PATCH"]
            assert (30, 30) == (len(created), len(patched))
            assert [] == [each for each in ours if each.method == "GET" and each.path.endswith(tuple(names))]
            assert [] == [
                each for each in env.transport.sent if each.method == "GET" and each.path.startswith("/api/v1/nodes/")
            ]

    @run_in_loop
    async def test_a_new_node_starts_although_no_secondaries_are_left(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=2)
            env.start()
            await env.join("n1")
            await env.request("n1", 100)
            await env.wait_assigned("n1", 14 - 1 - 2)  # less its primary, and those reserved for primaries
            await env.join("n2")
            second = await env.nc("n2")
            assert second
            assert () == second.ip_assignments

    @run_in_loop
    async def test_the_subnet_is_published_before_the_first_nnc(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=1)
            controller = env.start()
            await env.join("n1")
            await env.request_and_wait("n1", 12)
            await until(lambda: _exhausted(env), "the subnet is exhausted")
            await env.stop(controller)
            await env.delete_subnet_objects()
            await env.create_node("n2")
            env.transport.sent.clear()
            env.start()
            await env.wait_nc("n2")
            writes = [
                each.path for each in env.transport.sent if each.method == "PATCH" and each.path.endswith("/status")
            ]
            kinds = [path.split("/")[-3] for path in writes]
            assert ["clustersubnets", "clustersubnetstates", "nodenetworkconfigs"] == list(dict.fromkeys(kinds))
            assert await _exhausted(env)


async def _all_served(env: ControllerEnv, count: int) -> bool:
    found = (await env.client.list(NODE_NETWORK_CONFIGS, namespace=env.namespace)).items
    return count == sum(bool(config.status.network_containers) for config in found)


async def _exhausted(env: ControllerEnv) -> bool:
    shown = await env.cluster_subnet()
    return bool(shown and shown.status.exhausted)


class TestSubnets:
    @run_in_loop
    async def test_the_label_selects_the_subnet_else_it_is_the_default(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            await env.create_subnet("10.1.0.0/24", network="other", name="special")
            env.start()
            await env.create_node("n1")
            await env.create_node("n2", **{SUBNET_LABEL: "other.special"})
            ncs = [await env.wait_nc(each) for each in ("n1", "n2")]
            assert [("vnet", "pods"), ("other", "special")] == [(each.vnet_id, each.subnet_name) for each in ncs]
            await until(lambda: env.cluster_subnet("special"), "the other subnet is published")

    @run_in_loop
    async def test_an_invalid_label_is_reported_and_the_default_is_used(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await env.create_node("n1", **{SUBNET_LABEL: "nonsense"})
            shown = await env.wait_nc("n1")
            assert "pods" == shown.subnet_name
            (event,) = await until(lambda: env.events("InvalidSubnetLabel"), "the Event is recorded")
            assert SUBNET_LABEL in event.note
            assert "n1" == event.regarding.name

    @run_in_loop
    async def test_a_subnet_that_does_not_exist_is_reported_until_it_does(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start()
            await env.create_node("n1", **{SUBNET_LABEL: "vnet.later"})
            await env.join("n2")
            (event,) = await until(lambda: env.events("AllocationFailed"), "the Event is recorded")
            assert "there is no subnet vnet.later" in event.note
            await env.create_subnet("10.1.0.0/24", name="later")
            await env.wait_nc("n1")

    @run_in_loop
    async def test_two_subnets_of_the_same_name_are_rejected(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            await env.create_subnet("10.1.0.0/24", network="other")
            env.start()
            await env.join("n1")
            await env.create_node("n2", **{SUBNET_LABEL: "other.pods"})
            (event,) = await until(lambda: env.events("AllocationFailed"), "the Event is recorded")
            assert "subnet other.pods has the same name as subnet vnet.pods" in event.note
            assert await env.nnc("n2") is None


class TestRepair:
    @run_in_loop
    async def test_a_removed_or_changed_status_is_written_again(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15)
            config = await env.nnc("n1")
            assert config
            for broken in (
                {"networkContainers": None, "assignedIPCount": None, "scaler": None},
                {"networkContainers": [{"id": before.id, "version": before.version, "ipAssignments": []}]},
            ):
                await env.client.merge_patch(
                    NODE_NETWORK_CONFIGS, "n1", {"status": broken}, namespace=env.namespace, subresource="status"
                )
                assert before == await env.wait_assigned("n1", 15)

    @run_in_loop
    async def test_a_removed_finalizer_is_restored(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            patch = {"metadata": {"finalizers": ["example.com/other"]}}
            await env.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", patch, namespace=env.namespace)

            async def back() -> bool:
                config = await env.nnc("n1")
                return bool(config and {"example.com/other", FINALIZER} == set(config.metadata.finalizers))

            await until(back, "both finalizers are set")
            assert await until(lambda: env.events("Repaired", env.namespace), "the Event is recorded")
            await env.client.merge_patch(
                NODE_NETWORK_CONFIGS, "n1", {"metadata": {"finalizers": None}}, namespace=env.namespace
            )
            await until(lambda: _finalized(env), "the finalizer is set")

    @run_in_loop
    async def test_a_deleted_nnc_is_created_again_with_its_contents(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15, demand=3)
            first = await env.nnc("n1")
            assert first
            await env.client.delete(NODE_NETWORK_CONFIGS, "n1", namespace=env.namespace)

            async def again() -> bool:
                config = await env.nnc("n1")
                return bool(config and config.metadata.uid != first.metadata.uid and config.status.network_containers)

            await until(again, "it is created again")
            config = await env.nnc("n1")
            assert config
            assert (before, 15) == (config.status.network_containers[0], config.spec.requested)
            assert config.metadata.annotations == first.metadata.annotations

    @run_in_loop
    async def test_an_nnc_without_an_owner_is_replaced(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15)
            orphaned = {"metadata": {"ownerReferences": None}}
            await env.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", orphaned, namespace=env.namespace)
            assert before == await env.wait_owned("n1")

    @run_in_loop
    async def test_the_address_of_the_node_is_followed(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            moved = {"status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.9"}]}}
            await env.client.merge_patch(NODES, "n1", moved, subresource="status")

            async def written() -> bool:
                shown = await env.nc("n1")
                return bool(shown and "192.168.0.9" == shown.node_ip)

            await until(written, "the new address is written")


async def _finalized(env: ControllerEnv) -> bool:
    config = await env.nnc("n1")
    return bool(config and [FINALIZER] == list(config.metadata.finalizers))


class TestReRegistration:
    @run_in_loop
    async def test_the_same_machine_keeps_its_nc(self, envs: ControllerEnvs) -> None:
        """Deleted and registered again, its Pods still running."""
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15, demand=9)
            await delete_node(env, "n1")
            node = await env.create_node("n1")
            assert before == await env.wait_owned("n1", node.metadata.uid)

    @run_in_loop
    async def test_another_machine_of_the_same_name_gets_a_new_nc(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15, demand=9)
            await delete_node(env, "n1")
            await env.create_node("n1", boot="another")

            async def other() -> bool:
                shown = await env.nc("n1")
                return bool(shown and shown.id != before.id)

            await until(other, "it has its own NC")
            shown = await env.nc("n1")
            assert shown
            assert () == shown.ip_assignments

            async def closed() -> bool:
                held = (await env.details()).clusters
                return 1 == sum(each.network_containers for each in held)

            await until(closed, "the former NC is released")
