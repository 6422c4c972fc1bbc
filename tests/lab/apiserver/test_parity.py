"""Raw requests get the same responses from the lite API server and from kube-apiserver."""

import asyncio
from typing import Any

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import PODS
from podpool.api.crds import CRDS
from podpool.api.whereabouts import IP_POOLS
from podpool.runtime.transport import Request, Response
from tests.api.sample_objects import WHOLE, apart, head, path
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_in_loop
from tests.kube.sample_crd import sample_crd

MERGE = "application/merge-patch+json"


async def send(
    api: NamespaceClient,
    method: str,
    path: str,
    body: object = None,
    *,
    media: str = "application/json",
    **query: str,
) -> Response:
    data = b"" if body is None else msgspec.json.encode(body)
    headers = {"content-type": media} if data else {}
    return await api.transport.send(Request(method=method, path=path, query=query, headers=headers, body=data))


async def call(
    api: NamespaceClient,
    method: str,
    path: str,
    body: object = None,
    *,
    media: str = "application/json",
    **query: str,
) -> tuple[int, Any]:
    """Return the code and the body of a response."""
    response = await send(api, method, path, body, media=media, **query)
    text = await response.read()
    return response.status, msgspec.json.decode(text) if text.startswith(b"{") else text


def nncs(api: NamespaceClient, name: str | None = None) -> str:
    return NODE_NETWORK_CONFIGS.path(namespace=api.namespace, name=name)


def nnc(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    return {"apiVersion": "acn.azure.com/v1alpha", "kind": "NodeNetworkConfig", "metadata": {"name": name}, **more}


async def make(api: NamespaceClient, *names: str) -> dict[str, Any]:
    created: dict[str, Any] = {}
    for name in names:
        status, created = await call(api, "POST", nncs(api), nnc(name))
        assert status == 201
    return created


class TestResponses:
    @run_in_loop
    @pytest.mark.parametrize(
        ("method", "path", "expected"),
        [
            ("GET", "/apis/acn.azure.com/v1alpha/none", 404),
            ("GET", "/apis/none.invalid/v1/nodenetworkconfigs", 404),
            ("GET", "/apis/acn.azure.com/v9/nodenetworkconfigs", 404),
            ("GET", "/api/v1/nodes/none/none", 404),
            ("GET", "/none", 404),
            ("PUT", "/api/v1/nodes", 405),
        ],
    )
    async def test_unknown_paths_and_methods(
        self, cluster: ApiServerUnderTest, method: str, path: str, expected: int
    ) -> None:
        async with cluster.open_namespace() as api:
            assert expected == (await call(api, method, path, {} if method == "PUT" else None))[0]

    @run_in_loop
    async def test_an_error_is_a_status_with_code_and_reason(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            code, body = await call(api, "GET", nncs(api, "none"))
            expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            assert 404 == code
            assert expected.items() <= body.items()
            assert 'nodenetworkconfigs.acn.azure.com "none" not found' == body["message"]

    @run_in_loop
    async def test_undecodable_bodies_are_rejected(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await make(api, "a")
            request = Request(method="POST", path=nncs(api), body=b"{", headers={"content-type": "application/json"})
            response = await api.transport.send(request)
            await response.read()
            assert 400 == response.status
            code, _ = await call(api, "PATCH", nncs(api, "a"), {}, media="text/plain")
            assert 415 == code

    @run_in_loop
    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"kind": "Pod"}, 422),
            ({"kind": ""}, 400),
            ({"apiVersion": "v1"}, 400),
            ({"metadata": {"name": "a", "namespace": "default"}}, 400),
            ({"metadata": {"name": "a", "labels": {"a": 5}}}, 400),
            ({"metadata": {"name": "a", "resourceVersion": "5"}}, 500),
            ({"metadata": {"name": "a", "uid": "x", "generation": 9}}, 201),
        ],
    )
    async def test_a_created_object_must_fit_the_path(
        self, cluster: ApiServerUnderTest, change: dict[str, Any], expected: int
    ) -> None:
        async with cluster.open_namespace() as api:
            code, body = await call(api, "POST", nncs(api), {**nnc("a"), **change})
            assert expected == code, body

    @run_in_loop
    async def test_names_are_generated(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            body = {**nnc(""), "metadata": {"generateName": "created-"}}
            names = [(await call(api, "POST", nncs(api), body))[1]["metadata"]["name"] for _ in range(3)]
            assert 3 == len(set(names))
            assert all(len(name) == 13 and name.startswith("created-") for name in names)


class TestWrites:
    @run_in_loop
    async def test_an_update_needs_the_current_version(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            old = await make(api, "a")
            new = {**old, "spec": {"requestedIPCount": 4}}
            code, kept = await call(api, "PUT", nncs(api, "a"), new)
            assert (200, 4) == (code, kept["spec"]["requestedIPCount"])
            assert 409 == (await call(api, "PUT", nncs(api, "a"), new))[0]
            blind = nnc("a", spec={"requestedIPCount": 5})
            assert 422 == (await call(api, "PUT", nncs(api, "a"), blind))[0]

    @run_in_loop
    async def test_a_pod_is_bound_once(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            spec = {"containers": [{"name": "c", "image": "none.invalid/none"}]}
            await api.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace=api.namespace)
            path = PODS.path(namespace=api.namespace, name="p", subresource="binding")
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p"},
                "target": {"kind": "Node", "name": "n-1"},
            }
            assert [201, 409] == [(await call(api, "POST", path, binding))[0] for _ in range(2)]
            assert "n-1" == (await api.client.get(PODS, "p", namespace=api.namespace)).spec.node_name

    @run_in_loop
    async def test_server_set_metadata_is_ignored_or_rejected(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            old = await make(api, "a")

            async def patched(**meta: object) -> int:
                code, new = await call(api, "PATCH", nncs(api, "a"), {"metadata": meta}, media=MERGE)
                assert code != 200 or new == old
                return code

            assert 200 == await patched(creationTimestamp="2000-01-01T00:00:00Z", generation=77)
            assert 422 == await patched(deletionTimestamp="2000-01-01T00:00:00Z")
            assert 422 == await patched(deletionGracePeriodSeconds=5)
            assert 422 == await patched(uid="another")
            assert 400 == await patched(name="another")
            assert 400 == await patched(namespace="default")
            assert 422 == await patched(resourceVersion="")
            assert 422 == await patched(resourceVersion="0")

    @run_in_loop
    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/spec/none", "value": 1},
            {"op": "replace", "path": "/spec/ipsNotInUse/1", "value": "b"},
            {"op": "replace", "path": "/spec/none/deeper", "value": 1},
            {"op": "remove", "path": "/spec/ipsNotInUse/1"},
            {"op": "add", "path": "/spec/ipsNotInUse/2", "value": "b"},
            {"op": "remove", "path": "/spec/none"},
            {"op": "add", "path": "/spec/none/deeper", "value": 1},
        ],
    )
    async def test_an_operation_that_does_not_fit_is_rejected(
        self, cluster: ApiServerUnderTest, operation: dict[str, Any]
    ) -> None:
        async with cluster.open_namespace() as api:
            await call(api, "POST", nncs(api), nnc("a", spec={"ipsNotInUse": ["a"]}))
            media = "application/json-patch+json"
            assert 422 == (await call(api, "PATCH", nncs(api, "a"), [operation], media=media))[0]

    @run_in_loop
    async def test_an_absent_field_tests_as_null(self, cluster: ApiServerUnderTest) -> None:
        """Whereabouts tests so that an address is free."""
        async with cluster.open_namespace() as api:
            pools = IP_POOLS.path(namespace=api.namespace)
            await call(api, "POST", pools, pool(range="10.0.0.0/24", allocations={"2": {"id": "c", "podref": "p"}}))

            async def tested(path: str) -> int:
                test = {"op": "test", "path": path, "value": None}
                return (await call(api, "PATCH", f"{pools}/a", [test], media="application/json-patch+json"))[0]

            assert 200 == await tested("/spec/allocations/1")
            assert 422 == await tested("/spec/allocations/2")
            assert 422 == await tested("/spec/none/deeper")

    @run_in_loop
    async def test_removing_the_last_finalizer_returns_the_last_state(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await call(api, "POST", nncs(api), nnc("a") | {"metadata": {"name": "a", "finalizers": ["x.io/y"]}})
            _, marked = await call(api, "DELETE", nncs(api, "a"))
            assert 0 == marked["metadata"]["deletionGracePeriodSeconds"]
            _, last = await call(api, "PATCH", nncs(api, "a"), {"metadata": {"finalizers": []}}, media=MERGE)
            assert marked["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]
            assert 404 == (await call(api, "GET", nncs(api, "a")))[0]


def pool(**spec: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    return {
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "a"},
        "spec": spec,
    }


class TestSchemas:
    @run_in_loop
    @pytest.mark.parametrize("kind", WHOLE)
    async def test_unknown_fields_of_every_kind_are_preserved(self, cluster: ApiServerUnderTest, kind: str) -> None:
        async with cluster.open_namespace() as api:
            parts = {part: {**content, "unknown": {"deep": [1]}} for part, content in WHOLE[kind].items()}
            place = path(kind, api.namespace)
            code, created = await call(api, "POST", place, {**head(kind, "a", api.namespace), **parts})
            assert 201 == code, created
            assert ("status" in created) is ("status" in parts and not apart(kind))
            code, kept = await call(api, "PATCH", f"{place}/a/status", parts, media=MERGE)
            assert (200 if apart(kind) else 404) == code, kept
            _, read = await call(api, "GET", f"{place}/a")
            assert parts == {part: read[part] for part in parts}

    @run_in_loop
    @pytest.mark.parametrize(
        ("spec", "place"),
        [
            ({"range": "10.0.0.0/24"}, "spec.allocations"),
            ({"range": "10.0.0.0/24", "allocations": {"1": {"id": "c"}}}, "spec.allocations.1.podref"),
            ({"range": "10.0.0.0/24", "allocations": {"1": {"id": 1, "podref": "p"}}}, "spec.allocations.1.id"),
            ({"range": "10.0.0.0", "allocations": {}}, "spec.range in body should match"),
            ({"range": "10.0.0.0/24", "allocations": []}, "spec.allocations"),
        ],
    )
    async def test_a_schema_violation_is_rejected_with_its_field(
        self, cluster: ApiServerUnderTest, spec: dict[str, Any], place: str
    ) -> None:
        async with cluster.open_namespace() as api:
            code, body = await call(api, "POST", IP_POOLS.path(namespace=api.namespace), pool(**spec))
            assert 422 == code
            assert place in body["message"]


class TestVersions:
    @run_in_loop
    async def test_a_list_of_a_future_version_is_rejected(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            code, body = await call(api, "GET", nncs(api), resourceVersion=str(10**12), timeoutSeconds="2")
            assert (504, "Timeout") == (code, body["reason"])

    @run_in_loop
    async def test_a_list_of_an_exact_version_shows_that_version(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            version = (await make(api, "a"))["metadata"]["resourceVersion"]
            await make(api, "b")
            await call(api, "DELETE", nncs(api, "a"))
            _, then = await call(
                api, "GET", nncs(api), resourceVersion=version, resourceVersionMatch="Exact", limit="10"
            )
            assert (["a"], version) == (names(then), then["metadata"]["resourceVersion"])
            _, now = await call(api, "GET", nncs(api), resourceVersion=version)
            assert ["b"] == names(now)

    @run_in_loop
    async def test_pages_of_a_list_show_one_version(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await make(api, "a", "b", "c")
            _, first = await call(api, "GET", nncs(api), limit="2")
            await make(api, "bb", "d")
            await call(api, "DELETE", nncs(api, "c"))
            token = first["metadata"]["continue"]
            _, second = await call(api, "GET", nncs(api), **{"limit": "2", "continue": token})
            assert (["a", "b"], ["c"]) == (names(first), names(second))
            assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
            assert 1 == first["metadata"]["remainingItemCount"]
            assert "continue" not in second["metadata"] or not second["metadata"]["continue"]

    @run_in_loop
    async def test_an_invalid_continue_token_is_rejected(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            assert 400 == (await call(api, "GET", nncs(api), **{"continue": "none"}))[0]


def names(listed: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in listed["items"]]


async def lines(response: Response, count: int) -> list[dict[str, Any]]:
    """Return the first lines of a watch."""
    text = b""
    async with asyncio.timeout(20):
        async for piece in response.stream:
            text += piece
            if text.count(b"\n") >= count:
                break
    await response.close()
    return [msgspec.json.decode(line) for line in text.splitlines()]


class TestWatches:
    @run_in_loop
    @pytest.mark.parametrize("version", ["", "0"])
    async def test_a_watch_without_a_version_starts_with_the_existing_objects(
        self, cluster: ApiServerUnderTest, version: str
    ) -> None:
        async with cluster.open_namespace() as api:
            await make(api, "a", "b")
            # a cache may be a moment behind; a quorum read waits for it
            await call(api, "GET", nncs(api))
            query = {"resourceVersion": version} if version else {}
            watch = await send(api, "GET", nncs(api), watch="true", timeoutSeconds="10", **query)
            events = [(each["type"], each["object"]["metadata"]["name"]) for each in await lines(watch, 2)]
            assert [("ADDED", "a"), ("ADDED", "b")] == sorted(events)

    @pytest.mark.integration
    @run_in_loop
    async def test_a_watch_from_a_future_version_skips_earlier_events(self, cluster: ApiServerUnderTest) -> None:
        """An informer lists again after a broken watch: the server may have been restored."""
        async with cluster.open_namespace() as api:
            last = int((await make(api, "a"))["metadata"]["resourceVersion"])
            watch = await send(
                api,
                "GET",
                nncs(api),
                watch="true",
                resourceVersion=str(last + 10**9),
                timeoutSeconds="2",
                allowWatchBookmarks="true",
            )
            await make(api, "b")
            events = [each["type"] for each in await lines(watch, 1)]
            assert [] == events

    @run_in_loop
    async def test_an_expired_version_is_an_error_event(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await make(api, "a")
            watch = await send(api, "GET", nncs(api), watch="true", resourceVersion=api.expired_version())
            assert 200 == watch.status
            (line,) = await lines(watch, 1)
            assert ("ERROR", 410, "Expired") == (line["type"], line["object"]["code"], line["object"]["reason"])

    @pytest.mark.integration
    @run_in_loop
    async def test_a_bookmark_with_a_version_is_sent_before_the_timeout(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            created = await make(api, "a")
            version = created["metadata"]["resourceVersion"]
            watch = await send(
                api,
                "GET",
                nncs(api),
                watch="true",
                resourceVersion=version,
                timeoutSeconds="4",
                allowWatchBookmarks="true",
            )
            await api.client.create(NODE_NETWORK_CONFIGS, nnc("elsewhere-" + api.namespace), namespace="default")
            events = await lines(watch, 1)
            assert ["BOOKMARK"] == [each["type"] for each in events]
            assert int(events[0]["object"]["metadata"]["resourceVersion"]) >= int(version)


class TestCrds:
    @run_in_loop
    async def test_a_crd_adds_a_resource_and_takes_its_objects_with_it(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            manifest = sample_crd("lamps", "Lamp", api.namespace)
            name, group = manifest["metadata"]["name"], manifest["spec"]["group"]
            await api.client.create(CRDS, manifest)
            path = f"/apis/{group}/v1/lamps"
            lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": {"name": "a"}, "colour": "red", "odd": 1}
            await wait_until_served(api, path, yes=True)
            code, kept = await call(api, "POST", path, lamp)
            assert (201, "red", 40) == (code, kept["colour"], kept["power"])
            assert "odd" not in kept, "unknown fields are pruned"
            code, _ = await call(api, "PATCH", f"{path}/a", {"colour": "loud"}, media=MERGE)
            assert 422 == code
            await api.client.delete(CRDS, name)
            await wait_until_served(api, path, yes=False)


async def wait_until_served(api: NamespaceClient, path: str, *, yes: bool) -> None:
    """Wait until a path is served, or not any more; kube-apiserver takes a moment."""
    async with asyncio.timeout(20):
        while True:
            code, _ = await call(api, "GET", path)
            if (code != 404) is yes:
                return
            await asyncio.sleep(0.05)
