"""Sandboxes that ended without a DEL: found in time, and no other is released."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from podpool.agent.deps import AgentDeps, no_netns_gone
from podpool.agent.netns import MAX_PATH, NetnsProbe, present_netns, recorded_netns
from podpool.agent.sandbox_gc import ADD_CHAIN_SECONDS, RuntimeObservations, SandboxInterface, is_mass_loss
from podpool.api.builtin import PODS
from podpool.api.whereabouts import IP_POOLS
from podpool.cni.protocol import Attachment
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import SYSTEM, NodeEnv, in_node_env
from tests.agent.sandbox_host import FOUND, SHARED, SLICED, SandboxHost

LONG = 900.0
Test = Callable[[SandboxHost], Coroutine[Any, Any, None]]


def on_host(test: Test, *, runtime: bool = True) -> None:
    """Run a test on a host with an agent."""

    @in_node_env
    async def run(env: NodeEnv) -> None:
        host = SandboxHost(env, runtime=runtime)
        await host.begin()
        await test(host)

    run()


def interface(sandbox: str) -> SandboxInterface:
    """Return an interface as a journal of an older agent has it."""
    attachment = Attachment(container_id=sandbox, ifname="eth0")
    return SandboxInterface(attachment=attachment, pod="", pod_uid="uid", netns="", added=0.0, addresses=())


@pytest.mark.parametrize("ipam", [None, SLICED, SHARED], ids=["pool", "slice", "shared range"])
class TestEverySource:
    @pytest.mark.parametrize("runtime", [True, False])
    def test_a_lost_del_is_found_in_time(self, ipam: dict[str, Any] | None, runtime: bool) -> None:
        async def test(host: SandboxHost) -> None:
            for name in ("lost", "kept"):
                await host.start(name, ipam)
            await asyncio.sleep(FOUND)
            await host.lose("lost")
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        on_host(test, runtime=runtime)

    def test_a_former_sandbox_of_a_running_pod_is_found_by_the_runtime(self, ipam: dict[str, Any] | None) -> None:
        async def test(host: SandboxHost) -> None:
            uid = await host.bind("web")
            for name in ("former", "present"):
                await host.start(name, ipam, uid=uid)
                await asyncio.sleep(FOUND)
                host.end("former")
            await asyncio.sleep(FOUND)
            assert {"present"} == await host.holders()

        on_host(test)

    @pytest.mark.parametrize("runtime", [True, False])
    def test_a_restarted_agent_finds_it(self, ipam: dict[str, Any] | None, runtime: bool) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=runtime)
            await host.begin()
            for name in ("lost", "kept"):
                await host.start(name, ipam)
            await env.kill()
            await host.lose("lost")
            await env.start()
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        test()

    def test_a_sandbox_without_pod_uid_is_never_released(self, ipam: dict[str, Any] | None) -> None:
        async def test(host: SandboxHost) -> None:
            await host.bind("unnamed")
            await host.start("unnamed", ipam, uid="")
            await host.start("kept", ipam)
            await asyncio.sleep(FOUND)
            await host.lose("unnamed")
            await asyncio.sleep(LONG)
            assert {"unnamed", "kept"} == await host.holders()

        on_host(test)


class TestRuntime:
    def test_a_sandbox_that_was_never_listed_waits_for_the_longest_add_chain(self) -> None:
        async def test(host: SandboxHost) -> None:
            await host.start("kept")
            await host.start("slow")
            host.end("slow")
            await asyncio.sleep(ADD_CHAIN_SECONDS - 1.0)
            assert {"kept", "slow"} == await host.holders()
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        on_host(test)

    def test_one_list_is_not_enough(self) -> None:
        async def test(host: SandboxHost) -> None:
            for name in ("kept", "hidden"):
                await host.start(name)
            host.namespaces.clear()
            for _ in range(20):
                await asyncio.sleep(OBSERVATION_INTERVAL / 2)
                host.listed ^= {"hidden"}
            assert {"kept", "hidden"} == await host.holders()

        on_host(test)

    def test_a_list_without_any_known_sandbox_does_not_count(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            await host.begin()
            for name in "abc":
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.namespaces.clear()
            host.listed = {"of another runtime"}
            await asyncio.sleep(LONG)
            assert set("abc") == await host.holders()
            assert 1 == sum("check --cri-socket" in line for line in env.warnings)

        test()

    def test_a_sandbox_that_it_lost_keeps_its_address_while_its_namespace_exists(self) -> None:
        """A containerd that cannot load the metadata of a sandbox logs it and continues; the sandbox runs on."""

        async def test(host: SandboxHost) -> None:
            for name in ("kept", "running"):
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.listed.discard("running")
            await asyncio.sleep(LONG)
            assert {"kept", "running"} == await host.holders()
            host.end("running")
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        on_host(test)

    def test_where_namespaces_are_not_seen_its_list_decides(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            env.deps.update(netns_gone=no_netns_gone)
            await host.begin()
            for name in ("kept", "lost"):
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.end("lost")
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        test()

    def test_while_it_is_unreachable_pods_are_compared(self) -> None:
        async def test(host: SandboxHost) -> None:
            uid = await host.bind("web")
            await host.start("former", uid=uid)
            await host.start("lost")
            await asyncio.sleep(FOUND)
            host.reachable = False
            host.end("former")
            await host.lose("lost")
            await asyncio.sleep(LONG)
            assert {"former"} == await host.holders()

        on_host(test)

    def test_while_it_does_not_respond_pods_are_compared(self) -> None:
        async def test(host: SandboxHost) -> None:
            await host.start("lost")
            await host.start("kept")
            await asyncio.sleep(FOUND)
            host.responds = False
            await host.lose("lost")
            await asyncio.sleep(FOUND)
            assert {"kept"} == await host.holders()

        on_host(test)

    def test_a_sandbox_of_which_the_time_of_the_add_is_not_known_counts_from_the_start_of_the_agent(self) -> None:
        """Older agents did not record it."""

        @in_node_env
        async def test(env: NodeEnv) -> None:
            host, clock, none = SandboxHost(env), SetClock(), frozenset[str]()
            clock.pass_time(10 * ADD_CHAIN_SECONDS)
            deps = AgentDeps(
                node="node-1",
                boot_id="boot-1",
                kube=env.kube,
                disk=MemoryDisk(),
                clock=clock,
                rng=Random(1),  # noqa: S311  seeded
                runtime=host,
            )
            runtime = RuntimeObservations(deps)
            held = listed, unlisted = interface("listed"), interface("unlisted")
            host.list_sandbox(listed.sandbox, uid="uid")
            for _ in range(5):
                assert not await runtime.observe(held, pods=none)
                clock.pass_time(OBSERVATION_INTERVAL)
            clock.pass_time(ADD_CHAIN_SECONDS)
            assert not await runtime.observe(held, pods=none)
            clock.pass_time(OBSERVATION_INTERVAL)
            assert {unlisted} == await runtime.observe(held, pods=none)

        test()


class TestPods:
    def test_pods_that_are_not_listed_yet_are_not_gone(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=False)
            await host.begin()
            await host.start("kept")
            await env.kill()
            host.namespaces.clear()
            env.transport.hide("/api/v1/pods")
            await env.start(wait=False)
            await asyncio.sleep(LONG)
            assert env.agent
            assert {"kept"} == {each.attachment.container_id for each in env.agent.pool.assigned.values()}

        test()

    def test_the_sandbox_of_a_force_deleted_pod_keeps_its_address_while_its_namespace_exists(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=False)
            await host.begin()
            await host.start("running")
            await env.remove("running")
            await asyncio.sleep(LONG)
            assert {"running"} == await host.holders()
            host.end("running")
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        test()

    def test_a_static_pod_is_found_by_its_config_hash(self) -> None:
        """Its namespace is hidden, as for an agent that sees another file system."""

        async def test(host: SandboxHost) -> None:
            await host.bind("static", annotations={"kubernetes.io/config.hash": "hash-1"})
            await host.start("static", uid="hash-1")
            host.namespaces.clear()
            await asyncio.sleep(LONG)
            assert {"static"} == await host.holders()

        on_host(test, runtime=False)

    def test_a_finished_pod_counts_as_gone(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=False)
            await host.begin()
            await host.start("job")
            finished = {"status": {"phase": "Succeeded"}}
            await env.kube.merge_patch(PODS, "job", finished, namespace="default", subresource="status")
            await asyncio.sleep(FOUND)
            assert {"job"} == await host.holders()
            host.end("job")
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        test()


class TestSharedRange:
    def test_an_entry_that_the_controller_released_does_not_come_back(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=False)
            await host.begin()
            await host.start("lost", SHARED)
            await host.lose("lost")
            pool = IP_POOLS, "10.2.0.0-24"
            await env.kube.merge_patch(*pool, {"spec": {"allocations": {"1": None}}}, namespace=SYSTEM)
            await asyncio.sleep(2 * Settings().relist_interval)
            assert set() == await host.holders()

        test()

    def test_an_allocation_of_an_earlier_boot_is_released_without_its_pod(self) -> None:
        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env, runtime=False)
            await host.begin()
            await host.start("lost", SHARED)
            await asyncio.sleep(1.0)
            await env.reboot("boot-2")
            await env.report_boot("boot-2")
            await env.remove("lost")
            await env.start()
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        test()


class TestMassLoss:
    @pytest.mark.parametrize(("lost", "of", "expected"), [(4, 4, False), (5, 5, True), (6, 20, False), (7, 20, True)])
    def test_it_is_more_than_30_percent_and_at_least_5(self, lost: int, of: int, expected: bool) -> None:
        assert expected is is_mass_loss(lost, of=of)

    @pytest.mark.parametrize("runtime", [True, False])
    def test_what_both_sources_show_is_released(self, runtime: bool) -> None:
        async def test(host: SandboxHost) -> None:
            for name in "abcdefgh":
                await host.start(name)
            await asyncio.sleep(FOUND)
            await host.lose(*"abcdefgh")
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        on_host(test, runtime=runtime)

    def test_what_only_the_runtime_shows_is_held_back(self) -> None:
        """Its state was lost: containers may run on, in namespaces that the agent does not see."""

        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            env.deps.update(netns_gone=no_netns_gone)
            await host.begin()
            for name in "abcdefgh":
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.listed -= set("abcdef")
            await asyncio.sleep(LONG)
            assert set("abcdefgh") == await host.holders()
            assert env.agent
            assert 6 == env.agent.metrics_snapshot().lost_dels_held_back
            assert 1 == sum("at once" in line for line in env.warnings)

        test()

    def test_what_the_runtime_does_not_list_is_released_if_its_namespaces_are_gone(self) -> None:
        """The runtime was killed and its state deleted: every Pod gets a new sandbox, and Pods show no loss."""

        async def test(host: SandboxHost) -> None:
            uids = {f"{number}": await host.bind(f"pod-{number}") for number in range(8)}
            for number, uid in uids.items():
                await host.start(f"former-{number}", uid=uid)
            await asyncio.sleep(FOUND)
            host.end(*(f"former-{number}" for number in uids))
            for number, uid in uids.items():
                await host.start(f"present-{number}", uid=uid)
            await asyncio.sleep(FOUND)
            assert {f"present-{number}" for number in uids} == await host.holders()

        on_host(test)

    def test_also_while_only_other_pods_of_the_node_have_sandboxes(self) -> None:
        """All addresses are held by the former ones, so that only Pods on the host network have new sandboxes."""

        async def test(host: SandboxHost) -> None:
            for name in "abcdefgh":
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.end(*"abcdefgh")
            host.list_sandbox("proxy", uid=await host.bind("proxy"))
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        on_host(test)

    def test_what_only_pods_show_is_held_back(self) -> None:
        """The agent sees no network namespace, and the API server no Pod."""

        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            await host.begin()
            for name in "abcdef":
                await host.start(name)
            host.namespaces.clear()
            await env.remove(*"abcdef")
            await asyncio.sleep(LONG)
            assert set("abcdef") == await host.holders()

        test()

    def test_a_runtime_that_never_responded_counts_as_none(self) -> None:
        """A socket that was found may be that of a containerd without CRI."""

        async def test(host: SandboxHost) -> None:
            host.reachable = False
            for name in "abcdef":
                await host.start(name)
            await host.lose(*"abcdef")
            await asyncio.sleep(FOUND)
            assert set() == await host.holders()

        on_host(test)

    def test_a_runtime_that_responded_once_must_agree(self) -> None:
        async def test(host: SandboxHost) -> None:
            for name in "abcdef":
                await host.start(name)
            await asyncio.sleep(FOUND)
            host.reachable = False
            await host.lose(*"abcdef")
            await asyncio.sleep(LONG)
            assert set("abcdef") == await host.holders()

        on_host(test)

    def test_allocations_of_an_earlier_boot_are_released_and_do_not_count(self) -> None:
        """Their Pods live on in new sandboxes."""

        @in_node_env
        async def test(env: NodeEnv) -> None:
            host = SandboxHost(env)
            await host.begin()
            uids = [await host.bind(f"pod-{number}") for number in range(6)]
            former, present = {f"former-{uid}" for uid in uids}, {f"present-{uid}" for uid in uids}
            for uid in uids:
                await host.start(f"former-{uid}", SHARED, uid=uid)
            await asyncio.sleep(1.0)
            await env.reboot("boot-2")
            await env.report_boot("boot-2")
            host.end(*former)
            await env.start()
            for uid in uids:
                await host.start(f"present-{uid}", SHARED, uid=uid)
            await host.start("lost", SHARED, uid=uids[0])
            await asyncio.sleep(ADD_CHAIN_SECONDS)
            host.end("lost")
            await asyncio.sleep(FOUND)
            assert present == await host.holders()
            assert env.agent
            assert 0 == env.agent.metrics_snapshot().lost_dels_held_back

        test()


def test_an_unreachable_runtime_is_logged_once_per_change_and_shown() -> None:
    """In a metric and as a note of /readyz: the agent stays ready."""

    @in_node_env
    async def test(env: NodeEnv) -> None:
        host = SandboxHost(env)
        host.reachable = False
        await host.begin()
        assert env.agent
        for _ in range(2):
            env.logs.clear()
            host.reachable = False
            await asyncio.sleep(LONG)
            assert env.agent.metrics_snapshot().runtime_unreachable
            (check,) = (each for each in env.agent.health_checks() if each.name == "runtime")
            assert "lost DELs are found by Pods alone" in check.note
            assert "connection refused" in check.note
            (line,) = (each for each in env.logs if "sandboxes" in each)
            assert "cannot list the runtime's sandboxes, lost DELs are found by Pods alone; check --cri-socket" in line
            env.logs.clear()
            host.reachable = True
            await asyncio.sleep(LONG)
            assert not env.agent.metrics_snapshot().runtime_unreachable
            assert "" == next(each.note for each in env.agent.health_checks() if each.name == "runtime")
            assert 1 == sum("the runtime lists its sandboxes" in each for each in env.logs)
        assert not [each.failure for each in env.agent.health_checks() if each.failure]

    test()


def test_it_is_logged_and_counted_with_pod_address_sandbox_and_reason() -> None:
    @in_node_env
    async def test(env: NodeEnv) -> None:
        host = SandboxHost(env)
        await host.begin()
        for name in ("lost", "kept"):
            await host.start(name)
        await asyncio.sleep(FOUND)
        await host.lose("lost")
        await asyncio.sleep(FOUND)
        (line,) = [each for each in env.warnings if "without a DEL" in each]
        for field in ("pod=default/lost", "address=10.0.", "sandbox=lost", "reason=the runtime does not list it"):
            assert field in line
        assert env.agent
        assert 1 == env.agent.metrics_snapshot().lost_dels
        assert any("cooling down" in line and "sandbox=lost" in line for line in env.logs)

    test()


def test_the_delay_of_the_settings_decides_how_soon_it_is_found() -> None:
    @in_node_env
    async def test(env: NodeEnv) -> None:
        env.settings = Settings(sandbox_gc_delay=10.0)
        host = SandboxHost(env)
        await host.begin()
        for name in ("lost", "kept"):
            await host.start(name)
        await asyncio.sleep(5.0)
        assert env.agent
        assert 2 == env.agent.metrics_snapshot().listed_sandboxes
        await host.lose("lost")
        await asyncio.sleep(9.0)
        assert {"lost", "kept"} == await host.holders()
        await asyncio.sleep(12.0)
        assert {"kept"} == await host.holders()
        assert 1 == env.agent.metrics_snapshot().listed_sandboxes
        host.reachable = False
        await asyncio.sleep(6.0)
        assert 0 == env.agent.metrics_snapshot().listed_sandboxes

    test()


class TestNetns:
    def test_it_is_gone_when_its_file_is_absent_from_its_directory(self, tmp_path: Path) -> None:
        there, absent, hidden = tmp_path / "there", tmp_path / "absent", tmp_path / "no-directory" / "net"
        there.touch()
        paths = {str(there), str(absent), str(hidden), "/proc/0/ns/net"}
        assert {str(absent)} == asyncio.run(NetnsProbe().gone(paths))

    def test_it_is_present_when_its_file_is_in_a_directory_that_is_seen(self, tmp_path: Path) -> None:
        there, absent, hidden = tmp_path / "there", tmp_path / "absent", tmp_path / "no-directory" / "net"
        there.touch()
        paths = {str(there), str(absent), str(hidden), "/proc/0/ns/net"}
        assert {str(there)} == asyncio.run(present_netns(paths, NetnsProbe().gone))
        assert frozenset() == asyncio.run(present_netns(paths, no_netns_gone))

    @pytest.mark.parametrize("path", ["", "net", "/run/\udcff", "/run/\n", "/" + "x" * MAX_PATH])
    def test_only_plain_paths_are_recorded(self, path: str) -> None:
        assert "/run/netns/x" == recorded_netns("/run/netns/x")
        assert "" == recorded_netns(path)

    def test_a_file_system_that_does_not_respond_blocks_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        blocked = threading.Event()
        monkeypatch.setattr("podpool.agent.netns.PROBE_TIMEOUT", 0.05)
        probed: list[str] = []

        def is_gone(path: str) -> bool:
            probed.append(path)
            return blocked.wait(10.0)

        monkeypatch.setattr("podpool.agent.netns._is_gone", is_gone)

        async def test() -> None:
            probe = NetnsProbe()
            assert frozenset() == await probe.gone({"/nfs/x"})
            assert frozenset() == await probe.gone({"/nfs/x"})  # no second thread
            assert ["/nfs/x"] == probed
            blocked.set()

        asyncio.run(test())
