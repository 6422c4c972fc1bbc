"""Requests of NNCs: growing, releasing, and full subnets."""

import asyncio

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS, NetworkContainer
from podpool.controller import node_reconciler
from podpool.core.scaling import Scaler, target
from podpool.ledger.admin_messages import CreateTokenRequest, RotateTokenRequest
from podpool.ledger.messages import ReconcileRequest, SubnetGrowth, TokenLimits
from tests.controller.controller_env import SUBNET, ControllerEnv, ControllerEnvs, until
from tests.kube.event_loops import run_in_loop


def names(shown: NetworkContainer) -> list[str]:
    return [each.name for each in shown.ip_assignments]


class TestGrowing:
    @run_in_loop
    async def test_a_node_with_25_pods_has_48_addresses_its_primary_among_them(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            wanted = target(demand=25, scaler=Scaler(16, 50), primaries=1, maximum=250)
            shown = await env.request_and_wait("n1", wanted, demand=25)
            assert 48 == len({shown.primary_ip, *(each.ip for each in shown.ip_assignments)})
            config = await env.nnc("n1")
            assert config
            assert (47, "Updated") == (config.status.assigned, config.status.status)

    @run_in_loop
    async def test_each_change_raises_the_version_and_keeps_the_grants(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            versions, given = [0], set[str]()
            for wanted in (15, 31, 47):
                shown = await env.request_and_wait("n1", wanted)
                versions.append(shown.version)
                assert given <= set(names(shown))
                given = set(names(shown))
            assert sorted(set(versions)) == versions

    @run_in_loop
    async def test_concurrent_changes_are_sent_in_few_calls(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/16")
            env.start()
            nodes = [f"n{number}" for number in range(20)]
            await env.join(*nodes)
            env.ledger_transport.sent.clear()
            env.transport.sent.clear()
            await asyncio.gather(*(env.request(node, 15) for node in nodes))
            await asyncio.gather(*(env.wait_assigned(node, 15) for node in nodes))
            calls = [_items(each.body) for each in env.ledger_transport.sent if each.path == "/v1/reconcile"]
            asked = [name for call in calls for name in call]
            assert sorted(nodes) == sorted(asked), "once each, and not again when the status is seen"
            assert len(calls) < len(nodes)
            patches = [each.path for each in env.transport.sent if each.method == "PATCH"]
            assert len(nodes) == sum("/nodenetworkconfigs/" in each and each.endswith("/status") for each in patches)


def _items(body: bytes) -> list[str]:
    return [item.node for item in msgspec.json.decode(body, type=ReconcileRequest).items]


class TestReleasing:
    @run_in_loop
    async def test_only_grants_pending_release_are_removed(self, envs: ControllerEnvs) -> None:
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 31)
            await env.request("n1", 15)  # fewer, but none pending release
            await env.request("n1", 15, released=tuple(names(before)[:10]))
            shown = await env.wait_assigned("n1", 21)
            assert names(before)[10:] == names(shown)
            assert shown.version > before.version

    @run_in_loop
    async def test_a_release_and_a_larger_request_go_together(self, envs: ControllerEnvs) -> None:
        """Grants pending release are removed although more are requested."""
        async with envs.running("n1") as env:
            before = await env.request_and_wait("n1", 15)
            await env.request("n1", 31, released=tuple(names(before)[:4]))
            shown = await env.wait_assigned("n1", 31)
            assert set(names(before)[4:]) < set(names(shown))
            assert not set(names(before)[:4]) & set(names(shown))

    @run_in_loop
    async def test_a_late_release_frees_no_new_grant(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=1)
            env.start()
            await env.join("n1", "n2")
            first = await env.request_and_wait("n1", 8)
            await env.request("n1", 0, released=tuple(names(first)))
            await env.wait_assigned("n1", 0)
            second = await env.request_and_wait("n2", 8)
            await env.request("n1", 1, released=tuple(names(first)))
            await env.wait_assigned("n1", 1)
            assert second == await env.nc("n2")


class TestQuota:
    @run_in_loop
    async def test_what_the_quota_permits_is_granted_with_the_reason_and_more_after_a_rotation(
        self, envs: ControllerEnvs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(node_reconciler, "LIMIT_RETRY", 0.2)
        async with envs.create() as env:
            await env.create_subnet()
            await env.ledger.revoke_token("cluster")
            limits = TokenLimits(max_addresses=6, max_network_containers=1)
            made = CreateTokenRequest(name="cluster", limits=limits)
            env.token = (await env.ledger.create_token(made)).secret or ""
            env.start()
            await env.join("n1")
            await env.request("n1", 8, demand=8, waiting=5)
            shown = await env.wait_assigned("n1", 5)
            assert "NCUpdateSubnetFullError" == shown.status
            assert "has reached its quota of 6 addresses in network vnet" in shown.status_reason
            (event,) = await until(lambda: env.events("InsufficientAddresses"), "the Event is recorded")
            assert "token rotate NAME --max-addresses" in event.note
            await env.create_node("n2")
            (event,) = await until(lambda: env.events("AllocationFailed"), "the Event is recorded")
            assert "its quota is 1" in event.note
            more = RotateTokenRequest(limits=TokenLimits(max_addresses=100, max_network_containers=2))
            await env.ledger.rotate_token("cluster", more)
            assert "" == (await env.wait_assigned("n1", 8)).status_reason
            await env.wait_nc("n2")


class TestFullSubnet:
    @run_in_loop
    async def test_what_is_free_is_granted_and_more_when_it_becomes_free(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/28", reserved_for_primaries=1)
            env.start()
            await env.join("n1", "n2")
            first = await env.request_and_wait("n1", 8)
            await env.request("n2", 8, demand=8, waiting=5)
            await env.wait_assigned("n2", 3)
            config = await env.nnc("n2")
            assert config
            assert ("Updating", "NCUpdateSubnetFullError") == (
                config.status.status,
                config.status.network_containers[0].status,
            )
            (event,) = await until(lambda: env.events("InsufficientAddresses"), "the Event is recorded")
            assert ("Node", "n2", "Warning") == (event.regarding.kind, event.regarding.name, event.type)
            assert "subnet vnet.pods granted 3 of 8 requested addresses" in event.note
            await env.request("n1", 1, released=tuple(names(first)[1:]))
            await env.wait_assigned("n2", 8)
            config = await env.nnc("n2")
            assert config
            assert ("Updated", "NCUpdateSuccess") == (
                config.status.status,
                config.status.network_containers[0].status,
            )

    @run_in_loop
    async def test_a_subnet_without_a_free_primary_is_reported_and_retried(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet("10.0.0.0/30", reserved_for_primaries=0)
            env.start()
            await env.join("n1", "n2")
            await env.create_node("n3")
            await until(lambda: env.events("AllocationFailed"), "the Event is recorded")

            async def error() -> bool:
                config = await env.nnc("n3")
                return bool(config and "Error" == config.status.status)

            await until(error, "its NNC shows the error")
            await env.ledger.grow_subnet(SUBNET, SubnetGrowth(cidr="10.0.0.0/24"))
            await env.wait_nc("n3")
            config = await env.nnc("n3")
            assert config
            assert "Updated" == config.status.status


class TestSteadyState:
    @pytest.mark.integration
    @run_in_loop
    async def test_nothing_is_written_but_the_lease_when_nothing_changes(self, envs: ControllerEnvs) -> None:
        async with envs.create() as env:
            await env.create_subnet()
            env.start(pod_history=True)
            await env.join("n1", "n2")
            await env.request_and_wait("n1", 15, demand=2)
            await _quiet(env)
            env.transport.sent.clear()
            await asyncio.sleep(3.0)  # fifteen polls, a dozen scans of node GC, three of orphan GC
            assert [] == _writes(env)
            assert [] == [each for each in env.ledger_transport.sent if each.path == "/v1/pods"]


def _writes(env: ControllerEnv) -> list[str]:
    return [
        f"{each.method} {each.path}"
        for each in env.transport.sent
        if each.method != "GET" and "leases" not in each.path
    ]


async def _quiet(env: ControllerEnv) -> None:
    async def quiet() -> bool:
        env.transport.sent.clear()
        await asyncio.sleep(0.5)
        return not _writes(env)

    await until(quiet, "nothing is written any more")


@pytest.mark.parametrize("third_party", [True, False])
@run_in_loop
async def test_a_new_scaler_is_written_into_nncs_of_third_party_agents_only(
    envs: ControllerEnvs, third_party: bool
) -> None:
    async with envs.running("n1") as env:
        if third_party:
            patch = {"spec": {"requestedIPCount": 15}}
            await env.client.merge_patch(NODE_NETWORK_CONFIGS, "n1", patch, namespace=env.namespace)
            await env.wait_assigned("n1", 15)
        else:
            await env.request_and_wait("n1", 15)
        await env.override(batch=8)

        async def batch() -> bool:
            shown = await env.cluster_subnet()
            return bool(shown and 8 == shown.status.scaler.batch)

        await until(batch, "the new batch is published")
        await _quiet(env)
        config = await env.nnc("n1")
        assert config
        assert (8 if third_party else 16) == config.status.scaler.batch_size
