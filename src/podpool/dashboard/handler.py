"""HTTP handler of the dashboard: static files, the event stream and lookups. Read only.

Responses contain no secrets. Other sites can neither frame the page nor read its data (a host name that resolves to
loopback is refused), nor inject scripts.
"""

import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.core.errors import InvalidInput, PodpoolError
from podpool.dashboard.assets import Asset, load_assets
from podpool.dashboard.feed import Feed
from podpool.inspect.address_map import address_map
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.observer import Observer
from podpool.inspect.search import HistorySearch
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import SubnetName
from podpool.runtime.host_header import allowed_hosts, requested_host
from podpool.runtime.process import HealthCheck, health_handler
from podpool.runtime.transport import Request, Response

MAX_STREAMS = 128
MAX_QUERY = 300

_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_JSON = {"content-type": "application/json", "cache-control": "no-store"}

Lookup = Callable[..., Awaitable[object]]


class NoLedger(PodpoolError):
    """The request needs a ledger, and none is configured."""

    def __init__(self) -> None:
        super().__init__("the address map needs a ledger, and none is configured")


class Dashboard:
    """The handler. `hosts` are the accepted host names, all if empty; `cluster` returns the UID of the cluster."""

    def __init__(
        self,
        model: ClusterModel,
        ledger: LedgerClient | None,
        feed: Feed,
        *,
        cluster: Callable[[], str],
        ready: Callable[[], str | None],
        hosts: frozenset[str],
    ) -> None:
        self._model = model
        self._ledger = ledger
        self._feed = feed
        self._cluster = cluster
        self._hosts = hosts
        self._assets: Mapping[str, Asset] = load_assets()
        self._search = HistorySearch(model, ledger, cluster=cluster)
        self._health = health_handler(lambda: (HealthCheck("cluster state", ready() or ""),))
        self._streams = 0
        self._lookups: tuple[tuple[re.Pattern[str], Lookup], ...] = (
            (re.compile("/api/subnets/([^/]+)/([^/]+)/addresses"), self._address_map),
            (re.compile("/api/addresses/([^/]+)"), self._search.address),
            (re.compile("/api/nodes/([^/]+)"), self._search.node),
            (re.compile("/api/pods/([^/]+/[^/]+)"), self._search.pod),
        )

    async def __call__(self, request: Request) -> Response:
        """Lookup one request."""
        response = await self._answer(request)
        response.headers = {**_SECURITY, **response.headers}
        return response

    async def _answer(self, request: Request) -> Response:
        if self._hosts and requested_host(request) not in self._hosts:
            return _error(421, "unknown host name: open the dashboard as http://localhost")
        if request.method not in ("GET", "HEAD"):
            return _error(405, "the dashboard is read only")
        asset = self._assets.get(request.path)
        return _file(asset, request) if asset else await self._dispatch(request)

    async def _dispatch(self, request: Request) -> Response:
        match request.path:
            case "/api/stream":
                return self._stream(request)
            case "/api/search":
                return _json(await self._search.find(request.query.get("q", "")[:MAX_QUERY]))
            case "/healthz" | "/livez" | "/readyz":
                return await self._health(request)
            case _:
                return await self._lookup(request)

    async def _lookup(self, request: Request) -> Response:
        for pattern, answer in self._lookups:
            found = pattern.fullmatch(request.path)
            if found and len(request.path) <= MAX_QUERY:
                try:
                    return _json(await answer(*found.groups()))
                except InvalidInput as error:
                    return _error(400, str(error))
                except PodpoolError as error:
                    return _error(503, str(error))
        return _error(404, "not found")

    async def _address_map(self, network: str, subnet: str) -> object:
        if self._ledger is None:
            raise NoLedger
        message = await self._ledger.occupancy(SubnetName(network=network, name=subnet))
        used = self._model.pods_with
        return address_map(message, used=lambda address: bool(used.get(address)), cluster=self._cluster())

    def _stream(self, request: Request) -> Response:
        if self._streams >= MAX_STREAMS:
            return _error(503, f"{MAX_STREAMS} streams are open already")
        self._streams += 1

        async def close() -> None:
            self._streams -= 1

        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        events = self._feed.follow(request.headers.get("last-event-id", ""))
        return Response(200, headers=headers, stream=events, close=close)


def make_dashboard(observer: Observer, feed: Feed, *, host: str) -> Dashboard:
    """Create the handler for an observer; on loopback only loopback names are accepted."""
    return Dashboard(
        observer.model,
        observer.ledger,
        feed,
        cluster=lambda: observer.cluster,
        ready=observer.missing,
        hosts=allowed_hosts(host),
    )


def _file(asset: Asset, request: Request) -> Response:
    headers = {"content-type": asset.type, "etag": asset.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(304, headers=headers)
    return Response(200, asset.body, headers=headers)


def _json(answer: object) -> Response:
    return Response(200, msgspec.json.encode(answer), headers=_JSON)


def _error(status: int, words: str) -> Response:
    return Response(status, msgspec.json.encode({"message": words}), headers=_JSON)
