"""The store as a service: paths, verbs and bodies as the Kubernetes API has them.

Requests are answered without waiting; only watches last. In process the service is its own road: what is a `Handler`
for a server is a `Transport` for a client.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from podpool.core.errors import PodpoolError
from podpool.lab.apiserver import status_errors
from podpool.lab.apiserver.content_negotiation import Form, form, kept, kept_as, shown
from podpool.lab.apiserver.continue_token import Token, read_token
from podpool.lab.apiserver.registry import DEFINITIONS, PODS
from podpool.lab.apiserver.request_body import body_of, change_of, decoded, merged_into, strange_fields
from podpool.lab.apiserver.routes import Target, route
from podpool.lab.apiserver.selectors import Selects, everything, selector
from podpool.lab.apiserver.status_errors import Refused
from podpool.lab.apiserver.store import PocketStore, Preconditions
from podpool.lab.apiserver.watch import USUAL, Terms
from podpool.lab.apiserver.watch_cache import Object
from podpool.runtime.transport import Request, Response

JSON = {"content-type": "application/json"}
_RULES = "x-kubernetes-validations are kept, but not evaluated here"
_TRUE = ("true", "1")
_LONGEST_NUMBER = 19

_log = logging.getLogger(__name__)


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is asked for with a delete, as far as it is heeded; dependants always go in the background."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions = Preconditions()


class Chosen(msgspec.Struct, frozen=True):
    """The node that a Pod is bound to."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class Binding(msgspec.Struct, frozen=True):
    """What is posted to bind a Pod."""

    target: Chosen


class PocketApi:
    """The API server of a pocket store."""

    def __init__(self, store: PocketStore) -> None:
        self.store = store

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        try:
            return self._answer(request)
        except Refused as refused:
            return json(refused.status, refused.code)
        except (PodpoolError, AssertionError):
            raise  # a file that cannot be written ends the process, and whoever checks each write must be heard
        except Exception as error:  # noqa: BLE001  the last resort: one odd request is its sender's trouble alone
            _log.exception("%s %s failed", request.method, request.path)
            broken = status_errors.failed(error)
            return json(broken.status, broken.code)

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
            raise status_errors.not_allowed()
        if request.query.get("dryRun"):
            raise status_errors.not_spoken("dryRun, to try a write out without making it,")
        return verb(target, request)

    def _form(self, target: Target, request: Request) -> Form:
        return form(
            target.served,
            request.headers.get("accept", ""),
            now=self.store.clock.wall,
            include=request.query.get("includeObject", "Metadata"),
        )

    def _get(self, target: Target, request: Request) -> Response:
        return json(self._form(target, request).one(self.store.get(target.served, target.key)))

    def _create(self, target: Target, request: Request) -> Response:
        wanted = body_of(request)
        warnings = strange_fields(target.served, wanted, request.query.get("fieldValidation", "Ignore"))
        made = self.store.create(kept_as(target.served), kept(target.served, wanted), namespace=target.namespace)
        return self._written(target, request, made, 201, warnings)

    def _bind(self, target: Target, request: Request) -> Response:
        """Bind a Pod to a node: the one thing that is posted to an object."""
        if target.sub != "binding":
            raise status_errors.not_allowed()
        node = decoded(request, Binding).target.name

        def bound(pod: Object) -> Object:
            if pod.get("spec", {}).get("nodeName"):
                why = f"pod {target.name} is already assigned to node {pod['spec']['nodeName']!r}"
                raise status_errors.conflict("pods/binding", target.name, why)
            return merged_into(pod, {"spec": {"nodeName": node}})

        self.store.update(PODS, target.key, bound)
        return json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _replace(self, target: Target, request: Request) -> Response:
        wanted = body_of(request)
        return self._update(target, request, lambda _: wanted)

    def _patch(self, target: Target, request: Request) -> Response:
        return self._update(target, request, change_of(target.served, request))

    def _update(self, target: Target, request: Request, change: Callable[[Object], Object]) -> Response:
        served, warnings = target.served, list[str]()

        def changed(old: Object) -> Object:
            wanted = change(shown(served, old))
            warnings.extend(strange_fields(served, wanted, request.query.get("fieldValidation", "Ignore")))
            return kept(served, wanted)

        new = self.store.update(kept_as(served), target.key, changed, sub=target.sub)
        return self._written(target, request, new, 200, warnings)

    def _written(self, target: Target, request: Request, obj: Object, status: int, warnings: list[str]) -> Response:
        """Answer a write; who defines a kind is told what is not heeded of it."""
        body = msgspec.json.encode(self._form(target, request).one(obj))
        if target.served.id == DEFINITIONS.id and b'"x-kubernetes-validations"' in body:
            warnings = [*warnings, _RULES]
        told = {"warning": ", ".join(f'299 - "{each}"' for each in warnings)} if warnings else {}
        return Response(status, body, headers={**JSON, **told})

    def _delete(self, target: Target, request: Request) -> Response:
        if target.sub:
            raise status_errors.not_allowed()
        options = decoded(request, DeleteOptions) if request.body else DeleteOptions()
        gone = self.store.delete(
            target.served, target.key, preconditions=options.preconditions, grace=options.grace_period_seconds
        )
        return json(shown(target.served, gone))

    def _list_or_watch(self, target: Target, request: Request) -> Response:
        if request.query.get("watch") in _TRUE:
            return self._watch(target, request)
        return self._list(target, request)

    def _list(self, target: Target, request: Request) -> Response:
        served, query = target.served, request.query
        token = read_token(query["continue"]) if query.get("continue") else None
        revision = token.revision if token else self._shown(query)
        selects = _selects(target, query)
        page = self.store.page(
            served,
            namespace=target.namespace,
            selects=selects,
            revision=revision,
            after=token.after if token else "",
            limit=0 if query.get("resourceVersion") == "0" else _number(query.get("limit", "0")),
        )
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if page.following:
            meta["continue"] = Token(revision=revision, after=page.found[-1][0]).text()
            if selects is everything:
                meta["remainingItemCount"] = page.following
        return json(self._form(target, request).many([obj for _, obj in page.found], meta))

    def _shown(self, query: Mapping[str, str]) -> int:
        """Tell which revision a list shows: the last one, one from the cache, or one that was asked for."""
        asked = query.get("resourceVersion", "")
        if not asked:
            return self.store.revision
        if asked == "0":
            return self.store.cached_revision()
        if _number(asked) > self.store.revision:
            raise status_errors.not_yet(_number(asked), self.store.revision)
        return _number(asked) if query.get("resourceVersionMatch") == "Exact" else self.store.revision

    def _watch(self, target: Target, request: Request) -> Response:
        query = request.query
        lasting = float(_number(query.get("timeoutSeconds", "0"))) or USUAL.lasting
        bookmarks, initial = query.get("allowWatchBookmarks") in _TRUE, query.get("sendInitialEvents")
        _refuse_unsound(query, initial, bookmarks=bookmarks)
        since = _number(query.get("resourceVersion") or "0") or None
        watch = self.store.watch(
            target.served,
            since=None if initial == "true" else since or (self.store.revision if initial == "false" else None),
            namespace=target.namespace,
            selects=_selects(target, query),
            form=self._form(target, request),
            terms=Terms(lasting=lasting, bookmarks=bookmarks, marks_the_start=initial == "true"),
        )
        return Response(200, headers=JSON, stream=watch, close=watch.close)


def _refuse_unsound(query: Mapping[str, str], initial: str | None, *, bookmarks: bool) -> None:
    if initial is None:
        return
    if query.get("resourceVersionMatch") != "NotOlderThan":
        why = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise status_errors.invalid("ListOptions.meta.k8s.io", "", why)
    if initial == "true" and not bookmarks:
        why = "sendInitialEvents: Forbidden: wants allowWatchBookmarks, for the mark at their end"
        raise status_errors.invalid("ListOptions.meta.k8s.io", "", why)


def _selects(target: Target, query: Mapping[str, str]) -> Selects:
    served = target.served
    selects = selector(served, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    if served.stored is None or selects is everything:
        return selects
    return lambda obj: selects(shown(served, obj))


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise status_errors.bad_request(f"not a number: {text[:_LONGEST_NUMBER]!r}")
    return int(text)


def json(body: object, status: int = 200) -> Response:
    """Answer with an object."""
    return Response(status, msgspec.json.encode(body), headers=JSON)
