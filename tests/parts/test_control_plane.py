"""The control plane is a real one: its watches, tokens, rights and audit log behave as in a cluster."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Unanswered
from typing import TYPE_CHECKING, Any

import pytest

from parts.api import ApiError
from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.api import Api
    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lamps.smoke.podpool.dev"},
    "spec": {
        "group": "smoke.podpool.dev",
        "scope": "Cluster",
        "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}
LAMPS = "/apis/smoke.podpool.dev/v1/lamps"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}


@pytest.fixture
def lamps(control_plane: ControlPlane) -> Iterator[Api]:
    """A cluster that knows lamps."""
    control_plane.kubectl("apply", "-f", "-", manifest=CRD)
    control_plane.kubectl("wait", "--for=condition=Established", "crd/lamps.smoke.podpool.dev")
    until(lambda: served(control_plane.admin), "lamps are served")
    yield control_plane.admin
    control_plane.settle()
    control_plane.kubectl("delete", "crd", "lamps.smoke.podpool.dev")


def served(api: Api) -> bool:
    try:
        return bool(api.get(LAMPS))
    except ApiError:
        return False


def lamp(name: str) -> dict[str, Any]:
    return {"apiVersion": "smoke.podpool.dev/v1", "kind": "Lamp", "metadata": {"name": name}}


def news(api: Api, *, since: str) -> Iterator[str]:
    """Names of lamps as an informer sees them: after `since`, or all again where the server forgot that version."""
    try:
        for _, seen in api.watch(LAMPS, since=since):
            yield seen["metadata"]["name"]
    except ApiError as error:
        if error.reason != "Expired":
            raise
        listed = api.get(LAMPS)
        yield from (item["metadata"]["name"] for item in listed["items"])
        yield from news(api, since=listed["metadata"]["resourceVersion"])


def test_a_watcher_goes_on_after_a_restart_and_misses_nothing(control_plane: ControlPlane, lamps: Api) -> None:
    watch = lamps.watch(LAMPS, since=lamps.get(LAMPS)["metadata"]["resourceVersion"])
    lamps.post(LAMPS, lamp("before"))
    kind, seen = next(watch)
    assert (kind, seen["metadata"]["name"]) == ("ADDED", "before")

    control_plane.apiserver.restart()
    assert list(watch) == [], "the stream ends with the server"

    lamps.post(LAMPS, lamp("after"))
    assert "after" in news(lamps, since=seen["metadata"]["resourceVersion"])


def test_what_was_written_outlives_a_killed_etcd(control_plane: ControlPlane, lamps: Api) -> None:
    lamps.post(LAMPS, lamp("kept"))
    control_plane.etcd.kill()
    control_plane.settle()
    assert "kept" in control_plane.kubectl("get", "lamps", "-o", "name")


def test_a_paused_server_answers_nothing_until_it_goes_on(control_plane: ControlPlane) -> None:
    control_plane.apiserver.pause()
    with ThreadPoolExecutor() as other:
        answer = other.submit(control_plane.admin.get, "/api/v1/namespaces/default")
        with pytest.raises(Unanswered):
            answer.result(timeout=1)
        control_plane.apiserver.resume()
        assert answer.result()["metadata"]["name"] == "default"


def test_the_audit_log_holds_each_call_whose_answer_was_read(control_plane: ControlPlane) -> None:
    agent = control_plane.api(control_plane.accounts.token("counted", rules=[PODS]))
    mark = control_plane.audit.mark()
    for _ in range(3):
        agent.get("/api/v1/pods")
    control_plane.admin.get("/api/v1/nodes")

    calls = control_plane.audit.calls(since=mark, user="system:serviceaccount:default:counted")
    assert Counter({("list", "pods", 200): 3}) == Counter((call.verb, call.resource, call.status) for call in calls)


def test_the_audit_log_holds_a_watch_as_soon_as_it_has_begun(control_plane: ControlPlane) -> None:
    agent = control_plane.api(control_plane.accounts.token("watcher", rules=[PODS]))
    mark = control_plane.audit.mark()
    connection = agent.connect()
    agent.send(connection, "GET", "/api/v1/pods?watch=true")

    calls = control_plane.audit.calls(since=mark, user="system:serviceaccount:default:watcher")
    assert [(call.verb, call.resource) for call in calls] == [("watch", "pods")]
    connection.close()


@pytest.mark.parametrize("pod", [None, "agent-on-node-7"])
def test_a_token_of_a_service_account_names_the_node_it_is_bound_to(
    control_plane: ControlPlane, pod: str | None
) -> None:
    token = control_plane.accounts.token("agent", namespace="kube-system", node="node-7", pod=pod)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = control_plane.api(token).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)

    user = answer["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:kube-system:agent"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == ["node-7"]


def test_a_service_account_may_do_what_its_rules_allow_and_no_more(control_plane: ControlPlane) -> None:
    agent = control_plane.api(control_plane.accounts.token("modest", rules=[PODS]))
    assert agent.get("/api/v1/pods")["kind"] == "PodList"
    with pytest.raises(ApiError) as refused:
        agent.get("/api/v1/secrets")
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
