"""What the agent asks the API server for, and which updates of its Pods count."""

import asyncio
from typing import Any

from podpool.agent.deps import ChangeSignal
from podpool.api.builtin import PODS
from podpool.api.node_slices import INVENTORY_CONFIG_MAP
from podpool.runtime.transport import Request, Response
from tests.agent.node_env import NODE, SETTLE_TIME, NodeEnv, in_node_env
from tests.agent.secondary.slice_env import add, assign_slice, enable_slices

_SELECTORS = {"fieldSelector", "labelSelector"}


@in_node_env
async def test_only_pods_of_the_node_are_listed_and_watched(env: NodeEnv) -> None:
    """By field selector, so that the cost does not grow with the cluster."""
    selectors: list[str] = []
    send = env.transport.send

    async def record(request: Request) -> Response:
        if request.path == "/api/v1/pods":
            selectors.append(request.query.get("fieldSelector", ""))
        return await send(request)

    env.transport.send = record  # type: ignore[method-assign]  # for this test
    elsewhere = {"metadata": {"name": "other", "namespace": "default"}, "spec": {"nodeName": "node-2"}}
    await env.kube.create(PODS, elsewhere)
    await env.start()
    assert 2 <= len(selectors), "a list and a watch"
    assert {f"spec.nodeName={NODE}"} == set(selectors)


@in_node_env
async def test_every_watch_is_of_one_object_or_of_the_nodes_pods(env: NodeEnv) -> None:
    """With slices in use too: a watch by label costs the API server at each write, for each node."""
    watches: set[tuple[str, str]] = set()
    send = env.transport.send

    async def record(request: Request) -> Response:
        if request.query.get("watch"):
            selectors = "&".join(f"{key}={request.query[key]}" for key in _SELECTORS & request.query.keys())
            watches.add((request.path.rpartition("/")[2], selectors))
        return await send(request)

    env.transport.send = record  # type: ignore[method-assign]  # for this test
    await assign_slice(enable_slices(env))
    await env.start()
    await add(env, "a")
    await asyncio.sleep(SETTLE_TIME)
    named = {"nodes": NODE, "nodenetworkconfigs": NODE, "clustersubnets": "pods", "nodeslices": NODE}
    named["configmaps"] = INVENTORY_CONFIG_MAP
    expected = {(plural, f"fieldSelector=metadata.name={name}") for plural, name in named.items()}
    assert {*expected, ("pods", f"fieldSelector=spec.nodeName={NODE}")} == watches


@in_node_env
async def test_an_update_that_does_not_change_demand_is_ignored(env: NodeEnv) -> None:
    """A kubelet writes a Pod's status several times while it starts; each would be evaluated."""
    await env.bind("web")
    signal, changes = ChangeSignal(), list[float]()
    signal.subscribe(lambda: changes.append(env.clock.boot()))
    env.deps["changes"] = signal
    await env.start()

    async def patch(what: str, body: dict[str, Any], *, status: bool = False) -> int:
        changes.clear()
        await env.kube.merge_patch(PODS, what, body, namespace="default", subresource="status" if status else None)
        await asyncio.sleep(SETTLE_TIME)
        return len(changes)

    ignored = {"status": {"conditions": [{"type": "Ready", "status": "False"}], "podIPs": [{"ip": "10.0.1.1"}]}}
    assert 0 == await patch("web", ignored, status=True)
    assert 0 == await patch("web", {"status": {"phase": "Running"}}, status=True)
    assert 0 == await patch("web", {"metadata": {"labels": {"a": "b"}}})
    assert 0 < await patch("web", {"status": {"phase": "Succeeded"}}, status=True)
