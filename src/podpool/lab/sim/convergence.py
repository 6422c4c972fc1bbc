"""What must be true when all is well again: nothing is leaked, everybody agrees and is served, nobody writes.

Looked at from outside, after the faults. What is free is read at that moment: a rest ends without anybody's doing.
"""

from collections.abc import Mapping

from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.world import Host, World
from podpool.ledger.messages import ContainerRecord

Records = Mapping[str, list[ContainerRecord]]
"""Containers by the name of their node."""


def check_settled(world: World) -> None:
    """Look at a world that has had time without faults."""
    records = world.records()
    _thawed(world)
    _one_container_each(world, records)
    _one_config_each(world)
    _agreed(world, records)
    _counted(world)
    _served(world)
    _aligned(world, records)


def _thawed(world: World) -> None:
    if world.office.subnet().frozen:
        raise Violation("nothing frozen", f"subnet {world.office.subnet().subnet} grants nothing, and nobody knows why")


def _one_container_each(world: World, records: Records) -> None:
    for name in sorted({*records, *world.nodes()}):
        found = len(records.get(name, []))
        wanted = 1 if name in world.nodes() else 0
        if found != wanted:
            raise Violation("nothing leaked", f"the ledger has {found} containers for {name}, not {wanted}")


def _one_config_each(world: World) -> None:
    for name in world.configs():
        if name not in world.nodes():
            raise Violation("nothing leaked", f"there is an NNC of {name}, and no Node")


def _agreed(world: World, records: Records) -> None:
    """Ledger, NNC and agent have the same grants, the agent may give them, and knows who has which."""
    for name in world.nodes():
        books = sorted(grant.id for grant in records[name][0].state.grants)
        containers = world.configs().get(name, {}).get("status", {}).get("networkContainers", [])
        shown = sorted(grant["name"] for each in containers for grant in each.get("ipAssignments", []))
        host = world.hosts[name]
        held = _listed(host)
        if not books == shown == held:
            story = f"{name}: ledger {len(books)}, NNC {len(shown)}, agent {len(held)} grants are not the same"
            raise Violation("agreement", story)
        if host.agent is None or host.agent.fenced:
            raise Violation("agreement", f"{name}: its agent is fenced")
        _remembered(world, name)


def _listed(host: Host) -> list[str]:
    containers = host.agent.pool.containers if host.agent else ()
    return sorted(grant.name for each in containers for grant in each.ip_assignments)


def _remembered(world: World, name: str) -> None:
    """The agent knows what its sandboxes have, and of none that is no more; a spoilt journal may forget some."""
    agent = world.hosts[name].agent
    if agent is None:
        return
    uses = {use.address: use.sandbox for use in world.truth.uses() if use.machine == name}
    holdings = {each.grant.address: each.owner.container_id for each in agent.pool.holdings.values()}
    forgotten = {grant.address for grant in agent.pool.lost()}
    if holdings != {address: sandbox for address, sandbox in uses.items() if address not in forgotten}:
        story = f"{name}: sandboxes use {', '.join(sorted(uses))}, and its agent knows of {', '.join(sorted(holdings))}"
        raise Violation("agreement", story)


def _counted(world: World) -> None:
    """What the subnet says to be reserved is what containers of all clusters have, and what rests."""
    subnet, held = world.office.subnet_now(), world.office.held()
    if subnet.reserved != held + subnet.resting:
        story = f"{subnet.reserved} are reserved, {held} are held and {subnet.resting} rest"
        raise Violation("nothing leaked", story)
    for fault in world.office.faults():
        raise Violation("nothing leaked", fault)


def _served(world: World) -> None:
    """Nobody waits while an address could be given, or lies idle on a node, unless a person insists on buffers."""
    subnet = world.office.subnet_now()
    free = subnet.capacity - subnet.reserved - subnet.reserved_for_primaries
    idle = 0 if world.is_pinned() else sum(host.agent.pool.free for host in world.hosts.values() if host.agent)
    for name in world.nodes():
        served = world.truth.of_machine(name)
        waiting = [pod for pod in world.pods_on(name).values() if pod not in served]
        if waiting and (free > 0 or idle > 0):
            story = f"{', '.join(waiting)} on {name} without an address, with {free} free and {idle} idle"
            raise Violation("everybody served", story)


def _aligned(world: World, records: Records) -> None:
    """With its primary, a node has whole batches, unless the subnet is short."""
    batch = world.batch()
    for name in world.nodes():
        state = records[name][0].state
        total = len(state.grants) + 1
        if total % batch and not state.short:
            raise Violation("aligned", f"{name} has {total} addresses, and the batch is {batch}")


def check_quiet(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Look at what was written in the meantime, or asked to be: nothing should have been."""
    differ = [each for each in sorted({*before, *after}) if before.get(each) != after.get(each)]
    if differ:
        raise Violation("nothing is written", f"{', '.join(differ)} changed although nothing happened")
