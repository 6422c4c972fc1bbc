"""The lite API server: resources, and the discovery, OpenAPI, version and health paths beside them."""

from collections.abc import Mapping
from typing import Any

from podpool import __version__
from podpool.lab.apiserver import discovery, openapi
from podpool.lab.apiserver.handler import ResourceHandler, json
from podpool.lab.apiserver.registry import ADMISSION, RBAC
from podpool.lab.apiserver.status_errors import StatusError, forbidden, not_implemented
from podpool.lab.apiserver.store import ObjectStore
from podpool.runtime.host_header import requested_host
from podpool.runtime.transport import Request, Response

KUBERNETES_VERSION = "1.36"
"""The version of kube-apiserver that this server is compared with."""
HEALTH = ("/healthz", "/livez", "/readyz")
_UNSUPPORTED: Mapping[str, str] = {
    "/apis/authorization.k8s.io": "authorization (RBAC)",
    f"/apis/{RBAC}": "authorization (RBAC)",
    "/apis/authentication.k8s.io": "authentication",
    f"/apis/{ADMISSION}": "admission (webhooks and policies)",
    "/openapi/v2": "OpenAPI v2 (use v3, at /openapi/v3)",
}


_BROWSER_HEADERS = ("origin", "sec-fetch-site")
"""Headers that every browser sends, and no other client."""


class LiteApiServer:
    """Serves an object store. `hosts` are the accepted Host headers; empty accepts any.

    There is no authentication, so without the checks of browsers and hosts any web site could write through the
    browser of a user who visits it.
    """

    def __init__(self, store: ObjectStore, *, hosts: frozenset[str] = frozenset()) -> None:
        self.store = store
        self._hosts = hosts
        self._resources = ResourceHandler(store)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        if error := self._check_origin(request):
            return json(error.status, error.code)
        if request.method == "GET" and (response := self._non_resource(request)):
            return response
        for path, feature in _UNSUPPORTED.items():
            if request.path.startswith(path):
                error = not_implemented(feature)
                # clients treat a 404 as an absent API group, and continue without it
                return json({**error.status, "code": 404, "reason": "NotFound"}, 404)
        return await self._resources(request)

    def _check_origin(self, request: Request) -> StatusError | None:
        if any(each in request.headers for each in _BROWSER_HEADERS):
            return forbidden("this API server (podpool apiserver) does not serve web pages: use kubectl or curl")
        if self._hosts and requested_host(request) not in self._hosts:
            return forbidden("this API server (podpool apiserver) serves this machine only: connect to localhost")
        return None

    def _non_resource(self, request: Request) -> Response | None:
        registry, path = self.store.registry, request.path.rstrip("/")
        if path in HEALTH:
            return Response(200, b"ok", headers={"content-type": "text/plain"})
        if path == "/version":
            return json(_version())
        if path in {"/api", "/apis"} and discovery.accepts_aggregated(request.headers.get("accept", "")):
            response = json(discovery.aggregated(registry, core=path == "/api"))
            response.headers = {**response.headers, "content-type": discovery.AGGREGATED}
            return response
        if path == "/openapi/v3":
            return json(openapi.index(registry))
        if path.startswith("/openapi/v3/"):
            return _json_or_none(openapi.document(registry, path.removeprefix("/openapi/v3/")))
        return _json_or_none(discovery.legacy(registry, path))


def _json_or_none(document: Mapping[str, Any] | None) -> Response | None:
    return None if document is None else json(document)


def _version() -> Mapping[str, str]:
    major, _, minor = KUBERNETES_VERSION.partition(".")
    git_version = f"v{KUBERNETES_VERSION}.0+podpool-{__version__}"
    return {"major": major, "minor": minor, "gitVersion": git_version, "platform": "python"}
