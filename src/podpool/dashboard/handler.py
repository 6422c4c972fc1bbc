"""The page's server, as a handler: its files, the stream, and answers to questions. It reads, and nothing else.

What must hold: no secret of ours is in an answer; a foreign site can neither frame the page, nor read what it reads
(a name that leads to loopback is refused), nor have it run a script of its own.
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
from podpool.runtime.host_check import allowed_hosts, requested_host
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Request, Response

MOST_STREAMS = 128
LONGEST_QUESTION = 300

_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_JSON = {"content-type": "application/json", "cache-control": "no-store"}

Answer = Callable[..., Awaitable[object]]


class NoLedger(PodpoolError):
    """Somebody asks for what only a ledger tells."""

    def __init__(self) -> None:
        super().__init__("address by address, only a ledger can tell, and there is none")


class Dashboard:
    """A `Handler`. `hosts` are the names that it may be called by; without, any. `cluster` tells whose page it is."""

    def __init__(
        self,
        scene: ClusterModel,
        ledger: LedgerClient | None,
        feed: Feed,
        *,
        cluster: Callable[[], str],
        ready: Callable[[], str | None],
        hosts: frozenset[str],
    ) -> None:
        self._scene = scene
        self._ledger = ledger
        self._feed = feed
        self._cluster = cluster
        self._hosts = hosts
        self._assets: Mapping[str, Asset] = load_assets()
        self._questions = HistorySearch(scene, ledger, cluster=cluster)
        self._health = health_handler(ready)
        self._streams = 0
        self._answers: tuple[tuple[re.Pattern[str], Answer], ...] = (
            (re.compile("/api/subnets/([^/]+)/([^/]+)/addresses"), self._map),
            (re.compile("/api/addresses/([^/]+)"), self._questions.address),
            (re.compile("/api/nodes/([^/]+)"), self._questions.node),
            (re.compile("/api/pods/([^/]+/[^/]+)"), self._questions.pod),
        )

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        response = await self._answer(request)
        response.headers = {**_SECURITY, **response.headers}
        return response

    async def _answer(self, request: Request) -> Response:
        if self._hosts and requested_host(request) not in self._hosts:
            return _refusal(421, "this page is for this machine alone: open it as http://localhost")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "this page only reads")
        asset = self._assets.get(request.path)
        return _file(asset, request) if asset else await self._tell(request)

    async def _tell(self, request: Request) -> Response:
        match request.path:
            case "/api/stream":
                return self._stream(request)
            case "/api/search":
                return _json(await self._questions.find(request.query.get("q", "")[:LONGEST_QUESTION]))
            case "/healthz" | "/readyz":
                return await self._health(request)
            case _:
                return await self._ask(request)

    async def _ask(self, request: Request) -> Response:
        for pattern, answer in self._answers:
            found = pattern.fullmatch(request.path)
            if found and len(request.path) <= LONGEST_QUESTION:
                try:
                    return _json(await answer(*found.groups()))
                except InvalidInput as error:
                    return _refusal(400, str(error))
                except PodpoolError as error:
                    return _refusal(503, str(error))
        return _refusal(404, "there is nothing here")

    async def _map(self, network: str, subnet: str) -> object:
        if self._ledger is None:
            raise NoLedger
        told = await self._ledger.occupancy(SubnetName(network=network, name=subnet))
        used = self._scene.pods_with
        return address_map(told, used=lambda address: bool(used.get(address)), cluster=self._cluster())

    def _stream(self, request: Request) -> Response:
        if self._streams >= MOST_STREAMS:
            return _refusal(503, f"{MOST_STREAMS} pages follow already")
        self._streams += 1

        async def close() -> None:
            self._streams -= 1

        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        events = self._feed.follow(request.headers.get("last-event-id", ""))
        return Response(200, headers=headers, stream=events, close=close)


def dashboard_of(observer: Observer, feed: Feed, *, host: str) -> Dashboard:
    """Make the page's server for what an observer sees; on loopback it is called by loopback's names alone."""
    return Dashboard(
        observer.scene,
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


def _refusal(status: int, words: str) -> Response:
    return Response(status, msgspec.json.encode({"message": words}), headers=_JSON)
