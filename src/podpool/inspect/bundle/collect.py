"""What a support bundle reads: through the API server, of the ledger, and of health ports on this machine.

Every source has a share of the time and of the size, and one that fails is recorded and does not stop the others.
Nothing asks for Secrets or ConfigMaps.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, LEASES, NAMESPACES, NODES, PODS
from podpool.api.meta import Kind
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.bundle.archive import MAX_FILE_BYTES, BundleArchive, safe_name
from podpool.inspect.bundle.redaction import redacted_object, redacted_pod, redacted_text
from podpool.inspect.status import error_text
from podpool.kube.client import PAGE, KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Request, Transport, Unreachable

API_SERVER = "the API server"
SOURCE_TIMEOUT = 30.0
"""Seconds for one source."""
TOTAL_TIMEOUT = 240.0
"""Seconds for all sources."""
MAX_SILENT = 2
"""Sources of one server that do not answer before its others are not tried."""
MAX_LOG_BYTES = 2 << 20
"""Of one container, the latest lines."""
MAX_METRICS_BYTES = 4 << 20
MAX_PODS_WITH_LOGS = 60
COMPONENT_LABEL = "app.kubernetes.io/component"
COMPONENTS = {"ledger": 7785, "controller": 7783, "agent": 7784, "dashboard": 0}
"""Value of the label, and the health port; logs are read in this order."""
HEALTH_PATHS = ("readyz", "metrics")
OBJECT_KINDS: tuple[Kind[Any], ...] = (
    *(NODE_NETWORK_CONFIGS, CLUSTER_SUBNETS, CLUSTER_SUBNET_STATES, NODE_SLICES, IP_POOLS, IP_RESERVATIONS),
    *(NODE_SLICE_POOLS, NETWORK_ATTACHMENTS, NODES),
)

SANDBOX_REASONS = frozenset({"FailedCreatePodSandBox", "FailedKillPod", "FailedScheduling"})

Read = Callable[[], Awaitable[None]]


class BundleSourceError(PodpoolError):
    """A source of the bundle returned something else than what was asked for."""


class BundleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read."""

    namespace: str
    """Of podpool's components."""
    since: float
    """Seconds of logs."""


class BundleCollector:
    """Reads everything into an archive."""

    def __init__(
        self, archive: BundleArchive, kube: KubeClient, ledger: LedgerClient | None, options: BundleOptions
    ) -> None:
        self._archive = archive
        self._kube = kube
        self._ledger = ledger
        self._options = options
        self._components: list[dict[str, Any]] = []
        self._silent = Counter[str]()
        """Sources that did not answer, by their server."""
        self._deadline = float("inf")

    async def collect(self, local: Mapping[str, Transport]) -> None:
        """Read all sources, the most useful first; `local` are health ports of this machine by component."""
        self._deadline = asyncio.get_running_loop().time() + TOTAL_TIMEOUT
        await self._try("versions.json", self._versions)
        for kind in OBJECT_KINDS:
            await self._try(f"objects/{kind.plural}.json", _bound(self._objects, kind))
        await self._try("objects/leases.json", self._leases)
        await self._try("objects/events.json", self._events)
        await self._try("objects/pods.json", self._pods)
        if self._ledger:
            await self._collect_ledger(self._ledger)
        for pod in self._components[:MAX_PODS_WITH_LOGS]:
            await self._collect_pod(pod)
        if (left := len(self._components) - MAX_PODS_WITH_LOGS) > 0:
            self._archive.fail("logs", f"not read: those of {left} more Pods")
        for name, transport in local.items():
            for path in HEALTH_PATHS:
                await self._try(f"local/{name}-{path}.txt", _bound(self._local, transport, name, path))

    async def _try(self, path: str, read: Read) -> None:
        """Read a source unless that is hopeless; record why it was not read."""
        server, left = _server(path), self._deadline - asyncio.get_running_loop().time()
        if hopeless := self._hopeless(server, left):
            self._archive.fail(path, f"not read: {hopeless}")
            return
        try:
            async with asyncio.timeout(min(SOURCE_TIMEOUT, left)):
                await read()
        except TimeoutError:
            self._silent[server] += 1
            self._archive.fail(path, "no answer in time")
        except Unreachable as error:
            self._silent[server] += 1
            self._archive.fail(path, redacted_text(error_text(server, error)))
        except ApiNotFound:
            self._archive.fail(path, "does not exist")
        except PodpoolError as error:
            self._archive.fail(path, redacted_text(error_text(API_SERVER, error)))

    def _hopeless(self, server: str, left: float) -> str:
        if self._archive.full:
            return "the bundle is full"
        if self._silent[server] >= MAX_SILENT:
            return f"{server} does not answer"
        return f"the time of {TOTAL_TIMEOUT:g} s is over" if left <= 0 else ""

    async def _versions(self) -> None:
        content = await self._kube.read_path("/version", max_bytes=1 << 16)
        self._archive.add("versions.json", content.body, truncated=not content.complete)

    async def _objects(self, kind: Kind[Any]) -> None:
        found, complete = await self._list(kind)
        listed = [redacted_object(each) for each in found]
        self._archive.add_json(f"objects/{kind.plural}.json", {"items": listed}, truncated=not complete)

    async def _leases(self) -> None:
        found, complete = await self._list(LEASES, namespace=self._options.namespace)
        own = [redacted_object(each) for each in found if "podpool" in _name(each)]
        self._archive.add_json("objects/leases.json", {"items": own}, truncated=not complete)

    async def _events(self) -> None:
        found, complete = await self._list(EVENTS)
        own = [redacted_object(each) for each in found if _is_about_addresses(each, self._options.namespace)]
        self._archive.add_json("objects/events.json", {"items": own}, truncated=not complete)

    async def _pods(self) -> None:
        found, complete = await self._list(PODS)
        self._archive.add_json(
            "objects/pods.json", {"items": [redacted_pod(each) for each in found]}, truncated=not complete
        )
        own = [each for each in found if _component(each) and _meta(each).get("namespace") == self._options.namespace]
        order = list(COMPONENTS)
        self._components = sorted(own, key=lambda each: (order.index(_component(each)), _is_ready(each), _name(each)))

    async def _list(self, kind: Kind[Any], *, namespace: str | None = None) -> tuple[list[dict[str, Any]], bool]:
        """Return objects with all fields, up to the size of one file, and whether these are all."""
        items: list[dict[str, Any]] = []
        query, left = {"limit": str(PAGE)}, MAX_FILE_BYTES
        while left > 0:
            content = await self._kube.read_path(kind.path(namespace=namespace), query=query, max_bytes=left)
            if not content.complete:
                return items, False
            page = _decoded(content.body)
            listed = page.get("items")
            items += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            token = _meta(page).get("continue")
            if not token:
                return items, True
            query, left = {**query, "continue": str(token)}, left - len(content.body)
        return items, False

    async def _collect_ledger(self, ledger: LedgerClient) -> None:
        async def subnets() -> None:
            for each in (await ledger.subnets()).subnets:
                name = f"ledger/subnets/{safe_name(str(each.subnet))}.json"
                self._archive.add_json(name, await ledger.details(each.subnet))

        async def containers() -> None:
            cluster = (await self._kube.get(NAMESPACES, "kube-system")).metadata.uid
            self._archive.add_json("ledger/network-containers.json", await ledger.network_containers(cluster))

        async def add(path: str, read: Callable[[], Awaitable[Any]]) -> None:
            self._archive.add_json(path, await read())

        await self._try("ledger/subnets", subnets)
        await self._try("ledger/network-containers.json", containers)
        for name, read in (("recovery", ledger.recovery), ("clusters", ledger.clusters)):
            await self._try(f"ledger/{name}.json", _bound(add, f"ledger/{name}.json", read))

    async def _collect_pod(self, pod: Mapping[str, Any]) -> None:
        name, component = _name(pod), _component(pod)
        spec = pod.get("spec")
        containers = spec.get("containers") if isinstance(spec, dict) else None
        for each in containers if isinstance(containers, list) else ():
            container = str(each.get("name", "")) if isinstance(each, dict) else ""
            for previous in (False, True) if _has_restarted(pod, container) else (False,):
                path = f"logs/{safe_name(name)}/{safe_name(container)}{'.previous' * previous}.log"
                await self._try(path, _bound(self._log, path, name, container, previous))
        if port := COMPONENTS[component]:
            for path in HEALTH_PATHS:
                await self._try(f"health/{safe_name(name)}-{path}.txt", _bound(self._health, name, port, path))

    async def _log(self, path: str, pod: str, container: str, previous: bool) -> None:  # noqa: FBT001  bound above
        query = {"container": container, "timestamps": "true", "limitBytes": str(MAX_LOG_BYTES)}
        query |= {"sinceSeconds": str(max(1, int(self._options.since))), "tailLines": "20000"}
        query |= {"previous": "true"} if previous else {}
        place = f"{PODS.path(namespace=self._options.namespace, name=pod)}/log"
        content = await self._kube.read_path(place, query=query, max_bytes=MAX_LOG_BYTES)
        text = redacted_text(content.body.decode(errors="replace"))
        self._archive.add(path, text.encode(), truncated=len(content.body) >= MAX_LOG_BYTES)

    async def _health(self, pod: str, port: int, path: str) -> None:
        place = f"{PODS.path(namespace=self._options.namespace)}/{pod}:{port}/proxy/{path}"
        content = await self._kube.read_path(place, max_bytes=MAX_METRICS_BYTES)
        text = redacted_text(content.body.decode(errors="replace"))
        self._archive.add(f"health/{safe_name(pod)}-{path}.txt", text.encode(), truncated=not content.complete)

    async def _local(self, transport: Transport, name: str, path: str) -> None:
        response = await transport.send(Request(method="GET", path=f"/{path}"))
        body = bytearray()
        try:
            async for chunk in response.stream:
                body += chunk
                if len(body) > MAX_METRICS_BYTES:
                    break
        finally:
            await response.close()
        text = redacted_text(bytes(body[:MAX_METRICS_BYTES]).decode(errors="replace"))
        self._archive.add(f"local/{name}-{path}.txt", text.encode(), truncated=len(body) > MAX_METRICS_BYTES)


def _server(path: str) -> str:
    """Return which server has what is written to a path."""
    folder, _, name = path.partition("/")
    if folder == "local":
        return f"the {name.partition('-')[0]} on this machine"
    if folder in {"logs", "health"}:
        pod = name.rpartition("-")[0] if folder == "health" else name.partition("/")[0]
        return f"the kubelet of Pod {pod}"
    return "the ledger" if folder == "ledger" else API_SERVER


def _bound(function: Callable[..., Awaitable[None]], *values: object) -> Read:
    return lambda: function(*values)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise BundleSourceError(f"{API_SERVER} returned no list: {error}") from None


def _meta(found: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = found.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _name(found: Mapping[str, Any]) -> str:
    return str(_meta(found).get("name", ""))


def _component(pod: Mapping[str, Any]) -> str:
    """Return which of podpool's components a Pod is; empty if it is none."""
    labels = _meta(pod).get("labels")
    if not isinstance(labels, dict) or labels.get("app.kubernetes.io/part-of") != "podpool":
        return ""
    name = labels.get(COMPONENT_LABEL)
    return name if isinstance(name, str) and name in COMPONENTS else ""


def _statuses(pod: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    status = pod.get("status")
    listed = status.get("containerStatuses") if isinstance(status, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return all(each.get("ready") is True for each in _statuses(pod))


def _has_restarted(pod: Mapping[str, Any], container: str) -> bool:
    return any(each.get("restartCount") for each in _statuses(pod) if each.get("name") == container)


def _is_about_addresses(event: Mapping[str, Any], namespace: str) -> bool:
    """Return whether an Event is podpool's, of its own Pods, or of a sandbox that was not created."""
    regarding = event.get("regarding")
    about = regarding if isinstance(regarding, dict) else {}
    own = about.get("namespace") == namespace and str(about.get("name", "")).startswith("podpool")
    return own or "podpool" in str(event.get("reportingController", "")) or event.get("reason") in SANDBOX_REASONS
