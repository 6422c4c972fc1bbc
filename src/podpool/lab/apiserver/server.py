"""All that a client finds at an API server's address: the objects, and before them what is served and how it is."""

from collections.abc import Mapping
from typing import Any

from podpool import __version__
from podpool.lab.apiserver import discovery, openapi
from podpool.lab.apiserver.handler import PocketApi, json
from podpool.lab.apiserver.registry import ADMISSION, RBAC
from podpool.lab.apiserver.status_errors import Refused, forbidden, not_spoken
from podpool.lab.apiserver.store import PocketStore
from podpool.runtime.host_check import called
from podpool.runtime.transport import Request, Response

SPEAKS = "1.36"
"""The version of Kubernetes that answers are compared with."""
HEALTH = ("/healthz", "/livez", "/readyz")
_LEFT_OUT: Mapping[str, str] = {
    "/apis/authorization.k8s.io": "who may do what (RBAC)",
    f"/apis/{RBAC}": "who may do what (RBAC)",
    "/apis/authentication.k8s.io": "who asks (authentication)",
    f"/apis/{ADMISSION}": "admission (by webhooks and policies)",
    "/openapi/v2": "OpenAPI v2 (there is v3, at /openapi/v3)",
}


_FROM_A_PAGE = ("origin", "sec-fetch-site")
"""Headers that every browser sends, and no other client."""


class PocketServer:
    """A pocket store at an address. `hosts` are the names that it may be called by; without, any.

    Nobody is asked for a token, so that a web site which its user looks at could write through the user's browser.
    """

    def __init__(self, store: PocketStore, *, hosts: frozenset[str] = frozenset()) -> None:
        self.store = store
        self._hosts = hosts
        self._api = PocketApi(store)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        if refused := self._foreign(request):
            return json(refused.status, refused.code)
        if request.method == "GET":
            answer = self._beside(request)
            if answer:
                return answer
        for path, what in _LEFT_OUT.items():
            if request.path.startswith(path):
                refused = not_spoken(what)
                # a client takes 404 for "no such thing here", and goes on without it
                return json({**refused.status, "code": 404, "reason": "NotFound"}, 404)
        return await self._api(request)

    def _foreign(self, request: Request) -> Refused | None:
        if any(each in request.headers for each in _FROM_A_PAGE):
            return forbidden("this API server (podpool pocket) does not answer web pages: use kubectl, or curl")
        if self._hosts and called(request) not in self._hosts:
            return forbidden("this API server (podpool pocket) is for this machine alone: call it localhost")
        return None

    def _beside(self, request: Request) -> Response | None:
        kinds, path = self.store.kinds, request.path.rstrip("/")
        if path in HEALTH:
            return Response(200, b"ok", headers={"content-type": "text/plain"})
        if path == "/version":
            return json(_version())
        if path in {"/api", "/apis"} and discovery.wants_all(request.headers.get("accept", "")):
            answer = json(discovery.aggregated(kinds, core=path == "/api"))
            return _as(answer, discovery.AGGREGATED)
        if path == "/openapi/v3":
            return json(openapi.roots(kinds))
        if path.startswith("/openapi/v3/"):
            return _found(openapi.described(kinds, path.removeprefix("/openapi/v3/")))
        return _found(discovery.legacy(kinds, path))


def _found(document: Mapping[str, Any] | None) -> Response | None:
    return None if document is None else json(document)


def _as(answer: Response, media: str) -> Response:
    answer.headers = {**answer.headers, "content-type": media}
    return answer


def _version() -> Mapping[str, str]:
    major, _, minor = SPEAKS.partition(".")
    return {"major": major, "minor": minor, "gitVersion": f"v{SPEAKS}.0+podpool-{__version__}", "platform": "python"}
