"""When a lost grant is certainly used by no sandbox."""

import asyncio

from podpool.agent.lost_grants import podless_sandboxes, unused_lost_grants
from podpool.agent.pool import Pool
from podpool.agent.records import Assigned, CooldownForced, NCAccepted, NCAdopted, PodIdentity
from podpool.api.builtin import Pod, PodAnnotations, PodIP, PodMeta, PodSpec, PodStatus
from podpool.cni.protocol import Attachment
from tests.agent.disks import MemoryDisk
from tests.agent.nc_samples import NC, grants, status
from tests.agent.node_env import NodeEnv, in_node_env
from tests.agent.sandbox_host import FOUND, SandboxHost

LONG = 900.0


def pool_with_lost(*, additional_nc: bool = False) -> Pool:
    """Return a pool in which g1 and g2 are lost, and b1 of an additional NC."""
    pool = Pool()
    pool.apply(NCAdopted(nc=NC))
    pool.apply(CooldownForced(at=0.0, lost=("g1", "g2", "b1")))
    pool.apply(NCAccepted(nc=status(1, grants(1, 2)), at=0.0))
    if additional_nc:
        pool.apply(NCAccepted(nc=status(1, {"b1": "10.0.2.1"}, nc="nc-2"), at=0.0))
    return pool


def pod(name: str, *shown: str, phase: str = "Running", host: bool = False, config_hash: str | None = None) -> Pod:
    ips = tuple(PodIP(ip=each) for each in shown)
    annotations = PodAnnotations(config_hash=config_hash)
    return Pod(
        metadata=PodMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=annotations),
        spec=PodSpec(host_network=host),
        status=PodStatus(phase=phase, pod_ips=ips),
    )


def unused(pool: Pool, *pods: Pod, added: tuple[str, ...] = ()) -> set[str]:
    return set(unused_lost_grants(pool, pods, set(added)))


def test_addresses_that_no_pod_shows_are_unused() -> None:
    assert {"g1", "g2"} == unused(pool_with_lost())
    assert {"g2"} == unused(pool_with_lost(), pod("a", "10.0.1.1"))


def test_a_pod_that_shows_no_address_may_use_any() -> None:
    assert set() == unused(pool_with_lost(), pod("a"))


def test_but_not_one_that_sent_an_add_or_has_an_assignment_or_needs_none() -> None:
    assert {"g1", "g2"} == unused(pool_with_lost(), pod("a"), pod("b"), added=("uid-a", "default/b"))
    assert {"g1", "g2"} == unused(pool_with_lost(), pod("a", phase="Succeeded"), pod("b", host=True))
    pool = pool_with_lost()
    pool.lost.discard("g1")
    pool.apply(
        Assigned(grant="g1", attachment=Attachment(container_id="a", ifname="eth0"), pod=PodIdentity(uid="uid-a"))
    )
    assert {"g2"} == unused(pool, pod("a"))


def test_a_static_pod_is_known_by_its_config_hash() -> None:
    """Its mirror Pod has another UID than its sandbox."""
    static = pod("a", config_hash="hash")
    assert {"g1", "g2"} == unused(pool_with_lost(), static, added=("hash",))
    pool = pool_with_lost()
    attachment = Attachment(container_id="a", ifname="eth0")
    pool.apply(Assigned(grant="g1", attachment=attachment, pod=PodIdentity(uid="hash")))
    assert {"g2"} == unused(pool, static)
    assert {"g1", "g2"} == unused(pool, pod("a", "10.0.1.1", config_hash="hash"))


def test_addresses_of_additional_ncs_are_never_shown() -> None:
    assert {"g2"} == unused(pool_with_lost(additional_nc=True), pod("a", "10.0.1.1"))
    assert {"g1", "g2", "b1"} == unused(pool_with_lost(additional_nc=True), pod("a"), added=("uid-a",))


class TestSandboxesOfTheRuntime:
    def test_one_without_pod_and_assignment_may_use_any(self) -> None:
        assert ["b", "c"] == podless_sandboxes({"c": "uid-c", "b": "", "a": "uid-a"}, pool_with_lost(), [pod("a")])

    def test_one_with_an_assignment_has_that_address(self) -> None:
        pool = pool_with_lost()
        attachment = Attachment(container_id="s", ifname="eth0")
        pool.apply(Assigned(grant="g1", attachment=attachment, pod=PodIdentity(uid="uid-a")))
        assert ["former"] == podless_sandboxes({"s": "uid-a", "former": "uid-a"}, pool, [])

    def test_those_of_finished_host_network_and_static_pods_are_accounted_for(self) -> None:
        pods = [pod("a", phase="Succeeded"), pod("b", host=True), pod("c", config_hash="hash")]
        assert [] == podless_sandboxes({"a": "uid-a", "b": "uid-b", "c": "hash"}, pool_with_lost(), pods)


class TestForceDeletedPod:
    """Its sandbox runs on, and the journal is lost in the same boot."""

    async def lose_journal(self, env: NodeEnv, host: SandboxHost) -> str:
        """Return the address of the sandbox."""
        await host.begin()
        await host.start("outlives")
        assert env.agent
        (assignment,) = env.agent.pool.assigned.values()
        await asyncio.sleep(FOUND)
        await env.remove("outlives")
        await env.kill()
        env.disk = MemoryDisk()
        await env.start(disk=env.disk, wait=False)
        return assignment.grant.address

    def available(self, env: NodeEnv) -> set[str]:
        assert env.agent
        pool = env.agent.pool
        return {each.address for each in pool.grants.free() if each.id not in pool.lost}

    def test_its_address_is_not_assigned_while_the_runtime_lists_the_sandbox(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            used = await self.lose_journal(env, host)
            await asyncio.sleep(LONG)
            for number in range(15):
                await host.start(f"new-{number}")
            assert env.agent
            assert used not in {each.grant.address for each in env.agent.pool.assigned.values()}
            (line,) = (each for each in env.warnings if "without a Pod may use them" in each)
            assert "count=1 sandbox=outlives" in line
            host.end("outlives")
            await asyncio.sleep(FOUND)
            assert used in self.available(env)

        test()

    def test_nothing_is_cleared_before_the_runtime_has_listed_its_sandboxes(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            host.reachable = False
            used = await self.lose_journal(env, host)
            await asyncio.sleep(LONG)
            assert used not in self.available(env)
            assert 1 == sum("before the runtime lists its sandboxes" in each for each in env.warnings)
            host.end("outlives")
            await asyncio.sleep(FOUND)
            assert used not in self.available(env)
            host.reachable = True
            await asyncio.sleep(FOUND)
            assert used in self.available(env)

        test()

    def test_a_list_of_another_runtime_clears_nothing(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            used = await self.lose_journal(env, host)
            await asyncio.sleep(FOUND)
            await host.start("new")
            await asyncio.sleep(FOUND)
            host.listed.clear()
            await asyncio.sleep(LONG)
            assert used not in self.available(env)

        test()

    def test_without_a_runtime_its_sandbox_is_assumed_to_have_ended(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            used = await self.lose_journal(env, SandboxHost(env, runtime=False))
            await asyncio.sleep(LONG)
            assert used in self.available(env)

        test()
