"""Typed requests to the API server.

A `get`, and a `list` that is not `cached`, name no version: they are quorum reads, and show every write that was
answered before they were sent. Writes are patches of the fields that are ours. A precondition is the version that the
caller decided on; when the object has moved on, the answer is `Conflict`.

A request that was turned away because the server is busy is sent again after the time that the server asked for, when
that is within the deadline. Nothing else is tried twice here: who called knows whether it still wants to.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from podpool.api.meta import Kind, T
from podpool.kube.codec import ENCODER, LineSplitter, ObjectList, WatchEvent, WatchLine, decoders_of, manifest_of
from podpool.kube.errors import ApiDecodeError, ApiExpired, ApiTooManyRequests, api_error
from podpool.runtime.transport import Request, Response, Transport, Unreachable

PAGE = 500
"""Objects per page of a list, as client-go has it."""
SILENCE = 90.0
"""Seconds after which a silent watch is given up: the server sends a bookmark every minute."""

_PEER = "the API server"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_LINE = msgspec.json.Decoder(WatchLine)
_PLAIN = msgspec.json.Decoder(dict[str, Any])

R = TypeVar("R")


class KubeClient:
    """The API server, as one account sees it. Every call raises `ApiError` or `Unreachable`."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float = 10.0,
        watch_idle_timeout: float = SILENCE,
        write_guard: Callable[[], None] | None = None,
    ) -> None:
        self._transport = transport
        self._timeout = timeout
        self._watch_idle_timeout = watch_idle_timeout
        self._write_guard = write_guard

    def with_write_guard(self, write_guard: Callable[[], None]) -> "KubeClient":
        """Make a client that asks before each write: what `permit` raises, the write does."""
        return KubeClient(
            self._transport, timeout=self._timeout, watch_idle_timeout=self._watch_idle_timeout, write_guard=write_guard
        )

    async def get(self, kind: Kind[T], name: str, *, namespace: str | None = None) -> T:
        """Read one object as it is now; raises `NotFound`."""
        doing = f"get {_named(kind, namespace, name)}"
        path = kind.path(namespace=namespace, name=name)
        return _read(kind, doing, await self._call(doing, Request(method="GET", path=path)))

    async def get_raw(self, kind: Kind[T], name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """Read one object with all its fields, also those that we do not know: what `replace` takes."""
        doing = f"get {_named(kind, namespace, name)}"
        body = await self._call(doing, Request(method="GET", path=kind.path(namespace=namespace, name=name)))
        return _decoded(_PLAIN, doing, body)

    async def list(
        self,
        kind: Kind[T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        cached: bool = False,
    ) -> ObjectList[T]:
        """Read all objects that match; `cached` is cheaper for the server, and may be of any age."""
        query = _selecting(labels, fields) | ({"resourceVersion": "0"} if cached else {})
        try:
            return await self._pages(kind, namespace, query | {"limit": str(PAGE)})
        except ApiExpired:  # the pages took so long that their version was forgotten: all at once, then
            return await self._pages(kind, namespace, query)

    async def create(self, kind: Kind[T], obj: T | Mapping[str, Any], *, namespace: str | None = None) -> T:
        """Create an object, in its own namespace unless told; raises `AlreadyExists`."""
        plain = manifest_of(kind, obj)
        meta = plain.get("metadata", {})
        namespace = namespace or meta.get("namespace")
        doing = f"create {_named(kind, namespace, meta.get('name', ''))}"
        request = _writing("POST", kind.path(namespace=namespace), plain)
        return _read(kind, doing, await self._call(doing, request))

    async def replace(
        self, kind: Kind[T], obj: Mapping[str, Any], *, namespace: str | None = None, subresource: str | None = None
    ) -> T:
        """Write an object that was `read`, whole: its version is the precondition. A struct would lose fields."""
        meta = obj["metadata"]
        namespace = namespace or meta.get("namespace")
        doing = f"replace {_part(subresource)}{_named(kind, namespace, meta['name'])}"
        path = kind.path(namespace=namespace, name=meta["name"], subresource=subresource)
        return _read(kind, doing, await self._call(doing, _writing("PUT", path, manifest_of(kind, obj))))

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
        """Merge fields into an object, or into its `subresource`; `precondition` is the version that it must have."""
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
        """Apply the operations of a JSON patch, all or none; a failed `test` is `Invalid`."""
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
        """Delete an object, only this `uid` at this version if told; with finalizers it stays until they are gone."""
        doing = f"delete {_named(kind, namespace, name)}"
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {"preconditions": {each: value for each, value in conditions.items() if value}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        options |= {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        await self._call(doing, _writing("DELETE", kind.path(namespace=namespace, name=name), options))

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
        """Tell what changes after `resource_version`, until the server ends it after `timeout_seconds`.

        Raises `ApiExpired` when the server has forgotten that version. Whoever stops early closes (`contextlib.aclosing`).
        """
        doing = f"watch {_named(kind, namespace, '')}"
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        query |= {"resourceVersion": resource_version, **_selecting(labels, fields)}
        request = Request(method="GET", path=kind.path(namespace=namespace), query=query)
        response = await self._head(doing, request)
        pieces, lines = aiter(response.stream), LineSplitter()
        try:
            while (piece := await _next(pieces, self._watch_idle_timeout)) is not None:
                for line in lines.cut(piece):
                    yield _change(kind, doing, line)
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
        doing = f"patch {_part(subresource)}{_named(kind, namespace, name)}"
        media = _MERGE if isinstance(patch, Mapping) else _JSON_PATCH
        request = _writing("PATCH", kind.path(namespace=namespace, name=name, subresource=subresource), patch, media)
        return _read(kind, doing, await self._call(doing, request))

    async def _pages(self, kind: Kind[T], namespace: str | None, query: dict[str, str]) -> ObjectList[T]:
        doing, path = f"list {_named(kind, namespace, '')}", kind.path(namespace=namespace)
        items: list[T] = []
        while True:
            body = await self._call(doing, Request(method="GET", path=path, query=query))
            page = _decoded(decoders_of(kind).page, doing, body)
            items += page.items or ()
            if not page.metadata.next:
                return ObjectList(items=items, resource_version=page.metadata.resource_version)
            query = {each: value for each, value in query.items() if each != "resourceVersion"}
            query["continue"] = page.metadata.next

    async def _call(self, doing: str, request: Request) -> bytes:
        if self._write_guard and request.method != "GET":
            self._write_guard()
        async with self._within(doing):
            return await (await self._accepted(doing, request)).read()

    async def _head(self, doing: str, request: Request) -> Response:
        async with self._within(doing):
            return await self._accepted(doing, request)

    async def _accepted(self, doing: str, request: Request) -> Response:
        """Send a request until it is not turned away any more, or the wait would pass the deadline."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        while True:
            response = await self._transport.send(request)
            if response.status < 400:
                return response
            error = api_error(doing, response.status, await response.read(), response.headers)
            patience = error.retry_after if isinstance(error, ApiTooManyRequests) else None
            if not patience or loop.time() + patience >= until:
                raise error
            await asyncio.sleep(patience)

    @asynccontextmanager
    async def _within(self, doing: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError as late:
            raise Unreachable(_PEER, f"no answer within {self._timeout:g} s, to {doing}") from late


def _part(subresource: str | None) -> str:
    return f"the {subresource} of " if subresource else ""


def _named(kind: Kind[Any], namespace: str | None, name: str) -> str:
    place = f"{namespace}/{name}".strip("/") if namespace and kind.namespaced else name
    return f"{kind.kind} {place}" if name else f"{kind.plural} in {place}" if place else kind.plural


def _selecting(labels: str | None, fields: str | None) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {each: value for each, value in chosen.items() if value}


def _writing(method: str, path: str, body: object, media: str = "application/json") -> Request:
    return Request(method=method, path=path, headers={"content-type": media}, body=ENCODER.encode(body))


async def _next(pieces: AsyncIterator[bytes], silence: float) -> bytes | None:
    """Take the next piece of a stream; None at its end."""
    try:
        async with asyncio.timeout(silence):
            return await anext(pieces, None)
    except TimeoutError as late:
        raise Unreachable(_PEER, f"a watch was silent for {silence:g} s") from late


def _change(kind: Kind[T], doing: str, line: bytes) -> WatchEvent[T]:
    told = _decoded(_LINE, doing, line)
    if told.type == "ERROR":
        raise api_error(doing, 200, told.object)
    return WatchEvent(type=told.type, object=_decoded(decoders_of(kind).one, doing, told.object))


def _read(kind: Kind[T], doing: str, body: bytes) -> T:
    return _decoded(decoders_of(kind).one, doing, body)


def _decoded(decoder: msgspec.json.Decoder[R], doing: str, body: bytes | msgspec.Raw) -> R:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ApiDecodeError(doing, status=200, message=f"the answer cannot be read: {error}") from error
