"""Malformed objects and requests are rejected or listed, and do not affect later requests."""

from typing import Any

import msgspec
import pytest

from podpool.api.crds import CRDS
from podpool.lab.apiserver.root_handler import LiteApiServer
from podpool.runtime.host_header import allowed_hosts
from podpool.runtime.transport import Request
from tests.kube.event_loops import run_in_virtual_time
from tests.lab.apiserver.test_server import TABLE, get
from tests.lab.apiserver.test_store import LAMPS, fresh

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"


async def post(server: LiteApiServer, path: str, body: object) -> tuple[int, Any]:
    response = await server(Request(method="POST", path=path, body=msgspec.json.encode(body)))
    return response.status, msgspec.json.decode(await response.read())


async def row(server: LiteApiServer, path: str) -> dict[str, Any]:
    """Return the only row of a list, by column."""
    code, table = await get(server, path, accept=TABLE)
    assert 200 == code
    return dict(zip((each["name"] for each in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))


def without_scope() -> dict[str, Any]:
    spec: dict[str, Any] = {**LAMPS["spec"]}  # type: ignore[dict-item]  # JSON
    del spec["scope"]
    return spec


class TestCrds:
    SPEC: Any = LAMPS["spec"]

    @run_in_virtual_time
    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            (None, "spec"),
            (without_scope(), "spec.scope"),
            ({**SPEC, "scope": "Everywhere"}, "spec.scope"),
            ({**SPEC, "names": {"kind": "Lamp"}}, "spec.names.plural"),
            ({**SPEC, "versions": []}, "spec.versions"),
            ({**SPEC, "versions": ["v1"]}, "spec.versions[0]"),
            ({**SPEC, "versions": [{"name": "a/b"}]}, "spec.versions[0].name"),
            (
                {**SPEC, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"items": {"type": "lamp"}}}}]},
                "spec.versions[0].schema.openAPIV3Schema.items.type",
            ),
            ({**SPEC, "group": "y.dev"}, "metadata.name"),
        ],
    )
    async def test_an_invalid_crd_is_rejected_with_its_field(self, spec: Any, field: str) -> None:  # noqa: ANN401  JSON
        server = LiteApiServer(fresh())
        before = server.store.snapshot()
        code, status = await post(server, CRDS.path(), {**LAMPS, "spec": spec})
        assert (422, field) == (code, status["details"]["causes"][0]["field"])
        assert before == server.store.snapshot()
        assert 201 == (await post(server, CRDS.path(), LAMPS))[0]

    @run_in_virtual_time
    async def test_a_served_crd_cannot_be_made_invalid(self) -> None:
        server = LiteApiServer(fresh())
        await post(server, CRDS.path(), LAMPS)
        headers = {"content-type": "application/merge-patch+json"}
        path, body = CRDS.path(name="lamps.x.dev"), b'{"spec": {"scope": null}}'
        response = await server(Request(method="PATCH", path=path, body=body, headers=headers))
        assert 422 == response.status
        assert 200 == (await get(server, "/apis/x.dev/v1/lamps"))[0]


class TestTables:
    @run_in_virtual_time
    async def test_a_null_field_is_dropped(self) -> None:
        server = LiteApiServer(fresh())
        code, pod = await post(server, PODS, {"metadata": {"name": "p"}, "spec": None})
        assert (201, False) == (code, "spec" in pod)
        assert ("p", "0/0", "Pending") == tuple((await row(server, PODS)).values())[:3]

    @run_in_virtual_time
    async def test_an_invalid_timestamp_is_shown_as_invalid(self) -> None:
        server = LiteApiServer(fresh())
        await post(server, EVENTS, {"metadata": {"name": "e"}, "reason": "R", "firstTimestamp": "yesterday"})
        shown = await row(server, EVENTS)
        assert ("<invalid>", "R", "e") == (shown["First Seen"], shown["Reason"], shown["Name"])

    @run_in_virtual_time
    async def test_a_condition_without_status_is_not_true(self) -> None:
        server = LiteApiServer(fresh())
        await post(server, NODES, {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}, {}]}})
        assert "NotReady" == (await row(server, NODES))["Status"]

    @run_in_virtual_time
    @pytest.mark.parametrize(
        ("path", "malformed"),
        [
            (NODES, {"status": {"conditions": ["Ready"]}}),
            (NODES, {"status": {"addresses": [{}]}}),
            (PODS, {"spec": {"containers": 3}}),
            (EVENTS, {"message": 5, "involvedObject": []}),
        ],
    )
    async def test_a_malformed_object_is_listed_by_name(self, path: str, malformed: dict[str, Any]) -> None:
        server = LiteApiServer(fresh())
        assert 201 == (await post(server, path, {"metadata": {"name": "malformed"}, **malformed}))[0]
        assert {"malformed", "<invalid>"} == set((await row(server, path)).values())


class TestRejected:
    @run_in_virtual_time
    @pytest.mark.parametrize(
        "malformed", [{"spec": []}, {"status": "x"}, {"kind": []}, {"apiVersion": {}}, {"metadata": "p"}], ids=str
    )
    async def test_a_field_of_the_wrong_type(self, malformed: dict[str, Any]) -> None:
        assert 400 == (await post(LiteApiServer(fresh()), PODS, {"metadata": {"name": "p"}, **malformed}))[0]

    @run_in_virtual_time
    @pytest.mark.parametrize("target", [None, {}, {"name": ""}, {"name": 3}], ids=str)
    async def test_a_binding_without_a_node(self, target: object) -> None:
        server = LiteApiServer(fresh())
        await post(server, PODS, {"metadata": {"name": "p"}})
        assert 400 == (await post(server, f"{PODS}/p/binding", {"target": target}))[0]

    @run_in_virtual_time
    async def test_a_number_of_many_digits(self) -> None:
        code, status = await get(LiteApiServer(fresh()), PODS, limit="1" * 5000)
        assert (400, "BadRequest") == (code, status["reason"])

    @run_in_virtual_time
    async def test_an_unexpected_error_is_answered_with_500(self) -> None:
        response = await LiteApiServer(fresh())(Request(method="POST", path=PODS, body=b'{"a":' * 100_000))
        assert 500 == response.status
        assert "InternalError" == msgspec.json.decode(await response.read())["reason"]

    @run_in_virtual_time
    @pytest.mark.parametrize(
        "headers",
        [
            {"host": "localhost:7782", "origin": "http://evil.example"},
            {"host": "localhost:7782", "sec-fetch-site": "cross-site"},
            {"host": "evil.example:7782"},
            {"host": "127.0.0.1.evil.example"},
            {},
        ],
        ids=str,
    )
    async def test_a_request_from_a_web_page(self, headers: dict[str, str]) -> None:
        server = LiteApiServer(fresh(), hosts=allowed_hosts("127.0.0.1"))
        body = msgspec.json.encode({"metadata": {"name": "n"}})
        response = await server(Request(method="POST", path=NODES, body=body, headers=headers))
        assert (403, "Forbidden") == (response.status, msgspec.json.decode(await response.read())["reason"])
        assert {} == server.store.objects("", "nodes")

    @run_in_virtual_time
    @pytest.mark.parametrize("host", ["localhost:7782", "127.0.0.1", "[::1]:7782"])
    async def test_a_request_to_a_loopback_name_is_accepted(self, host: str) -> None:
        server = LiteApiServer(fresh(), hosts=allowed_hosts("::1"))
        assert 200 == (await server(Request(method="GET", path=NODES, headers={"host": host}))).status
