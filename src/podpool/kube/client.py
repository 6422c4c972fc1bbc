"""Typed requests to the API server.

A `get`, and a `list` that is not `cached`, are quorum reads: they show every write that was acknowledged before they
were sent. Writes are patches of the fields that podpool owns. A precondition is the resourceVersion on which the caller
decided; if the object has changed since, the call raises `ApiConflict`.

A request that the server rejects as overloaded is sent again after the requested delay, if that is within the timeout.
Nothing else is retried here: the caller knows whether the request still applies.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from podpool.api.meta import Kind, T
from podpool.kube.codec import ENCODER, LineSplitter, ObjectList, WatchEvent, WatchLine, decoders_of, manifest_of
from podpool.kube.errors import ApiDecodeError, ApiExpired, ApiNotFound, ApiTooManyRequests, api_error
from podpool.runtime.transport import Request, Response, Transport, Unreachable

PAGE = 500
"""Objects per page of a list, as in client-go."""
WATCH_IDLE_TIMEOUT = 90.0
"""Seconds without a message after which a watch fails: the server sends a bookmark every minute."""

_SERVER = "the API server"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_LINE = msgspec.json.Decoder(WatchLine)
_PLAIN = msgspec.json.Decoder(dict[str, Any])

R = TypeVar("R")


class PathContent(msgspec.Struct, frozen=True, kw_only=True):
    """The response at a path that is no object: a version, a log, metrics."""

    body: bytes
    headers: Mapping[str, str]
    complete: bool = True
    """False if the body is longer than was asked for."""


class KubeClient:
    """Client for one API server and account. Every call may raise `ApiError` or `Unreachable`."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float = 10.0,
        watch_idle_timeout: float = WATCH_IDLE_TIMEOUT,
        write_guard: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._timeout = timeout
        self._watch_idle_timeout = watch_idle_timeout
        self._write_guard = write_guard

    def with_write_guard(self, write_guard: Callable[[], None]) -> "KubeClient":
        """Return a client that calls `write_guard` before each write; its exception prevents the write."""
        timeouts = {"timeout": self._timeout, "watch_idle_timeout": self._watch_idle_timeout}
        return KubeClient(self._transport, **timeouts, write_guard=write_guard)

    async def get(self, kind: Kind[T], name: str, *, namespace: str | None = None) -> T:
        """Return one object; raises `ApiNotFound`."""
        operation = f"get {_describe(kind, namespace, name)}"
        path = kind.path(namespace=namespace, name=name)
        return _decode_object(kind, operation, await self._call(operation, Request(method="GET", path=path)))

    async def find(self, kind: Kind[T], name: str, *, namespace: str | None = None) -> T | None:
        """Return one object; None if it does not exist."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except ApiNotFound:
            return None

    async def get_raw(self, kind: Kind[T], name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """Return one object with all its fields, known or not, as `replace` takes it."""
        operation = f"get {_describe(kind, namespace, name)}"
        body = await self._call(operation, Request(method="GET", path=kind.path(namespace=namespace, name=name)))
        return _decode(_PLAIN, operation, body)

    async def list(
        self,
        kind: Kind[T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        cached: bool = False,
    ) -> ObjectList[T]:
        """Return all objects that match; `cached` is cheaper for the server and may be of any age."""
        query = _selectors(labels, fields) | ({"resourceVersion": "0"} if cached else {})
        try:
            return await self._pages(kind, namespace, query | {"limit": str(PAGE)})
        except ApiExpired:  # the version expired between two pages: read all at once
            return await self._pages(kind, namespace, query)

    async def read_path(self, path: str, *, max_bytes: int, query: Mapping[str, str] | None = None) -> PathContent:
        """Return what is at a path, at most so many bytes of it."""
        operation = f"get {path}"
        request = Request(method="GET", path=path, query=query or {})
        return await self._within_timeout(operation, self._read_start(operation, request, max_bytes))

    async def create(self, kind: Kind[T], obj: T | Mapping[str, Any], *, namespace: str | None = None) -> T:
        """Create an object, by default in the namespace of its metadata; raises `ApiAlreadyExists`."""
        plain = manifest_of(kind, obj)
        meta = plain.get("metadata", {})
        namespace = namespace or meta.get("namespace")
        operation = f"create {_describe(kind, namespace, meta.get('name', ''))}"
        request = _write_request("POST", kind.path(namespace=namespace), plain)
        return _decode_object(kind, operation, await self._call(operation, request))

    async def replace(
        self, kind: Kind[T], obj: Mapping[str, Any], *, namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Write a whole object from `get_raw`; its version is the precondition. A struct would lose fields."""
        meta = obj["metadata"]
        namespace = namespace or meta.get("namespace")
        operation = f"replace {_subresource_text(subresource)}{_describe(kind, namespace, meta['name'])}"
        path = kind.path(namespace=namespace, name=meta["name"], subresource=subresource)
        request = _write_request("PUT", path, manifest_of(kind, obj))
        return _decode_object(kind, operation, await self._call(operation, request))

    async def merge_patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        precondition: str | None = None,
    ) -> T:
        """Apply a merge patch to an object or its `subresource`; `precondition` is the required resourceVersion."""
        if precondition is not None:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": precondition}}
        return await self._patch(kind, name, patch, namespace=namespace, subresource=subresource)

    async def json_patch(
        self,
        kind: Kind[T],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """Apply the operations of a JSON patch, all or none; a failed `test` raises `ApiInvalid`."""
        return await self._patch(kind, name, operations, namespace=namespace, subresource=subresource)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; `uid` and `resource_version` are preconditions. Finalizers delay the deletion."""
        operation = f"delete {_describe(kind, namespace, name)}"
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {"preconditions": {each: value for each, value in conditions.items() if value}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        options |= {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        await self._call(operation, _write_request("DELETE", kind.path(namespace=namespace, name=name), options))

    async def watch(
        self,
        kind: Kind[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes after `resource_version` until the server ends the watch after `timeout_seconds`.

        Raises `ApiExpired` if the version is no longer available. Close it to stop early (`contextlib.aclosing`).
        """
        operation = f"watch {_describe(kind, namespace, '')}"
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        query |= {"resourceVersion": resource_version, **_selectors(labels, fields)}
        request = Request(method="GET", path=kind.path(namespace=namespace), query=query)
        response = await self._stream_head(operation, request)
        chunks, lines = aiter(response.stream), LineSplitter()
        try:
            while (chunk := await _next_chunk(chunks, self._watch_idle_timeout)) is not None:
                for line in lines.feed(chunk):
                    yield _watch_event(kind, operation, line)
        finally:
            await response.close()

    async def _patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None,
        subresource: str | None,
    ) -> T:
        operation = f"patch {_subresource_text(subresource)}{_describe(kind, namespace, name)}"
        media = _MERGE if isinstance(patch, Mapping) else _JSON_PATCH
        path = kind.path(namespace=namespace, name=name, subresource=subresource)
        request = _write_request("PATCH", path, patch, media)
        return _decode_object(kind, operation, await self._call(operation, request))

    async def _pages(self, kind: Kind[T], namespace: str | None, query: dict[str, str]) -> ObjectList[T]:
        operation, path = f"list {_describe(kind, namespace, '')}", kind.path(namespace=namespace)
        items: list[T] = []
        while True:
            body = await self._call(operation, Request(method="GET", path=path, query=query))
            page = _decode(decoders_of(kind).page, operation, body)
            items += page.items or ()
            if not page.metadata.next:
                return ObjectList(items=items, resource_version=page.metadata.resource_version)
            query = {each: value for each, value in query.items() if each != "resourceVersion"}
            query["continue"] = page.metadata.next

    async def _call(self, operation: str, request: Request) -> bytes:
        if self._write_guard and request.method != "GET":
            self._write_guard()
        return await self._within_timeout(operation, self._read_body(operation, request))

    async def _read_body(self, operation: str, request: Request) -> bytes:
        return await (await self._send(operation, request)).read()

    async def _read_start(self, operation: str, request: Request, max_bytes: int) -> PathContent:
        response = await self._send(operation, request)
        body = bytearray()
        try:
            async for chunk in response.stream:
                body += chunk
                if len(body) > max_bytes:
                    break
        finally:
            await response.close()
        complete = len(body) <= max_bytes
        return PathContent(body=bytes(body[:max_bytes]), headers=response.headers, complete=complete)

    async def _stream_head(self, operation: str, request: Request) -> Response:
        return await self._within_timeout(operation, self._send(operation, request))

    async def _send(self, operation: str, request: Request) -> Response:
        """Send a request, again while the server is overloaded and its requested delay ends before the timeout."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        while True:
            response = await self._transport.send(request)
            if response.status < 400:
                return response
            error = api_error(operation, response.status, await response.read(), response.headers)
            delay = error.retry_after if isinstance(error, ApiTooManyRequests) else None
            if not delay or loop.time() + delay >= until:
                raise error
            await asyncio.sleep(delay)

    async def _within_timeout(self, operation: str, coroutine: Coroutine[Any, Any, R]) -> R:
        try:
            async with asyncio.timeout(self._timeout):
                return await coroutine
        except TimeoutError as late:
            raise Unreachable(_SERVER, f"no answer within {self._timeout:g} s to: {operation}") from late


def _subresource_text(subresource: str | None) -> str:
    return f"the {subresource} of " if subresource else ""


def _describe(kind: Kind[Any], namespace: str | None, name: str) -> str:
    place = f"{namespace}/{name}".strip("/") if namespace and kind.namespaced else name
    return f"{kind.kind} {place}" if name else f"{kind.plural} in {place}" if place else kind.plural


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {each: value for each, value in chosen.items() if value}


def _write_request(method: str, path: str, body: object, media: str = "application/json") -> Request:
    return Request(method=method, path=path, headers={"content-type": media}, body=ENCODER.encode(body))


async def _next_chunk(chunks: AsyncIterator[bytes], idle_timeout: float) -> bytes | None:
    """Return the next chunk of a stream; None at its end."""
    try:
        async with asyncio.timeout(idle_timeout):
            return await anext(chunks, None)
    except TimeoutError as late:
        raise Unreachable(_SERVER, f"no message on a watch for {idle_timeout:g} s") from late


def _watch_event(kind: Kind[T], operation: str, line: bytes) -> WatchEvent[T]:
    event = _decode(_LINE, operation, line)
    if event.type == "ERROR":
        raise api_error(operation, 200, event.object)
    return WatchEvent(type=event.type, object=_decode(decoders_of(kind).one, operation, event.object))


def _decode_object(kind: Kind[T], operation: str, body: bytes) -> T:
    return _decode(decoders_of(kind).one, operation, body)


def _decode(decoder: msgspec.json.Decoder[R], operation: str, body: bytes | msgspec.Raw) -> R:
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise ApiDecodeError(operation, status=200, message=f"cannot decode the response: {error}") from error
