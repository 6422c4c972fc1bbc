"""Resource requests: paths, verbs and bodies as in the Kubernetes API, answered from an `ObjectStore`.

Every request is answered without waiting; only watches last. The handler serves a server (`Handler`) and, in one
process, a client (`Transport`).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from podpool.core.errors import PodpoolError
from podpool.lab.apiserver import status_errors
from podpool.lab.apiserver.content_negotiation import Representation, negotiate, stored_resource, to_stored, to_version
from podpool.lab.apiserver.registry import CRDS, NAMESPACES, PODS, ApiResource, Object, ResourceRegistry
from podpool.lab.apiserver.request_bodies import (
    ContinueToken,
    apply_merge_patch,
    decode,
    decode_object,
    decode_patch,
    parse_continue_token,
    parse_number,
    unknown_fields,
)
from podpool.lab.apiserver.selectors import Selector, match_all, parse_selectors
from podpool.lab.apiserver.status_errors import StatusError
from podpool.lab.apiserver.store import ObjectStore, Preconditions
from podpool.lab.apiserver.watch import DEFAULT_OPTIONS, WatchOptions
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Request, Response

JSON = {"content-type": "application/json"}
_CEL_WARNING = "x-kubernetes-validations are stored, but not evaluated by this API server"
_TRUE = ("true", "1")

log = get_logger(__name__)


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a path names."""

    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str | None = None

    @property
    def key(self) -> str:
        """The object's key in the store."""
        return self.resource.key(self.namespace, self.name)


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The supported fields of DeleteOptions; dependants are always deleted in the background."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions = Preconditions()


class BindingTarget(msgspec.Struct, frozen=True):
    """The node that a Pod is bound to."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class Binding(msgspec.Struct, frozen=True):
    """The body of a request to pods/binding."""

    target: BindingTarget


class ResourceHandler:
    """Serves the resources of one object store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._verbs: Mapping[tuple[str, bool], Callable[[RequestTarget, Request], Response]] = {
            ("GET", False): self._list_or_watch,
            ("GET", True): self._get,
            ("POST", False): self._create,
            ("POST", True): self._bind,
            ("PUT", True): self._replace,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }
        """By method, and whether the path names an object."""

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        try:
            return self._answer(request)
        except StatusError as error:
            return json(error.status, error.code)
        except (PodpoolError, AssertionError):
            raise  # a store file that cannot be written ends the process, and a failed check of a test must surface
        except Exception as error:
            log.exception("internal error, request answered with 500", method=request.method, path=request.path)
            failure = status_errors.internal_error(error)
            return json(failure.status, failure.code)

    send = __call__

    def _answer(self, request: Request) -> Response:
        target = route(self.store.registry, request.path)
        verb = self._verbs.get((request.method, bool(target.name)))
        if not verb:
            raise status_errors.method_not_allowed()
        if request.query.get("dryRun"):
            raise status_errors.not_implemented("dryRun")
        return verb(target, request)

    def _representation(self, target: RequestTarget, request: Request) -> Representation:
        accept, include = request.headers.get("accept", ""), request.query.get("includeObject", "Metadata")
        return negotiate(target.resource, accept, now=self.store.clock.wall, include=include)

    def _get(self, target: RequestTarget, request: Request) -> Response:
        return json(self._representation(target, request).one(self.store.get(target.resource, target.key)))

    def _create(self, target: RequestTarget, request: Request) -> Response:
        wanted = decode_object(request)
        resource = target.resource
        warnings = unknown_fields(resource, wanted, request.query.get("fieldValidation", "Ignore"))
        new = self.store.create(stored_resource(resource), to_stored(resource, wanted), namespace=target.namespace)
        return self._write_response(target, request, new, 201, warnings)

    def _bind(self, target: RequestTarget, request: Request) -> Response:
        """Bind a Pod to a node, the only POST to an object."""
        if target.subresource != "binding":
            raise status_errors.method_not_allowed()
        node = decode(request, Binding).target.name

        def bind(pod: Object) -> Object:
            if pod.get("spec", {}).get("nodeName"):
                reason = f"pod {target.name} is already assigned to node {pod['spec']['nodeName']!r}"
                raise status_errors.conflict("pods/binding", target.name, reason)
            return apply_merge_patch(pod, {"spec": {"nodeName": node}})

        self.store.update(PODS, target.key, bind)
        return json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _replace(self, target: RequestTarget, request: Request) -> Response:
        wanted = decode_object(request)
        return self._update(target, request, lambda _: wanted)

    def _patch(self, target: RequestTarget, request: Request) -> Response:
        return self._update(target, request, decode_patch(target.resource, request))

    def _update(self, target: RequestTarget, request: Request, change: Callable[[Object], Object]) -> Response:
        resource, warnings = target.resource, list[str]()

        def apply(old: Object) -> Object:
            wanted = change(to_version(resource, old))
            warnings.extend(unknown_fields(resource, wanted, request.query.get("fieldValidation", "Ignore")))
            return to_stored(resource, wanted)

        new = self.store.update(stored_resource(resource), target.key, apply, subresource=target.subresource)
        return self._write_response(target, request, new, 200, warnings)

    def _write_response(
        self, target: RequestTarget, request: Request, obj: Object, status: int, warnings: list[str]
    ) -> Response:
        """Return the written object, with warnings about what this server ignores."""
        body = msgspec.json.encode(self._representation(target, request).one(obj))
        if target.resource.id == CRDS.id and b'"x-kubernetes-validations"' in body:
            warnings = [*warnings, _CEL_WARNING]
        headers = {"warning": ", ".join(f'299 - "{each}"' for each in warnings)} if warnings else {}
        return Response(status, body, headers={**JSON, **headers})

    def _delete(self, target: RequestTarget, request: Request) -> Response:
        if target.subresource:
            raise status_errors.method_not_allowed()
        options = decode(request, DeleteOptions) if request.body else DeleteOptions()
        conditions, grace = options.preconditions, options.grace_period_seconds
        deleted = self.store.delete(target.resource, target.key, preconditions=conditions, grace=grace)
        return json(to_version(target.resource, deleted))

    def _list_or_watch(self, target: RequestTarget, request: Request) -> Response:
        if request.query.get("watch") in _TRUE:
            return self._watch(target, request)
        return self._list(target, request)

    def _list(self, target: RequestTarget, request: Request) -> Response:
        query = request.query
        token = parse_continue_token(query["continue"]) if query.get("continue") else None
        revision = token.revision if token else self._list_revision(query)
        selector = _selector(target, query)
        page = self.store.page(
            target.resource,
            namespace=target.namespace,
            selector=selector,
            revision=revision,
            after=token.after if token else "",
            limit=0 if query.get("resourceVersion") == "0" else parse_number(query.get("limit", "0")),
        )
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if page.remaining:
            meta["continue"] = ContinueToken(revision=revision, after=page.items[-1][0]).encode()
            if selector is match_all:
                meta["remainingItemCount"] = page.remaining
        return json(self._representation(target, request).many([obj for _, obj in page.items], meta))

    def _list_revision(self, query: Mapping[str, str]) -> int:
        """Return the revision that a list shows: the latest, the cached one, or an exact one."""
        requested = query.get("resourceVersion", "")
        if not requested:
            return self.store.revision
        if requested == "0":
            return self.store.cached_revision()
        if parse_number(requested) > self.store.revision:
            raise status_errors.version_too_large(parse_number(requested), self.store.revision)
        return parse_number(requested) if query.get("resourceVersionMatch") == "Exact" else self.store.revision

    def _watch(self, target: RequestTarget, request: Request) -> Response:
        query = request.query
        timeout = float(parse_number(query.get("timeoutSeconds", "0"))) or DEFAULT_OPTIONS.timeout
        bookmarks, initial = query.get("allowWatchBookmarks") in _TRUE, query.get("sendInitialEvents")
        _check_initial_events(query, initial, bookmarks=bookmarks)
        since = parse_number(query.get("resourceVersion") or "0") or None
        watch = self.store.watch(
            target.resource,
            since=None if initial == "true" else since or (self.store.revision if initial == "false" else None),
            namespace=target.namespace,
            selector=_selector(target, query),
            representation=self._representation(target, request),
            options=WatchOptions(timeout=timeout, bookmarks=bookmarks, initial_events_end=initial == "true"),
        )
        return Response(200, headers=JSON, stream=watch, close=watch.close)


def _check_initial_events(query: Mapping[str, str], initial: str | None, *, bookmarks: bool) -> None:
    if initial is None:
        return
    if query.get("resourceVersionMatch") != "NotOlderThan":
        required = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        reason = f"resourceVersionMatch: Forbidden: {required}"
        raise status_errors.invalid("ListOptions.meta.k8s.io", "", reason)
    if initial == "true" and not bookmarks:
        reason = "sendInitialEvents: Forbidden: requires allowWatchBookmarks, for the bookmark after the initial events"
        raise status_errors.invalid("ListOptions.meta.k8s.io", "", reason)


def _selector(target: RequestTarget, query: Mapping[str, str]) -> Selector:
    resource = target.resource
    selector = parse_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    if resource.stored_as is None or selector is match_all:
        return selector
    return lambda obj: selector(to_version(resource, obj))


def json(body: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(status, msgspec.json.encode(body), headers=JSON)


class _ParsedPath(msgspec.Struct, frozen=True):
    """The parts of a path, whether they are served or not."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str = ""
    subresource: str | None = None


def route(registry: ResourceRegistry, path: str) -> RequestTarget:
    """Parse a path; raises a 404 for what is not served."""
    parsed = _parse_path(path)
    if parsed is None:
        raise status_errors.path_not_found()
    resource = registry.find(parsed.group, parsed.version, parsed.plural)
    return _target(resource, parsed.namespace, parsed.name, parsed.subresource)


@lru_cache(maxsize=1000)  # clients ask for the same paths again and again
def _parse_path(path: str) -> _ParsedPath | None:
    match path.strip("/").split("/"):
        case ["api", version, *parts]:
            return _parse_parts("", version, parts)
        case ["apis", group, version, *parts]:
            return _parse_parts(group, version, parts)
    return None


def _parse_parts(group: str, version: str, parts: list[str]) -> _ParsedPath | None:
    namespace = ""
    # `namespaces/NAME/...` is the prefix of namespaced resources, except `namespaces/NAME/status`
    if len(parts) > 2 and parts[0] == NAMESPACES.plural and parts[2] != "status":
        namespace, parts = parts[1], parts[2:]
    return _ParsedPath(group, version, namespace, *parts) if 1 <= len(parts) <= 3 else None


def _target(resource: ApiResource, namespace: str, name: str, subresource: str | None) -> RequestTarget:
    subresources = {None: True, "status": resource.status, "binding": resource.id == PODS.id}
    has_subresource = subresources.get(subresource, False)
    scope_fits = resource.namespaced or not namespace
    has_namespace = bool(namespace) or not resource.namespaced or not name
    if not (has_subresource and scope_fits and has_namespace):
        raise status_errors.path_not_found()
    return RequestTarget(resource=resource, namespace=namespace, name=name, subresource=subresource)
