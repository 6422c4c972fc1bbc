"""Search for a Pod, node or address: its current state, and its history from the ledger."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.diagnose import Diagnosis, diagnose, diagnose_deleted, diagnose_node
from podpool.inspect.view_models import NodeView, ViewModel
from podpool.ledger.admin_messages import AddressHistory, AllocationPeriod, ReportedPodUsage
from podpool.ledger.client import LedgerClient

MAX_MATCHES = 8
"""Per kind."""
MAX_TENURES = 60
"""History entries in a result."""
DEADLINE = 10.0
SEARCH_TIMEOUT = 1.0
"""Seconds that a search waits for the ledger."""

_NOTHING = AddressHistory(retention_seconds=0.0)
_POD = re.compile(r"(?:([a-z0-9-]+)/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")
"""Matches a Pod name with an optional namespace."""


class SearchMatch(ViewModel, frozen=True, kw_only=True):
    """One match."""

    kind: str
    """pod, node or address."""
    name: str
    message: str = ""


class AddressStatus(ViewModel, frozen=True, kw_only=True):
    """The current owner of an address."""

    address: str
    node: str = ""
    pod: str = ""
    primary: bool = False


class SearchResult(ViewModel, frozen=True, kw_only=True):
    """An object with its current addresses and its history."""

    kind: str
    name: str
    node: NodeView | None = None
    addresses: tuple[AddressStatus, ...] = ()
    reason: Diagnosis | None = None
    past: tuple[AllocationPeriod, ...] = ()
    """Latest first."""
    uses: tuple[ReportedPodUsage, ...] = ()
    """Addresses of a Pod; for an address or node, those of secondary networks."""
    history_error: str = ""
    """Why the history is not available."""


def find(model: ClusterModel, text: str) -> list[SearchMatch]:
    """Return objects of the cluster whose name contains the text."""
    wanted = text.strip().lower()
    if not wanted:
        return []
    return [*_addresses(model, wanted), *_nodes(model, wanted), *_pods(model, wanted)]


def _addresses(model: ClusterModel, wanted: str) -> Iterable[SearchMatch]:
    try:
        address = str(parse_address(wanted))
    except InvalidInput:
        known = (each for each in model.pods_with if each.startswith(wanted)) if wanted[0].isdigit() else iter(())
        return [_address_match(model, each) for each in islice(known, MAX_MATCHES)]
    return [_address_match(model, address)]


def _address_match(model: ClusterModel, address: str) -> SearchMatch:
    now = address_status(model, address)
    message = f"Pod {now.pod}" if now.pod else "primary" if now.primary else "idle" if now.node else ""
    where = f"{message} on {now.node}" if now.node and message else message
    return SearchMatch(kind="address", name=address, message=where or "not held by this cluster")


def _nodes(model: ClusterModel, wanted: str) -> Iterable[SearchMatch]:
    fit = (view for name, view in model.nodes.items() if wanted in name.lower())
    for view in islice(fit, MAX_MATCHES):
        slices = f"waits for a slice of {', '.join(view.without_slice)}" if view.without_slice else ""
        slices = slices or (f"{view.slices} slices" if not view.subnet and view.slices else "")
        message = slices or f"{view.assigned} of {view.held} addresses in use"
        yield SearchMatch(kind="node", name=view.name, message=message)


def _pods(model: ClusterModel, wanted: str) -> Iterable[SearchMatch]:
    fit = (pod for pod in model.caches.pods.values() if wanted in pod.key.lower())
    for pod in islice(fit, MAX_MATCHES):
        message = " ".join(pod.addresses) or (
            "waits for an address" if pod.waiting_for_address else pod.status.phase or "not scheduled"
        )
        yield SearchMatch(kind="pod", name=pod.key, message=message)


def address_status(model: ClusterModel, address: str) -> AddressStatus:
    """Return the owner of an address according to the cluster's objects."""
    config = next(iter(model.nncs_with.get(address)), None)
    pod = next(iter(model.pods_with.get(address)), None)
    containers = config.status.network_containers if config else ()
    return AddressStatus(
        address=address,
        node=config.metadata.name if config else pod.spec.node_name if pod else "",
        pod=pod.key if pod else "",
        primary=any(each.primary_ip == address for each in containers),
    )


HistoryQuery = Callable[[LedgerClient], Awaitable[AddressHistory]]


class HistorySearch:
    """Searches the model and the history of the ledger."""

    def __init__(self, model: ClusterModel, ledger: LedgerClient | None, *, cluster: Callable[[], str] = str) -> None:
        self._model = model
        self._ledger = ledger
        self._cluster = cluster
        """Whose Pods are meant, once that is known; else those of all clusters."""

    async def find(self, text: str) -> list[SearchMatch]:
        """Return matching objects, and deleted Pods by their full name."""
        return [*find(self._model, text), *await self._deleted_pods(text.strip().lower())]

    async def _deleted_pods(self, text: str) -> list[SearchMatch]:
        if not (named := _POD.fullmatch(text)):
            return []
        past, _ = await self._history(self._uses(named[2], namespace=named[1] or ""), deadline=SEARCH_TIMEOUT)
        uses: dict[str, list[ReportedPodUsage]] = {}
        for use in past.pod_usages:
            uses.setdefault(f"{use.namespace}/{use.name}", []).append(use)
        deleted = [(key, had) for key, had in uses.items() if key not in self._model.caches.pods]
        return [
            SearchMatch(kind="pod", name=key, message=diagnose_deleted(key, had).message)
            for key, had in deleted[:MAX_MATCHES]
        ]

    async def address(self, text: str) -> SearchResult:
        """Return an address with its history; raises `InvalidInput` for an invalid address."""
        address = str(parse_address(text))
        past, missing = await self._history(lambda ledger: ledger.history(address=address, limit=MAX_TENURES))
        return SearchResult(
            kind="address",
            name=address,
            addresses=(address_status(self._model, address),),
            past=past.periods,
            uses=past.pod_usages,
            history_error=missing,
        )

    async def node(self, name: str) -> SearchResult:
        """Return a node with its history, also a removed one."""
        past, missing = await self._history(lambda ledger: ledger.history(node=name, limit=MAX_TENURES))
        nncs = self._model.caches.nncs
        config = nncs.get(f"kube-system/{name}")
        containers = config.status.network_containers if config else ()
        given = [each.ip for container in containers for each in container.ip_assignments]
        primaries = [container.primary_ip for container in containers if container.primary_ip]
        return SearchResult(
            kind="node",
            name=name,
            node=self._model.nodes.get(name),
            reason=self._reason_of_node(name),
            addresses=tuple(address_status(self._model, each) for each in (*primaries, *given)),
            past=past.periods,
            uses=past.pod_usages,
            history_error=missing,
        )

    async def pod(self, key: str) -> SearchResult:
        """Return a Pod with its diagnosis and history, also a deleted one."""
        pod = self._model.caches.pods.get(key)
        namespace, _, name = key.partition("/")
        past, missing = await self._history(self._uses(name, namespace=namespace))
        return SearchResult(
            kind="pod",
            name=key,
            addresses=tuple(address_status(self._model, each) for each in (pod.addresses if pod else ())),
            reason=diagnose_deleted(key, past.pod_usages)
            if past.pod_usages and not pod
            else diagnose(self._model, key),
            uses=past.pod_usages,
            history_error=missing,
        )

    def _reason_of_node(self, name: str) -> Diagnosis | None:
        """Return the state of a node's slices, if it lacks some or has nothing else."""
        node = self._model.nodes.get(name)
        shown = node and (node.without_slice or not (node.subnet or self._model.has_ledger))
        return diagnose_node(self._model, name) if shown else None

    def _uses(self, name: str, *, namespace: str) -> HistoryQuery:
        cluster = self._cluster()
        return lambda ledger: ledger.pod_history(name, namespace=namespace, cluster=cluster, limit=MAX_TENURES)

    async def _history(self, query: HistoryQuery, *, deadline: float = DEADLINE) -> tuple[AddressHistory, str]:
        if self._ledger is None or self._model.needs_no_ledger:
            missing = "History needs a ledger, and none is configured."
            return _NOTHING, "" if self._model.caches.slices_only else missing
        try:
            async with asyncio.timeout(deadline):
                return await query(self._ledger), ""
        except TimeoutError:
            return _NOTHING, "the ledger does not respond"
        except PodpoolError as error:
            return _NOTHING, str(error)
