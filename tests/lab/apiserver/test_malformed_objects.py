"""What nobody should send: it is refused with a sentence or shown, and whoever comes next is answered as ever."""

from typing import Any

import msgspec
import pytest

from podpool.api.crds import CRDS
from podpool.lab.apiserver.server import LiteApiServer
from podpool.runtime.host_check import allowed_hosts
from podpool.runtime.transport import Request
from tests.kube.loops import in_virtual_time
from tests.lab.apiserver.test_server import TABLE, got
from tests.lab.apiserver.test_store import LAMPS, fresh

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"


async def post(made: LiteApiServer, path: str, body: object) -> tuple[int, Any]:
    answer = await made(Request(method="POST", path=path, body=msgspec.json.encode(body)))
    return answer.status, msgspec.json.decode(await answer.read())


async def row(made: LiteApiServer, path: str) -> dict[str, Any]:
    """The one row of a list, by column."""
    code, table = await got(made, path, accept=TABLE)
    assert 200 == code
    return dict(zip((each["name"] for each in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))


def without_scope() -> dict[str, Any]:
    spec: dict[str, Any] = {**LAMPS["spec"]}  # type: ignore[dict-item]  # JSON
    del spec["scope"]
    return spec


class TestDefinitions:
    SPEC: Any = LAMPS["spec"]

    @in_virtual_time
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
    async def test_one_that_cannot_be_served_is_refused_with_its_field(self, spec: Any, field: str) -> None:  # noqa: ANN401  JSON
        made = LiteApiServer(fresh())
        before = made.store.snapshot()
        code, status = await post(made, CRDS.path(), {**LAMPS, "spec": spec})
        assert (422, field) == (code, status["details"]["causes"][0]["field"])
        assert before == made.store.snapshot()
        assert 201 == (await post(made, CRDS.path(), LAMPS))[0]

    @in_virtual_time
    async def test_one_that_is_served_cannot_be_broken(self) -> None:
        made = LiteApiServer(fresh())
        await post(made, CRDS.path(), LAMPS)
        headers = {"content-type": "application/merge-patch+json"}
        path, body = CRDS.path(name="lamps.x.dev"), b'{"spec": {"scope": null}}'
        answer = await made(Request(method="PATCH", path=path, body=body, headers=headers))
        assert 422 == answer.status
        assert 200 == (await got(made, "/apis/x.dev/v1/lamps"))[0]


class TestShown:
    @in_virtual_time
    async def test_a_part_that_is_null_is_none(self) -> None:
        made = LiteApiServer(fresh())
        code, pod = await post(made, PODS, {"metadata": {"name": "p"}, "spec": None})
        assert (201, False) == (code, "spec" in pod)
        assert ("p", "0/0", "Pending") == tuple((await row(made, PODS)).values())[:3]

    @in_virtual_time
    async def test_a_time_that_is_none(self) -> None:
        made = LiteApiServer(fresh())
        await post(made, EVENTS, {"metadata": {"name": "e"}, "reason": "R", "firstTimestamp": "yesterday"})
        shown = await row(made, EVENTS)
        assert ("<invalid>", "R", "e") == (shown["First Seen"], shown["Reason"], shown["Name"])

    @in_virtual_time
    async def test_a_condition_without_a_status_does_not_hold(self) -> None:
        made = LiteApiServer(fresh())
        await post(made, NODES, {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}, {}]}})
        assert "NotReady" == (await row(made, NODES))["Status"]

    @in_virtual_time
    @pytest.mark.parametrize(
        ("path", "odd"),
        [
            (NODES, {"status": {"conditions": ["Ready"]}}),
            (NODES, {"status": {"addresses": [{}]}}),
            (PODS, {"spec": {"containers": 3}}),
            (EVENTS, {"message": 5, "involvedObject": []}),
        ],
    )
    async def test_an_object_that_no_row_can_be_made_of_keeps_its_name(self, path: str, odd: dict[str, Any]) -> None:
        made = LiteApiServer(fresh())
        assert 201 == (await post(made, path, {"metadata": {"name": "odd"}, **odd}))[0]
        assert {"odd", "<invalid>"} == set((await row(made, path)).values())


class TestRefused:
    @in_virtual_time
    @pytest.mark.parametrize(
        "odd", [{"spec": []}, {"status": "x"}, {"kind": []}, {"apiVersion": {}}, {"metadata": "p"}], ids=str
    )
    async def test_a_part_of_another_type(self, odd: dict[str, Any]) -> None:
        assert 400 == (await post(LiteApiServer(fresh()), PODS, {"metadata": {"name": "p"}, **odd}))[0]

    @in_virtual_time
    @pytest.mark.parametrize("target", [None, {}, {"name": ""}, {"name": 3}], ids=str)
    async def test_a_binding_to_no_node(self, target: object) -> None:
        made = LiteApiServer(fresh())
        await post(made, PODS, {"metadata": {"name": "p"}})
        assert 400 == (await post(made, f"{PODS}/p/binding", {"target": target}))[0]

    @in_virtual_time
    async def test_a_number_of_many_digits(self) -> None:
        code, status = await got(LiteApiServer(fresh()), PODS, limit="1" * 5000)
        assert (400, "BadRequest") == (code, status["reason"])

    @in_virtual_time
    async def test_what_nobody_thought_of_is_answered_too(self) -> None:
        answer = await LiteApiServer(fresh())(Request(method="POST", path=PODS, body=b'{"a":' * 100_000))
        assert 500 == answer.status
        assert "InternalError" == msgspec.json.decode(await answer.read())["reason"]

    @in_virtual_time
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
    async def test_a_web_site(self, headers: dict[str, str]) -> None:
        made = LiteApiServer(fresh(), hosts=allowed_hosts("127.0.0.1"))
        body = msgspec.json.encode({"metadata": {"name": "n"}})
        answer = await made(Request(method="POST", path=NODES, body=body, headers=headers))
        assert (403, "Forbidden") == (answer.status, msgspec.json.decode(await answer.read())["reason"])
        assert {} == made.store.objects("", "nodes")

    @in_virtual_time
    @pytest.mark.parametrize("host", ["localhost:7782", "127.0.0.1", "[::1]:7782"])
    async def test_but_not_who_calls_it_by_its_name(self, host: str) -> None:
        made = LiteApiServer(fresh(), hosts=allowed_hosts("::1"))
        assert 200 == (await made(Request(method="GET", path=NODES, headers={"host": host}))).status
