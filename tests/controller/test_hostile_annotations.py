"""Text that authors of Pods and agent accounts choose never ends the controller, nor the service of others."""

import json

import pytest

from podpool.api.azure import AGENT_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.runtime.transport import Response
from tests.controller.controller_env import ControllerEnvs, until
from tests.controller.test_pod_history_reporter import pods_of, run_pod
from tests.kube.event_loops import run_in_loop

STATUS = "k8s.v1.cni.cncf.io/network-status"
NETWORK_STATUSES = {
    "deep": "[" * 2000,
    "deep-in-a-field": '[{"name":"a/b","x":' + "[" * 2000,
    "surrogate": r'[{"name":"\ud800","ips":["10.9.9.9"]}]',
    "nul": r'[{"name":"\u0000","ips":["10.9.9.9"]}]',
    "digits": '[{"name":"a/c","mtu":' + "9" * 5000 + ',"ips":["10.9.9.9"]}]',
    "long-name": '[{"name":"' + "a" * 100_000 + '","ips":["10.9.9.9"]}]',
    "many-addresses": json.dumps([{"name": "a/b", "ips": [f"10.9.{i // 250}.{i % 250}" for i in range(5000)]}]),
    "other-type": '{"name":1}',
}
REPORTS = {
    "deep": '{"x":' + "[" * 5000,
    "digits": '{"version":' + "9" * 5000 + "}",
    "large": '{"version":' + "9" * 400 + ',"demand":' + "9" * 400 + "}",
    "negative": '{"version":-1,"demand":-1,"cooledSeconds":-1}',
    "nul": r'{"bootID":"\u0000","networkContainer":"\u0000"}',
    "surrogate": r'{"bootID":"\ud800"}',
}


@pytest.mark.integration
@run_in_loop
async def test_the_history_survives_every_network_status(
    envs: ControllerEnvs, caplog: pytest.LogCaptureFixture
) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start(pod_history=True)
        await env.join("n1")
        granted = (await env.request_and_wait("n1", 15)).ip_assignments
        for (name, annotation), grant in zip(NETWORK_STATUSES.items(), granted, strict=False):
            await run_pod(env, name, grant.ip, annotations={STATUS: annotation})
        await run_pod(env, "web", granted[-1].ip)
        for grant in (*granted[: len(NETWORK_STATUSES)], granted[-1]):
            await pods_of(env, grant.ip, 1)
        bodies = [json.loads(each.body)["pods"] for each in env.ledger_transport.sent if each.path == "/v1/pods"]
        assert sum(use["network"] == "a/b" for pods in bodies for use in pods) <= 64
        assert "unexpectedly" not in caplog.text


@pytest.mark.integration
@run_in_loop
async def test_a_rejected_report_drops_only_the_invalid_pod(
    envs: ControllerEnvs, caplog: pytest.LogCaptureFixture
) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start(pod_history=True)
        await env.join("n1")
        granted = (await env.request_and_wait("n1", 15)).ip_assignments
        rejection = b'{"error":"invalid","message":"planted"}'
        env.ledger_transport.answer = lambda request: (
            Response(400, rejection) if b"evil" in request.body and request.path == "/v1/pods" else None
        )
        for name, grant in zip(("a", "evil", "b", "c"), granted, strict=False):
            await run_pod(env, name, grant.ip)
        for grant in (granted[0], *granted[2:4]):
            await pods_of(env, grant.ip, 1)
        assert 1 == caplog.text.count("ledger rejected a Pod's address")


@pytest.mark.integration
@run_in_loop
async def test_a_report_of_an_agent_harms_only_its_own_node(
    envs: ControllerEnvs, caplog: pytest.LogCaptureFixture
) -> None:
    async with envs.create() as env:
        await env.create_subnet()
        env.start()
        await env.join(*REPORTS)
        for name, text in REPORTS.items():
            annotations = {"metadata": {"annotations": {AGENT_ANNOTATION: text}}, "spec": {"ipsNotInUse": ["\0"]}}
            await env.client.merge_patch(NODE_NETWORK_CONFIGS, name, annotations, namespace=env.namespace)
        await env.join("n1")
        await env.request_and_wait("n1", 15)
        await env.client.delete(NODES, "deep")

        async def collected() -> bool:
            return await env.nnc("deep") is None

        await until(collected, "the NNC of a deleted Node is deleted, whatever it contains")
        await env.request_and_wait("n1", 31)
        assert "unexpectedly" not in caplog.text
