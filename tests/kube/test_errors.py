"""Typed errors of the API server, and a server that does not answer."""

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NAMESPACES, NODES
from podpool.kube import errors
from podpool.kube.client import KubeClient
from podpool.runtime.transport import Request, Response, Unreachable
from tests.kube.api_servers import lite_api_server
from tests.kube.disturbable_transport import DisturbableTransport
from tests.kube.event_loops import run_in_virtual_time


def client(answer: Response) -> KubeClient:
    transport = DisturbableTransport(lite_api_server())
    transport.answer = lambda _: answer
    return KubeClient(transport)


def status(code: int, reason: str) -> Response:
    return Response(code, msgspec.json.encode({"code": code, "reason": reason, "message": "because"}))


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.ApiInvalid),
        (401, "Unauthorized", errors.ApiForbidden),
        (403, "Forbidden", errors.ApiForbidden),
        (404, "NotFound", errors.ApiNotFound),
        (405, "MethodNotAllowed", errors.ApiError),
        (409, "AlreadyExists", errors.ApiAlreadyExists),
        (409, "Conflict", errors.ApiConflict),
        (410, "Expired", errors.ApiExpired),
        (410, "Gone", errors.ApiExpired),
        (422, "Invalid", errors.ApiInvalid),
        (429, "TooManyRequests", errors.ApiTooManyRequests),
        (500, "InternalError", errors.ApiServerError),
        (504, "Timeout", errors.ApiServerError),
    ],
)
@run_in_virtual_time
async def test_a_refusal_has_its_type_and_names_the_request(
    code: int, reason: str, expected: type[errors.ApiError]
) -> None:
    with pytest.raises(errors.ApiError) as refused:
        await client(status(code, reason)).get(NODE_NETWORK_CONFIGS, "node-1", namespace="kube-system")
    assert expected is type(refused.value)
    assert f"cannot get NodeNetworkConfig kube-system/node-1: because ({code} {reason})" == str(refused.value)


@run_in_virtual_time
async def test_a_page_of_a_proxy_is_an_error_like_any_other() -> None:
    with pytest.raises(errors.ApiServerError, match="<html>"):
        await client(Response(502, b"<html>Bad Gateway")).list(NODES)


def busy(transport: DisturbableTransport, times: int, *, timeout: str) -> None:
    """Have a server turn away so many requests."""

    def answer(_: Request) -> Response | None:
        turned_away = len(transport.sent) <= times
        return Response(429, b"", headers={"retry-after": timeout}) if turned_away else None

    transport.answer = answer


@run_in_virtual_time
async def test_a_busy_server_is_asked_again_after_the_time_that_it_asked_for() -> None:
    transport = DisturbableTransport(lite_api_server())
    busy(transport, 2, timeout="3")
    assert "default" == (await KubeClient(transport).get(NAMESPACES, "default")).metadata.name
    assert pytest.approx(6.0) == asyncio.get_running_loop().time()
    assert 3 == len(transport.sent)


@run_in_virtual_time
async def test_a_watch_waits_for_a_busy_server_too() -> None:
    transport = DisturbableTransport(lite_api_server())
    busy(transport, 1, timeout="3")
    async with aclosing(KubeClient(transport).watch(NAMESPACES, resource_version="", timeout_seconds=1)) as watch:
        assert "ADDED" == (await anext(watch)).type
    assert 2 == len(transport.sent)


@run_in_virtual_time
async def test_a_wait_beyond_the_deadline_is_left_to_the_caller() -> None:
    transport = DisturbableTransport(lite_api_server())
    busy(transport, 9, timeout="4")
    with pytest.raises(errors.ApiTooManyRequests) as refused:
        await KubeClient(transport).create(NAMESPACES, {"metadata": {"name": "x"}})
    assert 4.0 == refused.value.retry_after
    assert pytest.approx(8.0) == asyncio.get_running_loop().time()


@run_in_virtual_time
async def test_a_busy_server_that_asks_for_nothing_is_not_asked_again() -> None:
    transport = DisturbableTransport(lite_api_server())
    transport.answer = lambda _: Response(429, b"")
    with pytest.raises(errors.ApiTooManyRequests):
        await KubeClient(transport).get(NODES, "n")
    assert 1 == len(transport.sent)


@run_in_virtual_time
async def test_nothing_else_is_tried_twice() -> None:
    transport = DisturbableTransport(lite_api_server())
    transport.answer = lambda _: Response(503, b"", headers={"retry-after": "1"})
    with pytest.raises(errors.ApiServerError):
        await KubeClient(transport).get(NODES, "n")
    assert 1 == len(transport.sent)


@run_in_virtual_time
async def test_an_answer_that_is_not_its_kind_is_unreadable() -> None:
    for body in (b"[]", b"{", b'{"metadata": {"name": 5}}'):
        with pytest.raises(errors.ApiDecodeError, match="get Node n"):
            await client(Response(200, body)).get(NODES, "n")


@run_in_virtual_time
async def test_no_answer_within_the_timeout_is_unreachable() -> None:
    transport = DisturbableTransport(lite_api_server())
    transport.hangs = True
    with pytest.raises(Unreachable, match="within 10 s to: list nodes"):
        await KubeClient(transport).list(NODES)
    assert pytest.approx(10.0) == asyncio.get_running_loop().time()
    with pytest.raises(Unreachable):
        await anext(KubeClient(transport).watch(NODES, resource_version="1"))


@run_in_virtual_time
async def test_a_shorter_timeout_of_the_caller_is_raised_as_such() -> None:
    transport = DisturbableTransport(lite_api_server())
    transport.hangs = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await KubeClient(transport).list(NODES)
