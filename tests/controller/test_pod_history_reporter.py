"""Pod addresses in the ledger's history."""

import json

import pytest

from podpool.api.builtin import PODS
from podpool.ledger.admin_messages import PodUsage
from tests.controller.controller_env import ControllerEnv, ControllerEnvs, until
from tests.kube.event_loops import run_in_loop

STARTED = "2026-01-02T03:04:05Z"
NETWORKS = [
    {"name": "podpool", "interface": "eth0", "ips": ["10.0.0.2"], "default": True},
    {"name": "default/storage", "interface": "net1", "ips": ["172.16.0.9", "fd00::9"]},
    {"name": "default/broken", "ips": ["nonsense"]},
]


async def run_pod(env: ControllerEnv, name: str, address: str, **metadata: object) -> None:
    """Create a bound Pod, and report its address as a kubelet does."""
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}
    body = {"metadata": {"name": name, "namespace": env.namespace, **metadata}, "spec": spec}
    await env.client.create(PODS, body)
    await report(env, name, address)


async def report(env: ControllerEnv, name: str, address: str, phase: str = "Running") -> None:
    status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}], "startTime": STARTED}
    await env.client.merge_patch(PODS, name, {"status": status}, namespace=env.namespace, subresource="status")


async def pods_of(env: ControllerEnv, address: str, count: int, *, ended: int = 0) -> tuple[PodUsage, ...]:
    """Wait until the history has so many Pods for an address, of which so many no longer use it."""

    async def known() -> tuple[PodUsage, ...] | None:
        tenures = (await env.ledger.history(address=address)).periods
        uses = tenures[0].pods if tenures else ()
        return uses if (count, ended) == (len(uses), sum(use.until is not None for use in uses)) else None

    return await until(known, f"{count} Pods had {address}")


@pytest.mark.integration
@run_in_loop
async def test_a_pod_is_reported_with_uid_start_and_end(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start(pod_history=True)
        await env.join("n1")
        address = (await env.request_and_wait("n1", 15)).ip_assignments[0].ip
        await run_pod(env, "web", address)
        (use,) = await pods_of(env, address, 1)
        pod = await env.client.get(PODS, "web", namespace=env.namespace)
        assert (pod.metadata.uid, "web", env.namespace) == (use.uid, use.name, use.namespace)
        assert use.since.startswith("2026-01-02T03:04:05")
        await env.client.delete(PODS, "web", namespace=env.namespace, grace_seconds=0)
        await pods_of(env, address, 1, ended=1)
        await run_pod(env, "next", address)
        latest, before = await pods_of(env, address, 2, ended=1)
        assert ("next", "web") == (latest.name, before.name) or ("next", "web") == (before.name, latest.name)
        await report(env, "next", address, "Succeeded")
        await pods_of(env, address, 2, ended=2)


@pytest.mark.integration
@run_in_loop
async def test_secondary_networks_are_read_from_the_annotation(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start(pod_history=True)
        await env.join("n1")
        address = (await env.request_and_wait("n1", 15)).ip_assignments[0].ip
        annotations = {"k8s.v1.cni.cncf.io/network-status": json.dumps(NETWORKS)}
        await run_pod(env, "web", address, annotations=annotations)
        await pods_of(env, address, 1)
        reports = [json.loads(each.body)["pods"] for each in env.ledger_transport.sent if each.path == "/v1/pods"]
        used = {(use["network"], use["address"]) for pods in reports for use in pods}
        assert {("vnet", address), ("default/storage", "172.16.0.9"), ("default/storage", "fd00::9")} == used


@pytest.mark.integration
@run_in_loop
async def test_a_new_leader_reports_everything_again_which_changes_nothing(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        first = env.start(pod_history=True)
        await env.join("n1")
        address = (await env.request_and_wait("n1", 15)).ip_assignments[0].ip
        await run_pod(env, "web", address)
        before = await pods_of(env, address, 1)
        await env.stop(first)
        env.ledger_transport.sent.clear()
        env.start(pod_history=True)

        async def reported() -> bool:
            return any(each.path == "/v1/pods" for each in env.ledger_transport.sent)

        await until(reported, "it is reported again")
        assert before == await pods_of(env, address, 1)


@run_in_loop
async def test_it_can_be_turned_off(envs: ControllerEnvs) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start(pod_history=False)
        await env.join("n1")
        await run_pod(env, "web", "10.0.0.9")
        await env.request_and_wait("n1", 15)
        assert [] == [each for each in env.transport.sent if each.path == "/api/v1/pods" and each.query.get("watch")]
