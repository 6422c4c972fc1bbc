"""Discovery, OpenAPI, representations, tables and protobuf bodies."""

import random
from typing import Any

import msgspec
import pytest

from podpool.api.crds import CRDS, crd_manifests
from podpool.lab.apiserver.protobuf_request_decoder import MEDIA_TYPE, ProtobufError, decode
from podpool.lab.apiserver.registry import EVENTS
from podpool.lab.apiserver.root_handler import LiteApiServer
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tables import find_json_path, format_duration
from podpool.runtime.transport import Request
from tests.kube.api_servers import FixedClock
from tests.kube.event_loops import run_in_virtual_time
from tests.lab.apiserver.test_store import fresh

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def new_server() -> LiteApiServer:
    server = LiteApiServer(fresh())
    for manifest in crd_manifests():
        body = msgspec.json.encode(manifest)
        await server(Request(method="POST", path=CRDS.path(), body=body))
    return server


async def get(server: LiteApiServer, path: str, *, accept: str = "", **query: str) -> tuple[int, Any]:
    response = await server(Request(method="GET", path=path, query=query, headers={"accept": accept}))
    return response.status, msgspec.json.decode(await response.read())


class TestDiscovery:
    @run_in_virtual_time
    async def test_both_formats_list_the_same_resources(self) -> None:
        server = await new_server()
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        at_once = {
            (group["metadata"]["name"], version["version"], resource["resource"])
            for path in ("/api", "/apis")
            for group in (await get(server, path, accept=aggregated))[1]["items"]
            for version in group["versions"]
            for resource in version["resources"]
        }
        _, groups = await get(server, "/apis")
        roots = [("", "v1", "/api/v1")]
        roots += [
            (group["name"], version["version"], f"/apis/{version['groupVersion']}")
            for group in groups["groups"]
            for version in group["versions"]
        ]
        one_by_one = {
            (group, version, resource["name"])
            for group, version, path in roots
            for resource in (await get(server, path))[1]["resources"]
            if "/" not in resource["name"]
        }
        assert one_by_one == at_once
        assert ("acn.azure.com", "v1alpha", "nodenetworkconfigs") in at_once

    @run_in_virtual_time
    async def test_an_openapi_document_has_a_hash_of_its_content(self) -> None:
        server = LiteApiServer(fresh())
        _, before = await get(server, "/openapi/v3")
        await server(Request(method="POST", path=CRDS.path(), body=msgspec.json.encode(crd_manifests()[0])))
        _, after = await get(server, "/openapi/v3")
        assert before["paths"]["api/v1"] == after["paths"]["api/v1"]
        assert "apis/acn.azure.com/v1alpha" in after["paths"]
        code, described = await get(server, "/openapi/v3/apis/acn.azure.com/v1alpha")
        schemas = described["components"]["schemas"]
        assert (200, "object") == (code, schemas["com.azure.acn.v1alpha.NodeNetworkConfig"]["type"])

    @run_in_virtual_time
    @pytest.mark.parametrize("path", ["/apis/rbac.authorization.k8s.io/v1/roles", "/openapi/v2"])
    async def test_unsupported_paths_name_the_feature(self, path: str) -> None:
        code, body = await get(await new_server(), path)
        assert (404, "Status") == (code, body["kind"])
        assert "is not supported by this API server" in body["message"]

    @run_in_virtual_time
    async def test_a_client_that_accepts_no_json_gets_406(self) -> None:
        assert 406 == (await get(await new_server(), "/api/v1/nodes", accept="application/yaml"))[0]


class TestRepresentations:
    @run_in_virtual_time
    async def test_a_table_has_the_columns_of_the_crd(self) -> None:
        server = await new_server()
        body = {"apiVersion": "acn.azure.com/v1alpha", "kind": "NodeNetworkConfig", "metadata": {"name": "n"}}
        path = "/apis/acn.azure.com/v1alpha/namespaces/default/nodenetworkconfigs"
        await server(
            Request(method="POST", path=path, body=msgspec.json.encode({**body, "spec": {"requestedIPCount": 3}}))
        )
        _, table = await get(server, path, accept=TABLE)
        named = dict(zip((each["name"] for each in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
        assert ("n", 3, None) == (named["Name"], named["Requested IPs"], named["Allocated IPs"])
        assert "PartialObjectMetadata" == table["rows"][0]["object"]["kind"]

    @run_in_virtual_time
    async def test_ages_in_a_watched_table_are_current(self) -> None:
        clock = FixedClock()
        server = LiteApiServer(ObjectStore(clock=clock, rng=random.Random(1)))  # noqa: S311  seeded
        query = {"watch": "true", "resourceVersion": str(server.store.revision)}
        watch = await server(Request(method="GET", path="/api/v1/nodes", query=query, headers={"accept": TABLE}))
        clock.seconds += 3600
        await server(Request(method="POST", path="/api/v1/nodes", body=b'{"metadata": {"name": "n"}}'))
        event = msgspec.json.decode(await anext(watch.stream))["object"]
        named = dict(zip((each["name"] for each in event["columnDefinitions"]), event["rows"][0]["cells"], strict=True))
        assert ("n", "0s") == (named["Name"], named["Age"])
        await watch.close()

    @run_in_virtual_time
    async def test_an_event_is_stored_once_and_served_in_two_formats(self) -> None:
        server = await new_server()
        older = {"metadata": {"name": "e"}, "involvedObject": {"name": "x"}, "message": "so", "reason": "R"}
        path = "/api/v1/namespaces/default/events"
        await server(Request(method="POST", path=path, body=msgspec.json.encode(older)))
        _, old = await get(server, path, fieldSelector="involvedObject.name=x")
        _, new = await get(server, "/apis/events.k8s.io/v1/events", fieldSelector="regarding.name=x")
        assert ("v1", "so") == (old["items"][0]["apiVersion"], old["items"][0]["message"])
        assert ("events.k8s.io/v1", "so") == (new["items"][0]["apiVersion"], new["items"][0]["note"])
        watch = await server(Request(method="GET", path=path, query={"watch": "true"}))
        server.store.delete(EVENTS, "default/e")
        lines = (await anext(watch.stream)).splitlines()
        assert [("ADDED", "so"), ("DELETED", "so")] == [
            (each["type"], each["object"]["message"]) for each in map(msgspec.json.decode, lines)
        ]
        await watch.close()

    @run_in_virtual_time
    async def test_a_watch_can_start_with_initial_events_and_a_bookmark(self) -> None:
        server = await new_server()
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "allowWatchBookmarks": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
        watch = await server(Request(method="GET", path="/api/v1/namespaces", query=query))
        lines = [msgspec.json.decode(each) for each in (await anext(watch.stream)).splitlines()]
        assert ["ADDED"] * 4 + ["BOOKMARK"] == [each["type"] for each in lines]
        assert "true" == lines[-1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
        await watch.close()

    @run_in_virtual_time
    async def test_unknown_fields_are_warned_of_or_rejected(self) -> None:
        server = await new_server()
        definition = {**crd_manifests()[0], "metadata": {"name": "lamps.x.dev"}}
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": "lamps", "kind": "Lamp"}
        definition["spec"] = {"group": "x.dev", "scope": "Cluster", "names": names, "versions": [version]}
        await server(Request(method="POST", path=CRDS.path(), body=msgspec.json.encode(definition)))
        lamp = {"apiVersion": "x.dev/v1", "kind": "Lamp", "metadata": {"name": "a"}, "odd": 1}
        codes = {}
        for how in ("Strict", "Warn"):
            query = {"fieldValidation": how}
            request = Request(method="POST", path="/apis/x.dev/v1/lamps", query=query, body=msgspec.json.encode(lamp))
            response = await server(request)
            codes[how] = (response.status, "unknown field" in response.headers.get("warning", ""))
        assert {"Strict": (400, False), "Warn": (201, True)} == codes


class TestProtobuf:
    BODY = (
        b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace"
        b'\x12\x1c\n\x16\n\x05space\x12\x00\x1a\x00Z\x09\n\x01a\x12\x04this\x12\x00\x1a\x00\x1a\x00"\x00'
    )

    def test_a_body_of_kubectl_is_decoded(self) -> None:
        expected = {"apiVersion": "v1", "kind": "Namespace"}
        body = decode(self.BODY)
        assert expected.items() <= body.items()
        assert ("space", {"a": "this"}) == (body["metadata"]["name"], body["metadata"]["labels"])

    @pytest.mark.parametrize("cut", range(40))
    def test_a_truncated_body_is_rejected(self, cut: int) -> None:
        try:
            body = decode(self.BODY[:cut])
        except ProtobufError:
            return
        assert "Namespace" == body["kind"]

    @run_in_virtual_time
    async def test_an_unsupported_kind_gets_415(self) -> None:
        body = b"k8s\x00\n\x0a\n\x02v1\x12\x04Node\x12\x00"
        headers = {"content-type": MEDIA_TYPE}
        response = await (await new_server())(Request(method="POST", path="/api/v1/nodes", body=body, headers=headers))
        assert 415 == response.status
        await response.read()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (610, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (3 * 86400 + 3600, "3d1h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
        (3650 * 86400, "10y"),
    ],
)
def test_durations_as_in_kubectl(seconds: int, text: str) -> None:
    assert text == format_duration(seconds)


@pytest.mark.parametrize(
    ("path", "found"),
    [(".a.b", [1]), (".a", [{"b": 1}]), (".list[*].x", [1, 2]), (".list[1].x", [2]), (".none", []), (".a['b']", [1])],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert found == list(find_json_path({"a": {"b": 1}, "list": [{"x": 1}, {"x": 2}]}, path))
