"""Shared ranges against everything at once: agents that die and lose answers, and plugins of the foreign kind.

Whatever happens in whatever order: no address has two Pods, no entry and no reservation of a Pod that runs is lost,
and when all Pods are gone nothing is left.
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
ELSEWHERE = -1


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that was answered with an address."""

    owner: PodInterface
    network: IpamConfig
    address: str
    third_party: bool


class SharedRanges(RuleBasedStateMachine):
    """Three agents and, in half of the worlds, foreign plugins; every Pod that was ever begun is deleted in the end."""

    pods = Bundle("pods")
    with_third_party = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.count = 0
        self.running: dict[str, Running] = {}
        self.begun: dict[str, tuple[PodInterface, IpamConfig, int]] = {}
        self.replaced: list[tuple[PodInterface, IpamConfig, int]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.latest: dict[str, asyncio.Task[None]] = {}
        self.play(self.build())

    async def build(self) -> None:
        self.cluster = SharedRangeCluster()
        await self.cluster.begin()
        self.nodes = [self.cluster.node(f"node-{each}", third_party=self.with_third_party) for each in range(3)]
        self.plugin = WhereaboutsPlugin(self.cluster, "elsewhere")

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(story)

    def go(self, name: str, story: Coroutine[Any, Any, None]) -> None:
        """Begin something with a Pod, and let it run beside whatever comes next."""

        async def begin() -> None:
            self.latest[name] = asyncio.get_running_loop().create_task(story)
            self.tasks.append(self.latest[name])
            await asyncio.sleep(0)

        self.play(begin())

    def idle(self, name: str) -> bool:
        return self.latest[name].done()

    @rule(target=pods, net=NETS, at=NODES)
    def a_pod_comes(self, net: str, at: int) -> str:
        self.count += 1
        name = f"pod-{self.count}"
        self.begun[name] = (pod_interface(name), NETWORKS[net], at)
        self.go(name, self.add(name))
        return name

    @precondition(lambda self: self.with_third_party)
    @rule(target=pods, net=NETS)
    def a_pod_comes_elsewhere(self, net: str) -> str:
        self.count += 1
        name = f"pod-{self.count}"
        self.begun[name] = (pod_interface(name), NETWORKS[net], ELSEWHERE)
        self.go(name, self.add_elsewhere(name))
        return name

    @rule(name=pods)
    def it_is_added_again(self, name: str) -> None:
        """The same sandbox, or after a crash of its runtime a new one of the same Pod, gets the same address."""
        if name in self.running and not self.running[name].third_party and self.idle(name):
            self.go(name, self.add_again(name))

    @rule(name=pods)
    def its_sandbox_is_replaced(self, name: str) -> None:
        """The new sandbox comes before the old one's DEL."""
        if name in self.running and not self.running[name].third_party and self.idle(name):
            self.count += 1
            self.go(name, self.replace(name, f"c-{self.count}"))

    @rule(name=consumes(pods))
    def it_goes(self, name: str) -> None:
        self.go(name, self.delete(name, self.latest[name]))

    @rule(seconds=st.sampled_from([0.005, 0.02, 0.1, 1.0, 35.0]))
    def time_passes(self, seconds: float) -> None:
        self.play(asyncio.sleep(seconds))

    @rule(at=NODES, lossy=st.booleans())
    def answers_get_lost(self, at: int, lossy: bool) -> None:
        self.nodes[at].transport.lossy = lossy

    @rule(at=NODES, cut=st.booleans())
    def the_road_is_cut(self, at: int, cut: bool) -> None:
        self.nodes[at].transport.cut = cut

    @rule(at=NODES)
    def an_agent_dies(self, at: int) -> None:
        self.play(self.restart(self.nodes[at]))

    @invariant()
    def no_address_has_two_pods(self) -> None:
        held = [each.address for each in self.running.values()]
        assert len(set(held)) == len(held), sorted(held)

    @invariant()
    def no_entry_is_lost(self) -> None:
        self.play(self.look())

    def teardown(self) -> None:
        try:
            self.play(self.end())
        finally:
            self.loop.shutdown()
        assert [] == self.loop.failures

    # What happens

    async def add(self, name: str) -> None:
        owner, net, at = self.begun[name]
        try:
            (address,) = await self.nodes[at].add(owner, net)
        except (CniError, AgentKilled):
            return  # failed, or the agent died
        if self.begun.get(name) == (owner, net, at):
            self.running[name] = Running(owner=owner, network=net, address=address, third_party=False)

    async def add_again(self, name: str) -> None:
        owner, net, at = self.begun[name]
        before = self.running[name].address
        try:
            (address,) = await self.nodes[at].add(owner, net)
        except (CniError, AgentKilled):
            self.running.pop(name, None)  # the runtime gives it up
            return
        assert name not in self.running or address == before

    async def replace(self, name: str, container_id: str) -> None:
        owner, net, at = self.begun[name]
        new = msgspec.structs.replace(owner, container_id=container_id)
        before = self.running.pop(name).address
        self.begun[name] = (new, net, at)
        self.replaced.append((owner, net, at))  # whose DEL is tried again if this is given up
        try:
            await self.add(name)
        finally:
            await self.nodes[at].delete(owner, net)
        assert name not in self.running or before == self.running[name].address

    async def add_elsewhere(self, name: str) -> None:
        owner, net, _ = self.begun[name]
        try:
            address = await self.plugin.add(owner, net)
        except PluginRangeFull:
            return
        except ApiAlreadyExists:  # its pool was new when we reserved; its runtime cleans up, and tries again later
            await self.plugin.delete(owner, net)
            return
        if name in self.begun:
            self.running[name] = Running(owner=owner, network=net, address=address, third_party=True)

    async def delete(self, name: str, doing: asyncio.Task[None]) -> None:
        """A runtime gives up what it does with a sandbox before it deletes it."""
        owner, net, at = self.begun.pop(name)
        self.running.pop(name, None)
        if at != ELSEWHERE:
            doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        await self.take_away(owner, net, at)

    async def take_away(self, owner: PodInterface, net: IpamConfig, at: int) -> None:
        if at == ELSEWHERE:
            await self.plugin.delete(owner, net)
        else:
            await self.nodes[at].delete(owner, net)

    async def restart(self, node: SharedRangeNode) -> None:
        await node.kill()
        node.start()

    async def look(self) -> None:
        entries, reservations = await self.cluster.entries(), await self.cluster.reservations()
        for each in self.running.values():
            place = PoolIdentifier(range=each.network.ranges[0].prefix)
            address = parse_address(each.address)
            assert each.owner == entries.get((place.name, address))
            if self.with_third_party:
                kept = reservations.get(reservation_name(address), ReservationSpec())
                assert each.owner.podref == kept.podref

    async def end(self) -> None:
        for node in self.nodes:
            node.transport.cut = node.transport.lossy = False
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        failed = [each for each in ended if isinstance(each, Exception)]
        assert not failed, failed
        for owner, net, at in (*self.replaced, *self.begun.values()):
            await self.take_away(owner, net, at)
        await asyncio.sleep(60)
        left = await self.cluster.entries(), await self.cluster.reservations()
        assert ({}, {}) == left, left


class OnlyOurs(SharedRanges):
    """Without foreign plugins: no Lease, and reservations only where ranges overlap."""

    with_third_party = False


TestBesideForeign = SharedRanges.TestCase
TestBesideForeign.settings = settings(stateful_step_count=30)
TestOnlyOurs = OnlyOurs.TestCase
TestOnlyOurs.settings = settings(stateful_step_count=30)
