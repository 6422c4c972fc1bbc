"""Shared ranges with agents that are killed and lose responses, and with third-party plugins.

In any order of events: no address has two Pods, no entry and no reservation of a running Pod is lost, and when all Pods
are deleted nothing is left.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from podpool.api.whereabouts import ReservationSpec
from podpool.cni.protocol import CniError
from podpool.core.addresses import parse_address
from podpool.kube.errors import ApiAlreadyExists
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name
from tests.agent.secondary.shared_range_env import (
    AgentKilled,
    PluginRangeFull,
    SharedRangeCluster,
    SharedRangeNode,
    WhereaboutsPlugin,
    network,
    pod_interface,
)

NETWORKS = {"wide": network("10.0.0.0/28"), "narrow": network("10.0.0.0/29"), "apart": network("10.1.0.0/29")}
NETS = st.sampled_from(sorted(NETWORKS))
NODES = st.integers(0, 2)
THIRD_PARTY = -1


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod whose ADD returned an address."""

    owner: PodInterface
    network: IpamConfig
    address: str
    third_party: bool


class SharedRanges(RuleBasedStateMachine):
    """Three agents and third-party plugins; every Pod is deleted in the end."""

    pods = Bundle("pods")
    with_third_party = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.count = 0
        self.running: dict[str, Running] = {}
        self.created: dict[str, tuple[PodInterface, IpamConfig, int]] = {}
        self.replaced: list[tuple[PodInterface, IpamConfig, int]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.latest: dict[str, asyncio.Task[None]] = {}
        self.run_until_complete(self.build())

    async def build(self) -> None:
        self.cluster = SharedRangeCluster()
        await self.cluster.begin()
        self.nodes = [self.cluster.node(f"node-{each}", third_party=self.with_third_party) for each in range(3)]
        self.plugin = WhereaboutsPlugin(self.cluster, "third-party")

    def run_until_complete(self, operation: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(operation)

    def start(self, name: str, operation: Coroutine[Any, Any, None]) -> None:
        """Start an operation on a Pod, concurrently with the next ones."""

        async def begin() -> None:
            self.latest[name] = asyncio.get_running_loop().create_task(operation)
            self.tasks.append(self.latest[name])
            await asyncio.sleep(0)

        self.run_until_complete(begin())

    def idle(self, name: str) -> bool:
        return self.latest[name].done()

    @rule(target=pods, net=NETS, at=NODES)
    def a_pod_is_created(self, net: str, at: int) -> str:
        self.count += 1
        name = f"pod-{self.count}"
        self.created[name] = (pod_interface(name), NETWORKS[net], at)
        self.start(name, self.add(name))
        return name

    @precondition(lambda self: self.with_third_party)
    @rule(target=pods, net=NETS)
    def a_pod_is_created_by_a_third_party(self, net: str) -> str:
        self.count += 1
        name = f"pod-{self.count}"
        self.created[name] = (pod_interface(name), NETWORKS[net], THIRD_PARTY)
        self.start(name, self.add_by_third_party(name))
        return name

    @rule(name=pods)
    def an_add_is_repeated(self, name: str) -> None:
        """The same sandbox gets the same address."""
        if name in self.running and not self.running[name].third_party and self.idle(name):
            self.start(name, self.add_again(name))

    @rule(name=pods)
    def a_sandbox_is_replaced(self, name: str) -> None:
        """The new sandbox is added before the DEL of the former one."""
        if name in self.running and not self.running[name].third_party and self.idle(name):
            self.count += 1
            self.start(name, self.replace(name, f"c-{self.count}"))

    @rule(name=consumes(pods))
    def a_pod_is_deleted(self, name: str) -> None:
        self.start(name, self.delete(name, self.latest[name]))

    @rule(seconds=st.sampled_from([0.005, 0.02, 0.1, 1.0, 35.0]))
    def time_passes(self, seconds: float) -> None:
        self.run_until_complete(asyncio.sleep(seconds))

    @rule(at=NODES, lossy=st.booleans())
    def responses_are_lost(self, at: int, lossy: bool) -> None:
        self.nodes[at].transport.lossy = lossy

    @rule(at=NODES, cut=st.booleans())
    def the_connection_is_cut(self, at: int, cut: bool) -> None:
        self.nodes[at].transport.cut = cut

    @rule(at=NODES)
    def an_agent_is_killed(self, at: int) -> None:
        self.run_until_complete(self.restart(self.nodes[at]))

    @invariant()
    def no_address_has_two_pods(self) -> None:
        held = [each.address for each in self.running.values()]
        assert len(set(held)) == len(held), sorted(held)

    @invariant()
    def no_entry_is_lost(self) -> None:
        self.run_until_complete(self.check_entries())

    def teardown(self) -> None:
        try:
            self.run_until_complete(self.end())
        finally:
            self.loop.shutdown()
        assert [] == self.loop.failures

    # Operations

    async def add(self, name: str) -> None:
        owner, net, at = self.created[name]
        try:
            (address,) = await self.nodes[at].add(owner, net)
        except (CniError, AgentKilled):
            return  # failed, or the agent was killed
        if self.created.get(name) == (owner, net, at):
            self.running[name] = Running(owner=owner, network=net, address=address, third_party=False)

    async def add_again(self, name: str) -> None:
        owner, net, at = self.created[name]
        before = self.running[name].address
        try:
            (address,) = await self.nodes[at].add(owner, net)
        except (CniError, AgentKilled):
            self.running.pop(name, None)  # the runtime abandons it
            return
        assert name not in self.running or address == before

    async def replace(self, name: str, container_id: str) -> None:
        owner, net, at = self.created[name]
        new = msgspec.structs.replace(owner, container_id=container_id)
        before = self.running.pop(name).address
        self.created[name] = (new, net, at)
        self.replaced.append((owner, net, at))  # its DEL is repeated at the end if this operation is cancelled
        try:
            await self.add(name)
        finally:
            await self.nodes[at].delete(owner, net)
        assert name not in self.running or before == self.running[name].address

    async def add_by_third_party(self, name: str) -> None:
        owner, net, _ = self.created[name]
        try:
            address = await self.plugin.add(owner, net)
        except PluginRangeFull:
            return
        except ApiAlreadyExists:  # its pool is newer than podpool's reservation; the runtime deletes and retries
            await self.plugin.delete(owner, net)
            return
        if name in self.created:
            self.running[name] = Running(owner=owner, network=net, address=address, third_party=True)

    async def delete(self, name: str, operation: asyncio.Task[None]) -> None:
        """Cancel the operation in progress, as a runtime does, then delete."""
        owner, net, at = self.created.pop(name)
        self.running.pop(name, None)
        if at != THIRD_PARTY:
            operation.cancel()
        await asyncio.gather(operation, return_exceptions=True)
        await self.send_del(owner, net, at)

    async def send_del(self, owner: PodInterface, net: IpamConfig, at: int) -> None:
        if at == THIRD_PARTY:
            await self.plugin.delete(owner, net)
        else:
            await self.nodes[at].delete(owner, net)

    async def restart(self, node: SharedRangeNode) -> None:
        await node.kill()
        node.start()

    async def check_entries(self) -> None:
        entries, reservations = await self.cluster.entries(), await self.cluster.reservations()
        for each in self.running.values():
            identifier = PoolIdentifier(range=each.network.ranges[0].prefix)
            address = parse_address(each.address)
            assert each.owner == entries.get((identifier.name, address))
            if self.with_third_party:
                reservation = reservations.get(reservation_name(address), ReservationSpec())
                assert each.owner.podref == reservation.podref

    async def end(self) -> None:
        for node in self.nodes:
            node.transport.cut = node.transport.lossy = False
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        failed = [each for each in ended if isinstance(each, Exception)]
        assert not failed, failed
        for owner, net, at in (*self.replaced, *self.created.values()):
            await self.send_del(owner, net, at)
        await asyncio.sleep(60)
        left = await self.cluster.entries(), await self.cluster.reservations()
        assert ({}, {}) == left, left


class WithoutThirdParty(SharedRanges):
    """Without third-party plugins: no Lease, and reservations only if ranges overlap."""

    with_third_party = False


TestWithThirdParty = SharedRanges.TestCase
TestWithThirdParty.settings = settings(stateful_step_count=30)
TestWithoutThirdParty = WithoutThirdParty.TestCase
TestWithoutThirdParty.settings = settings(stateful_step_count=30)
