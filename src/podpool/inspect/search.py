"""Looking for a Pod, a node or an address: what it is now, and its history, which the ledger has."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.inspect.cluster_model import Scene
from podpool.inspect.diagnose import Reason, gone, why
from podpool.inspect.view_models import NodeView, View
from podpool.ledger.admin_messages import History, ReportedUse, Tenure
from podpool.ledger.client import LedgerClient

FOUND = 8
"""Of each kind."""
PAST = 60
"""Tenures in an answer."""
DEADLINE = 10.0
GLANCE = 1.0
"""Seconds for which a search waits for the ledger."""

_NOTHING = History(kept=0.0)
_POD = re.compile(r"(?:([a-z0-9-]+)/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)")
"""What may be a Pod's name, with or without its namespace."""


class Match(View, frozen=True, kw_only=True):
    """Something that fits."""

    kind: str
    """pod, node or address."""
    name: str
    told: str = ""


class AddressNow(View, frozen=True, kw_only=True):
    """An address as it is."""

    address: str
    node: str = ""
    pod: str = ""
    primary: bool = False


class Found(View, frozen=True, kw_only=True):
    """A thing, what it has, and what it had."""

    kind: str
    name: str
    node: NodeView | None = None
    addresses: tuple[AddressNow, ...] = ()
    reason: Reason | None = None
    past: tuple[Tenure, ...] = ()
    """The latest first."""
    uses: tuple[ReportedUse, ...] = ()
    """What a Pod had; of an address or a node what is of further networks."""
    past_missing: str = ""
    """Why the history is not there."""


def find(scene: Scene, text: str) -> list[Match]:
    """Find what has this text in its name."""
    wanted = text.strip().lower()
    if not wanted:
        return []
    return [*_addresses(scene, wanted), *_nodes(scene, wanted), *_pods(scene, wanted)]


def _addresses(scene: Scene, wanted: str) -> Iterable[Match]:
    try:
        address = str(parse_address(wanted))
    except InvalidInput:
        known = (each for each in scene.pods_with if each.startswith(wanted)) if wanted[0].isdigit() else iter(())
        return [_address_match(scene, each) for each in islice(known, FOUND)]
    return [_address_match(scene, address)]


def _address_match(scene: Scene, address: str) -> Match:
    now = address_now(scene, address)
    told = f"Pod {now.pod}" if now.pod else "primary" if now.primary else "idle" if now.node else ""
    where = f"{told} on {now.node}" if now.node and told else told
    return Match(kind="address", name=address, told=where or "no node of this cluster has it")


def _nodes(scene: Scene, wanted: str) -> Iterable[Match]:
    fit = (view for name, view in scene.nodes.items() if wanted in name.lower())
    for view in islice(fit, FOUND):
        yield Match(kind="node", name=view.name, told=f"{view.assigned} of {view.held} addresses in use")


def _pods(scene: Scene, wanted: str) -> Iterable[Match]:
    fit = (pod for pod in scene.mirrors.pods.values() if wanted in pod.key.lower())
    for pod in islice(fit, FOUND):
        told = " ".join(pod.addresses) or ("waits for an address" if pod.waits else pod.status.phase or "not placed")
        yield Match(kind="pod", name=pod.key, told=told)


def address_now(scene: Scene, address: str) -> AddressNow:
    """Tell who has an address, as this cluster's objects show it."""
    config = next(iter(scene.configs_with.get(address)), None)
    pod = next(iter(scene.pods_with.get(address)), None)
    containers = config.status.network_containers if config else ()
    return AddressNow(
        address=address,
        node=config.metadata.name if config else pod.spec.node_name if pod else "",
        pod=pod.key if pod else "",
        primary=any(each.primary_ip == address for each in containers),
    )


Asking = Callable[[LedgerClient], Awaitable[History]]


class Questions:
    """Answers with history."""

    def __init__(self, scene: Scene, ledger: LedgerClient | None, *, cluster: Callable[[], str] = str) -> None:
        self._scene = scene
        self._ledger = ledger
        self._cluster = cluster
        """Whose Pods are meant, once that is known; else those of all clusters."""

    async def find(self, text: str) -> list[Match]:
        """Find what has this text in its name, and Pods that are gone by all of theirs."""
        return [*find(self._scene, text), *await self._gone(text.strip().lower())]

    async def _gone(self, text: str) -> list[Match]:
        if not (named := _POD.fullmatch(text)):
            return []
        past, _ = await self._past(self._uses(named[2], namespace=named[1] or ""), deadline=GLANCE)
        uses: dict[str, list[ReportedUse]] = {}
        for use in past.uses:
            uses.setdefault(f"{use.namespace}/{use.name}", []).append(use)
        no_more = [(key, had) for key, had in uses.items() if key not in self._scene.mirrors.pods]
        return [Match(kind="pod", name=key, told=gone(key, had).told) for key, had in no_more[:FOUND]]

    async def address(self, text: str) -> Found:
        """Tell of an address; raises `InvalidInput` when it is none."""
        address = str(parse_address(text))
        past, missing = await self._past(lambda ledger: ledger.history(address=address, limit=PAST))
        return Found(
            kind="address",
            name=address,
            addresses=(address_now(self._scene, address),),
            past=past.tenures,
            uses=past.uses,
            past_missing=missing,
        )

    async def node(self, name: str) -> Found:
        """Tell of a node, also of one that is gone."""
        past, missing = await self._past(lambda ledger: ledger.history(node=name, limit=PAST))
        configs = self._scene.mirrors.configs
        config = configs.get(f"kube-system/{name}")
        containers = config.status.network_containers if config else ()
        given = [each.ip for container in containers for each in container.ip_assignments]
        primaries = [container.primary_ip for container in containers if container.primary_ip]
        return Found(
            kind="node",
            name=name,
            node=self._scene.nodes.get(name),
            addresses=tuple(address_now(self._scene, each) for each in (*primaries, *given)),
            past=past.tenures,
            uses=past.uses,
            past_missing=missing,
        )

    async def pod(self, key: str) -> Found:
        """Tell of a Pod, also of one that is gone: why it has what it has, and what it had."""
        pod = self._scene.mirrors.pods.get(key)
        namespace, _, name = key.partition("/")
        past, missing = await self._past(self._uses(name, namespace=namespace))
        return Found(
            kind="pod",
            name=key,
            addresses=tuple(address_now(self._scene, each) for each in (pod.addresses if pod else ())),
            reason=gone(key, past.uses) if past.uses and not pod else why(self._scene, key),
            uses=past.uses,
            past_missing=missing,
        )

    def _uses(self, name: str, *, namespace: str) -> Asking:
        cluster = self._cluster()
        return lambda ledger: ledger.pod_history(name, namespace=namespace, cluster=cluster, limit=PAST)

    async def _past(self, asking: Asking, *, deadline: float = DEADLINE) -> tuple[History, str]:
        if self._ledger is None:
            return _NOTHING, "The past is what a ledger keeps, and there is none."
        try:
            async with asyncio.timeout(deadline):
                return await asking(self._ledger), ""
        except TimeoutError:
            return _NOTHING, "the ledger does not answer"
        except PodpoolError as error:
            return _NOTHING, str(error)
