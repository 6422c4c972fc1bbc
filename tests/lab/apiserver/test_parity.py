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
from tests.api.samples import WHOLE, apart, head, path
from tests.kube.clusters import Cluster, Guest
from tests.kube.lamps import definition
from tests.kube.loops import in_loop

MERGE = "application/merge-patch+json"


async def send(
    guest: Guest, method: str, path: str, body: object = None, *, media: str = "application/json", **query: str
) -> Response:
    data = b"" if body is None else msgspec.json.encode(body)
    headers = {"content-type": media} if data else {}
    return await guest.road.send(Request(method=method, path=path, query=query, headers=headers, body=data))


async def call(
    guest: Guest, method: str, path: str, body: object = None, *, media: str = "application/json", **query: str
) -> tuple[int, Any]:
    """Return the code and the body of a response."""
    answer = await send(guest, method, path, body, media=media, **query)
    text = await answer.read()
    return answer.status, msgspec.json.decode(text) if text.startswith(b"{") else text


def nncs(guest: Guest, name: str | None = None) -> str:
    return NODE_NETWORK_CONFIGS.path(namespace=guest.namespace, name=name)


def nnc(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    return {"apiVersion": "acn.azure.com/v1alpha", "kind": "NodeNetworkConfig", "metadata": {"name": name}, **more}


async def make(guest: Guest, *names: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in names:
        status, made = await call(guest, "POST", nncs(guest), nnc(name))
        assert status == 201
    return made


class TestResponses:
    @in_loop
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
    async def test_unknown_paths_and_methods(self, cluster: Cluster, method: str, path: str, expected: int) -> None:
        async with cluster.guest() as guest:
            assert expected == (await call(guest, method, path, {} if method == "PUT" else None))[0]

    @in_loop
    async def test_an_error_is_a_status_with_code_and_reason(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            code, body = await call(guest, "GET", nncs(guest, "none"))
            expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            assert 404 == code
            assert expected.items() <= body.items()
            assert 'nodenetworkconfigs.acn.azure.com "none" not found' == body["message"]

    @in_loop
    async def test_undecodable_bodies_are_rejected(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a")
            request = Request(method="POST", path=nncs(guest), body=b"{", headers={"content-type": "application/json"})
            answer = await guest.road.send(request)
            await answer.read()
            assert 400 == answer.status
            code, _ = await call(guest, "PATCH", nncs(guest, "a"), {}, media="text/plain")
            assert 415 == code

    @in_loop
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
        self, cluster: Cluster, change: dict[str, Any], expected: int
    ) -> None:
        async with cluster.guest() as guest:
            code, body = await call(guest, "POST", nncs(guest), {**nnc("a"), **change})
            assert expected == code, body

    @in_loop
    async def test_names_are_generated(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            body = {**nnc(""), "metadata": {"generateName": "made-"}}
            names = [(await call(guest, "POST", nncs(guest), body))[1]["metadata"]["name"] for _ in range(3)]
            assert 3 == len(set(names))
            assert all(len(name) == 10 and name.startswith("made-") for name in names)


class TestWrites:
    @in_loop
    async def test_an_update_needs_the_current_version(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            old = await make(guest, "a")
            new = {**old, "spec": {"requestedIPCount": 4}}
            code, kept = await call(guest, "PUT", nncs(guest, "a"), new)
            assert (200, 4) == (code, kept["spec"]["requestedIPCount"])
            assert 409 == (await call(guest, "PUT", nncs(guest, "a"), new))[0]
            blind = nnc("a", spec={"requestedIPCount": 5})
            assert 422 == (await call(guest, "PUT", nncs(guest, "a"), blind))[0]

    @in_loop
    async def test_a_pod_is_bound_once(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            spec = {"containers": [{"name": "c", "image": "none.invalid/none"}]}
            await guest.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace=guest.namespace)
            path = PODS.path(namespace=guest.namespace, name="p", subresource="binding")
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p"},
                "target": {"kind": "Node", "name": "n-1"},
            }
            assert [201, 409] == [(await call(guest, "POST", path, binding))[0] for _ in range(2)]
            assert "n-1" == (await guest.client.get(PODS, "p", namespace=guest.namespace)).spec.node_name

    @in_loop
    async def test_server_set_metadata_is_ignored_or_rejected(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            old = await make(guest, "a")

            async def patched(**meta: object) -> int:
                code, new = await call(guest, "PATCH", nncs(guest, "a"), {"metadata": meta}, media=MERGE)
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

    @in_loop
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
        self, cluster: Cluster, operation: dict[str, Any]
    ) -> None:
        async with cluster.guest() as guest:
            await call(guest, "POST", nncs(guest), nnc("a", spec={"ipsNotInUse": ["a"]}))
            media = "application/json-patch+json"
            assert 422 == (await call(guest, "PATCH", nncs(guest, "a"), [operation], media=media))[0]

    @in_loop
    async def test_an_absent_field_tests_as_null(self, cluster: Cluster) -> None:
        """Whereabouts tests so that an address is free."""
        async with cluster.guest() as guest:
            pools = IP_POOLS.path(namespace=guest.namespace)
            await call(guest, "POST", pools, pool(range="10.0.0.0/24", allocations={"2": {"id": "c", "podref": "p"}}))

            async def tested(path: str) -> int:
                test = {"op": "test", "path": path, "value": None}
                return (await call(guest, "PATCH", f"{pools}/a", [test], media="application/json-patch+json"))[0]

            assert 200 == await tested("/spec/allocations/1")
            assert 422 == await tested("/spec/allocations/2")
            assert 422 == await tested("/spec/none/deeper")

    @in_loop
    async def test_removing_the_last_finalizer_returns_the_last_state(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await call(guest, "POST", nncs(guest), nnc("a") | {"metadata": {"name": "a", "finalizers": ["x.io/y"]}})
            _, marked = await call(guest, "DELETE", nncs(guest, "a"))
            assert 0 == marked["metadata"]["deletionGracePeriodSeconds"]
            _, last = await call(guest, "PATCH", nncs(guest, "a"), {"metadata": {"finalizers": []}}, media=MERGE)
            assert marked["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]
            assert 404 == (await call(guest, "GET", nncs(guest, "a")))[0]


def pool(**spec: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    return {
        "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "a"},
        "spec": spec,
    }


class TestSchemas:
    @in_loop
    @pytest.mark.parametrize("kind", WHOLE)
    async def test_unknown_fields_of_every_kind_are_preserved(self, cluster: Cluster, kind: str) -> None:
        async with cluster.guest() as guest:
            parts = {part: {**content, "unknown": {"deep": [1]}} for part, content in WHOLE[kind].items()}
            place = path(kind, guest.namespace)
            code, made = await call(guest, "POST", place, {**head(kind, "a", guest.namespace), **parts})
            assert 201 == code, made
            assert ("status" in made) is ("status" in parts and not apart(kind))
            code, kept = await call(guest, "PATCH", f"{place}/a/status", parts, media=MERGE)
            assert (200 if apart(kind) else 404) == code, kept
            _, read = await call(guest, "GET", f"{place}/a")
            assert parts == {part: read[part] for part in parts}

    @in_loop
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
        self, cluster: Cluster, spec: dict[str, Any], place: str
    ) -> None:
        async with cluster.guest() as guest:
            code, body = await call(guest, "POST", IP_POOLS.path(namespace=guest.namespace), pool(**spec))
            assert 422 == code
            assert place in body["message"]


class TestVersions:
    @in_loop
    async def test_a_list_of_a_future_version_is_rejected(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            code, body = await call(guest, "GET", nncs(guest), resourceVersion=str(10**12), timeoutSeconds="2")
            assert (504, "Timeout") == (code, body["reason"])

    @in_loop
    async def test_a_list_of_an_exact_version_shows_that_version(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            version = (await make(guest, "a"))["metadata"]["resourceVersion"]
            await make(guest, "b")
            await call(guest, "DELETE", nncs(guest, "a"))
            _, then = await call(
                guest, "GET", nncs(guest), resourceVersion=version, resourceVersionMatch="Exact", limit="10"
            )
            assert (["a"], version) == (names(then), then["metadata"]["resourceVersion"])
            _, now = await call(guest, "GET", nncs(guest), resourceVersion=version)
            assert ["b"] == names(now)

    @in_loop
    async def test_pages_of_a_list_show_one_version(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", "b", "c")
            _, first = await call(guest, "GET", nncs(guest), limit="2")
            await make(guest, "bb", "d")
            await call(guest, "DELETE", nncs(guest, "c"))
            token = first["metadata"]["continue"]
            _, second = await call(guest, "GET", nncs(guest), **{"limit": "2", "continue": token})
            assert (["a", "b"], ["c"]) == (names(first), names(second))
            assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
            assert 1 == first["metadata"]["remainingItemCount"]
            assert "continue" not in second["metadata"] or not second["metadata"]["continue"]

    @in_loop
    async def test_an_invalid_continue_token_is_rejected(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            assert 400 == (await call(guest, "GET", nncs(guest), **{"continue": "none"}))[0]


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
    @in_loop
    @pytest.mark.parametrize("version", ["", "0"])
    async def test_a_watch_without_a_version_starts_with_the_existing_objects(
        self, cluster: Cluster, version: str
    ) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", "b")
            # a cache may be a moment behind; a quorum read waits for it
            await call(guest, "GET", nncs(guest))
            query = {"resourceVersion": version} if version else {}
            watch = await send(guest, "GET", nncs(guest), watch="true", timeoutSeconds="10", **query)
            events = [(each["type"], each["object"]["metadata"]["name"]) for each in await lines(watch, 2)]
            assert [("ADDED", "a"), ("ADDED", "b")] == sorted(events)

    @in_loop
    async def test_a_watch_from_a_future_version_skips_earlier_events(self, cluster: Cluster) -> None:
        """An informer lists again after a broken watch: the server may have been restored."""
        async with cluster.guest() as guest:
            last = int((await make(guest, "a"))["metadata"]["resourceVersion"])
            watch = await send(
                guest,
                "GET",
                nncs(guest),
                watch="true",
                resourceVersion=str(last + 10**9),
                timeoutSeconds="2",
                allowWatchBookmarks="true",
            )
            await make(guest, "b")
            events = [each["type"] for each in await lines(watch, 1)]
            assert [] == events

    @in_loop
    async def test_an_expired_version_is_an_error_event(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a")
            watch = await send(guest, "GET", nncs(guest), watch="true", resourceVersion=guest.forgotten())
            assert 200 == watch.status
            (line,) = await lines(watch, 1)
            assert ("ERROR", 410, "Expired") == (line["type"], line["object"]["code"], line["object"]["reason"])

    @in_loop
    async def test_a_bookmark_with_a_version_is_sent_before_the_timeout(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            made = await make(guest, "a")
            version = made["metadata"]["resourceVersion"]
            watch = await send(
                guest,
                "GET",
                nncs(guest),
                watch="true",
                resourceVersion=version,
                timeoutSeconds="4",
                allowWatchBookmarks="true",
            )
            await guest.client.create(NODE_NETWORK_CONFIGS, nnc("elsewhere-" + guest.namespace), namespace="default")
            events = await lines(watch, 1)
            assert ["BOOKMARK"] == [each["type"] for each in events]
            assert int(events[0]["object"]["metadata"]["resourceVersion"]) >= int(version)


class TestCrds:
    @in_loop
    async def test_a_crd_adds_a_resource_and_takes_its_objects_with_it(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            manifest = definition("lamps", "Lamp", guest.namespace)
            name, group = manifest["metadata"]["name"], manifest["spec"]["group"]
            await guest.client.create(CRDS, manifest)
            path = f"/apis/{group}/v1/lamps"
            lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": {"name": "a"}, "colour": "red", "odd": 1}
            await wait_until_served(guest, path, yes=True)
            code, kept = await call(guest, "POST", path, lamp)
            assert (201, "red", 40) == (code, kept["colour"], kept["power"])
            assert "odd" not in kept, "unknown fields are pruned"
            code, _ = await call(guest, "PATCH", f"{path}/a", {"colour": "loud"}, media=MERGE)
            assert 422 == code
            await guest.client.delete(CRDS, name)
            await wait_until_served(guest, path, yes=False)


async def wait_until_served(guest: Guest, path: str, *, yes: bool) -> None:
    """Wait until a path is served, or not any more; kube-apiserver takes a moment."""
    async with asyncio.timeout(20):
        while True:
            code, _ = await call(guest, "GET", path)
            if (code != 404) is yes:
                return
            await asyncio.sleep(0.05)
