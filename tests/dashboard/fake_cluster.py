"""A cluster to be looked at: a real ledger in this process, and stores that are filled as its controller would have it.

What pages see goes through the product's own model, feed and server; only the cluster behind it is played.
"""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING

import msgspec

from podpool.api.azure import AGENT_ANNOTATION, NodeNetworkConfig
from podpool.api.builtin import Event, Node
from podpool.api.whereabouts import IPPool, NodeSlicePool
from podpool.controller.nnc_conversion import build_status
from podpool.controller.scaler_policy import PublishedSubnet
from podpool.core.scaling import target
from podpool.core.settings import Settings
from podpool.dashboard.feed import Feed
from podpool.dashboard.handler import Dashboard
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.view_models import InspectedPod
from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.messages import (
    DemandReport,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.host_header import LOOPBACK
from tests.ledger.harness import InProcessTransport, ManualClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from podpool.ledger.messages import NetworkContainerState, SubnetState

CLUSTER = "c1"
SETTINGS = Settings()
START = 1_760_000_000.0


class FakeCluster:
    """Nodes and Pods on a real ledger, seen by the page."""

    def __init__(self, name: SubnetName | None = None, *, has_ledger: bool = True) -> None:
        self.clock = ManualClock(START)
        self.cluster = CLUSTER
        self.subnet = name or SubnetName(network="vnet", name="pods")
        self.caches = ClusterCaches()
        self.model = ClusterModel(self.caches, has_ledger=has_ledger)
        self._ledger = LedgerService(InlineSqliteStore(), clock=self.clock, rng=random.Random(1))  # noqa: S311  the same each time
        self.ledger = LedgerClient(InProcessTransport(LedgerHandler(self._ledger)))
        self.feed = Feed(self.model, clock=self.clock, epoch="e1")
        ledger = self.ledger if has_ledger else None
        self.page = Dashboard(
            self.model, ledger, self.feed, cluster=lambda: self.cluster, ready=lambda: None, hosts=LOOPBACK
        )
        self._nc_states: dict[str, NetworkContainerState] = {}
        self._spec: SubnetSpec | None = None
        self._term = self._number = 0

    async def open(self, cidr: str = "10.0.0.0/24", *, gateway: str = "", excluded: Sequence[str] = ()) -> None:
        """Make the subnet, and speak for a cluster."""
        await self._ledger.start()
        self._spec = SubnetSpec(
            network=self.subnet.network,
            name=self.subnet.name,
            cidr=cidr,
            gateway=gateway or None,
            excluded_ranges=tuple(excluded),
        )
        self.model.set_subnet(await self.ledger.create_subnet(self._spec), self._spec)
        self._term = (await self.ledger.open_term(OpenTermRequest(cluster=CLUSTER))).term

    async def later(self, seconds: float) -> None:
        """Let time pass, and the ledger and the page notice."""
        self.clock.now += seconds
        await self._ledger.run_due_timers()
        await self._refresh()
        self.feed.refresh()

    async def set_pods(self, demand: Mapping[str, int]) -> None:
        """Bring each node to so many Pods, in one call; who cannot be served waiting_for_address."""
        before = await self.ledger.subnet(self.subnet)
        for chunk in _chunks(list(demand.items()), 500):
            await self._reconcile(chunk, before)
        await self._refresh()

    async def _reconcile(self, chunk: Sequence[tuple[str, int]], subnet: SubnetState) -> None:
        self._number += 1
        items = [self._item(name, count, subnet) for name, count in chunk]
        call = ReconcileRequest(cluster=CLUSTER, term=self._term, number=self._number, items=tuple(items))
        answer = await self.ledger.reconcile(call)
        uses: list[PodUsage] = []
        for (name, count), item, result in zip(chunk, items, answer.results, strict=True):
            assert result.state is not None, result.error
            self._nc_states[name] = result.state
            uses += self._show(name, count, item, result.state, answer.subnets[0])
        await self.ledger.report_pods(PodReport(cluster=CLUSTER, pods=tuple(uses)))

    def _item(self, name: str, count: int, subnet: SubnetState) -> ReconcileItem:
        wanted = target(demand=count, scaler=subnet.scaler, primaries=1, maximum=SETTINGS.node_maximum)
        state = self._nc_states.get(name)
        surplus = [each.id for each in state.grants[wanted:]] if state else []
        return ReconcileItem(
            subnet=self.subnet,
            node=name,
            node_uid=f"uid-{name}",
            nc_id=state.nc_id if state else None,
            wanted=wanted,
            released=tuple(surplus),
            report=DemandReport(demand=count, waiting=self._waiting(name, count), batch=subnet.scaler.batch),
        )

    def _waiting(self, name: str, count: int) -> int:
        state = self._nc_states.get(name)
        return max(0, count - len(state.grants)) if state and state.shortage else 0

    def _show(
        self, name: str, count: int, item: ReconcileItem, state: NetworkContainerState, subnet: SubnetState
    ) -> Sequence[PodUsage]:
        node = msgspec.convert({"metadata": {"name": name, "uid": f"uid-{name}"}}, Node)
        self.caches.nodes.apply(node)
        message = msgspec.json.encode({"demand": count, "batch": subnet.scaler.batch}).decode()
        config = {
            "metadata": {"name": name, "namespace": "kube-system", "annotations": {AGENT_ANNOTATION: message}},
            "spec": {"requestedIPCount": item.wanted},
            "status": build_status(state, _published(subnet), node, SETTINGS),
        }
        self.caches.nncs.apply(msgspec.convert(config, NodeNetworkConfig))
        uses = []
        for number in range(count):
            address = state.grants[number].address if number < len(state.grants) else ""
            there = self.caches.pods.get(f"default/{name}-{number}")
            self.bind(f"{name}-{number}", name, address)
            if address and (there is None or address not in there.addresses):
                uses.append(self._use(f"{name}-{number}", address))
        for pod in self.model.pods_of.get(name):
            if int(pod.metadata.name.rpartition("-")[2]) >= count:
                self.caches.pods.discard(pod.key)
        return uses

    def bind(self, name: str, node: str, address: str = "") -> None:
        """Show a Pod on a node, with an address or waiting for one."""
        there = self.caches.pods.get(f"default/{name}")
        if there and there.addresses == ((address,) if address else ()):
            return
        made = there.metadata.creation_timestamp if there else self.moment
        ips = [{"ip": address}] if address else []
        pod = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": made},
            "spec": {"nodeName": node},
            "status": {"phase": "Running" if ips else "Pending", "podIPs": ips},
        }
        self.caches.pods.apply(msgspec.convert(pod, InspectedPod))

    def _use(self, name: str, address: str) -> PodUsage:
        pod = self.caches.pods.get(f"default/{name}")
        since = (pod.metadata.creation_timestamp if pod else None) or self.moment
        uid = f"uid-{name}"
        return PodUsage(
            network=self.subnet.network, address=address, namespace="default", name=name, uid=uid, since=since
        )

    def join(self, name: str) -> None:
        """Show a Node."""
        self.caches.nodes.apply(msgspec.convert({"metadata": {"name": name, "uid": f"uid-{name}"}}, Node))

    def divide(
        self,
        network: str,
        range_: str,
        slices: Mapping[str, tuple[str, int]],
        *,
        size: str = "/28",
        waiting: Sequence[str] = (),
    ) -> None:
        """Show a network in slices: for each node its slice, how many addresses of it are used, and who waits."""
        allocations = [{"nodeName": node, "sliceRange": each} for node, (each, _) in slices.items()]
        pool = {
            "metadata": {
                "name": network,
                "namespace": "kube-system",
                "annotations": {"podpool.io/waiting": " ".join(waiting)},
            },
            "spec": {"range": range_, "sliceSize": size},
            "status": {"allocations": [*allocations, {"nodeName": "", "sliceRange": "10.9.255.0/28"}]},
        }
        self.caches.node_slice_pools.apply(msgspec.convert(pool, NodeSlicePool))
        for node, (each, used) in slices.items():
            owner = {"id": "c", "podref": "default/p", "ifname": "net1"}
            entry = {
                "metadata": {"name": f"{network}-{node}-{each.replace('/', '-')}", "namespace": "kube-system"},
                "spec": {"range": each, "allocations": {str(number): owner for number in range(used)}},
            }
            self.caches.pools.apply(msgspec.convert(entry, IPPool))

    def add_event(self, node: str, note: str, *, warning: bool = False) -> None:
        """Show an Event about a node."""
        event = {
            "metadata": {"name": f"{node}.{self.clock.now}", "namespace": "default", "uid": f"{node}{self.clock.now}"},
            "eventTime": self.moment,
            "reportingController": "podpool-controller",
            "regarding": {"kind": "Node", "name": node},
            "note": note,
            "type": "Warning" if warning else "Normal",
        }
        self.caches.events.apply(msgspec.convert(event, Event))

    @property
    def moment(self) -> str:
        """Now, as objects write it."""
        return dt.datetime.fromtimestamp(self.clock.now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _refresh(self) -> None:
        self.model.set_subnet(await self.ledger.subnet(self.subnet), self._spec)


def _chunks(items: Sequence[tuple[str, int]], size: int) -> Sequence[Sequence[tuple[str, int]]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _published(subnet: SubnetState) -> PublishedSubnet:
    return PublishedSubnet(
        address_space=subnet.cidr,
        gateway=subnet.gateway or "",
        scaler=subnet.scaler,
        exhausted=subnet.exhausted,
        cooldown=subnet.cooldown,
        nodes=1,
    )
