"""The store as a service: paths, verbs and bodies as the Kubernetes API has them.

Requests are answered without waiting; only watches last. In process the service is its own road: what is a `Handler`
for a server is a `Transport` for a client.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from podpool.pocket import refusals
from podpool.pocket.history import Object
from podpool.pocket.kinds import DEFINITIONS, PODS
from podpool.pocket.patches import PatchFailed, merged, patched
from podpool.pocket.refusals import Refused
from podpool.pocket.routes import Target, route
from podpool.pocket.selectors import selector
from podpool.pocket.store import PocketStore, Preconditions
from podpool.pocket.watching import USUAL, Terms
from podpool.runtime.transport import Request, Response

_JSON = {"content-type": "application/json"}
_RULES = '299 - "x-kubernetes-validations are kept, but not evaluated here"'

T = TypeVar("T")


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is asked for with a delete, as far as it is heeded; dependants always go in the background."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions = Preconditions()


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Where a list goes on: the version that it shows, and the last key that was told."""

    revision: int
    after: str


class PocketApi:
    """The API server of a pocket store."""

    def __init__(self, store: PocketStore) -> None:
        self.store = store

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        try:
            return self._answer(request)
        except Refused as refused:
            return _json(refused.status, refused.code)

    send = __call__

    def _answer(self, request: Request) -> Response:
        target = route(self.store.kinds, request.path)
        verbs: Mapping[tuple[str, bool], Callable[[Target, Request], Response]] = {
            ("GET", False): self._list_or_watch,
            ("GET", True): self._get,
            ("POST", False): self._create,
            ("POST", True): self._bind,
            ("PUT", True): self._replace,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }
        verb = verbs.get((request.method, bool(target.name)))
        if not verb:
            raise refusals.not_allowed()
        return verb(target, request)

    def _get(self, target: Target, _: Request) -> Response:
        return _json(self.store.get(target.served, target.key))

    def _create(self, target: Target, request: Request) -> Response:
        made = self.store.create(target.served, _object(request.body), namespace=target.namespace)
        return _written(target, made, 201)

    def _bind(self, target: Target, request: Request) -> Response:
        """Bind a Pod to a node: the one thing that is posted to an object."""
        if target.sub != "binding":
            raise refusals.not_allowed()
        node = _object(request.body).get("target", {}).get("name", "")

        def bound(pod: Object) -> Object:
            if pod.get("spec", {}).get("nodeName"):
                why = f"pod {target.name} is already assigned to node {pod['spec']['nodeName']!r}"
                raise refusals.conflict("pods/binding", target.name, why)
            return _whole(merged(pod, {"spec": {"nodeName": node}}))

        self.store.update(PODS, target.key, bound)
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _replace(self, target: Target, request: Request) -> Response:
        wanted = _object(request.body)
        return _written(target, self.store.update(target.served, target.key, lambda _: wanted, sub=target.sub))

    def _patch(self, target: Target, request: Request) -> Response:
        change = _change(request)
        return _written(target, self.store.update(target.served, target.key, change, sub=target.sub))

    def _delete(self, target: Target, request: Request) -> Response:
        if target.sub:
            raise refusals.not_allowed()
        options = _decoded(request.body, DeleteOptions) if request.body else DeleteOptions()
        gone = self.store.delete(
            target.served, target.key, preconditions=options.preconditions, grace=options.grace_period_seconds
        )
        return _json(gone)

    def _list_or_watch(self, target: Target, request: Request) -> Response:
        if request.query.get("watch") in {"true", "1"}:
            return self._watch(target, request.query)
        return self._list(target, request.query)

    def _list(self, target: Target, query: Mapping[str, str]) -> Response:
        served = target.served
        token = _token(query["continue"]) if query.get("continue") else None
        revision = token.revision if token else self._shown(query)
        selects = selector(served, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = self.store.list(served, namespace=target.namespace, selects=selects, revision=revision)
        if token:
            found = [(key, obj) for key, obj in found if key > token.after]
        limit = 0 if query.get("resourceVersion") == "0" else _number(query.get("limit", "0"))
        told = found[:limit] if limit else found
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if len(told) < len(found):
            meta["continue"] = _text(Token(revision=revision, after=told[-1][0]))
            meta["remainingItemCount"] = len(found) - len(told)
        head = {"kind": f"{served.kind}List", "apiVersion": served.api_version, "metadata": meta}
        return _json({**head, "items": [obj for _, obj in told]})

    def _shown(self, query: Mapping[str, str]) -> int:
        """Tell which revision a list shows: the last one, one from the cache, or one that was asked for."""
        asked = query.get("resourceVersion", "")
        if not asked:
            return self.store.revision
        if asked == "0":
            return self.store.cached_revision()
        if _number(asked) > self.store.revision:
            raise refusals.not_yet(_number(asked), self.store.revision)
        return _number(asked) if query.get("resourceVersionMatch") == "Exact" else self.store.revision

    def _watch(self, target: Target, query: Mapping[str, str]) -> Response:
        if query.get("sendInitialEvents") == "true":
            raise refusals.invalid("ListOptions", "", "sendInitialEvents: Forbidden: not served here")
        lasting = float(_number(query.get("timeoutSeconds", "0"))) or USUAL.lasting
        watch = self.store.watch(
            target.served,
            since=_number(query.get("resourceVersion") or "0") or None,
            namespace=target.namespace,
            selects=selector(target.served, query.get("labelSelector", ""), query.get("fieldSelector", "")),
            terms=Terms(lasting=lasting, bookmarks=query.get("allowWatchBookmarks") in {"true", "1"}),
        )
        return Response(200, headers=_JSON, stream=watch, close=watch.close)


def _change(request: Request) -> Callable[[Object], Object]:
    media = request.headers.get("content-type", "").partition(";")[0]
    if media == "application/merge-patch+json":
        patch = _object(request.body)
        return lambda old: _whole(merged(old, patch))
    if media == "application/json-patch+json":
        operations = _decoded(request.body, list[dict[str, Any]])
        return lambda old: _whole(_patched(old, operations))
    raise refusals.unsupported(media)


def _patched(old: Object, operations: list[dict[str, Any]]) -> object:
    try:
        return patched(old, operations)
    except PatchFailed as failed:
        raise Refused(
            422, "Invalid", f"the server rejected our request due to an error in our request: {failed}"
        ) from None


def _whole(value: object) -> Object:
    if not isinstance(value, Mapping):
        raise refusals.bad_request("the patch leaves no object")
    return value


def _object(body: bytes) -> dict[str, Any]:
    return _decoded(body, dict[str, Any])


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise refusals.bad_request(f"the body cannot be read: {error}") from None


def _number(text: str) -> int:
    if not text.isdecimal():
        raise refusals.bad_request(f"not a number: {text!r}")
    return int(text)


def _token(text: str) -> Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=Token)
    except (ValueError, msgspec.DecodeError):
        raise refusals.bad_request("continue key is not valid") from None


def _text(token: Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _written(target: Target, obj: Object, status: int = 200) -> Response:
    """Answer a write; who defines a kind is told what is not heeded of it."""
    body = msgspec.json.encode(obj)
    ignored = target.served.id == DEFINITIONS.id and b'"x-kubernetes-validations"' in body
    return Response(status, body, headers=_JSON | ({"warning": _RULES} if ignored else {}))


def _json(body: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(body), headers=_JSON)
