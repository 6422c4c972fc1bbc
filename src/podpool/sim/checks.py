"""What must always be true, and what must be true when all is well again, looked at from outside.

One owner and rest are checked where an address is given (`truth`). Here: containment, and, after the faults, that
nothing is leaked, everybody is served, and the numbers are aligned.
"""

from podpool.ledger.messages import ContainerRecord
from podpool.sim.truth import Violation
from podpool.sim.world import World


def check_always(world: World) -> None:
    """Look at the world at any moment."""
    _contained(world)


def _contained(world: World) -> None:
    """A Pod's address is among its node's grants, in the books of the ledger; restored ones must first be mended."""
    if world.subnet().frozen:
        return
    owners = world.owners()
    for use in world.truth.uses():
        owner = owners.get(use.address)
        if owner != use.machine:
            story = f"{use.pod} uses {use.address} on {use.machine}, and the ledger has it for {owner or 'nobody'}"
            raise Violation("containment", story)


def check_settled(world: World) -> None:
    """Look at a world that has had time without faults."""
    records = world.records()
    _one_container_each(world, records)
    _agreed(world, records)
    _served(world)
    _aligned(world, records)


def _one_container_each(world: World, records: dict[str, list[ContainerRecord]]) -> None:
    for name in sorted({*records, *world.nodes()}):
        found = len(records.get(name, []))
        wanted = 1 if name in world.nodes() else 0
        if found != wanted:
            raise Violation("nothing leaked", f"the ledger has {found} containers for {name}, not {wanted}")


def _agreed(world: World, records: dict[str, list[ContainerRecord]]) -> None:
    """Ledger, NNC and agent have the same grants."""
    for name in world.nodes():
        books = sorted(grant.id for grant in records[name][0].state.grants)
        containers = world.configs()[name]["status"]["networkContainers"]
        shown = sorted(each["name"] for each in containers[0].get("ipAssignments", []))
        agent = world.hosts[name].agent
        held = agent.pool.listed if agent else 0
        if books != shown or held != len(books):
            story = f"{name}: ledger {len(books)}, NNC {len(shown)}, agent {held} grants are not the same"
            raise Violation("agreement", story)


def _served(world: World) -> None:
    """Every Pod that can have an address has one."""
    for name in world.nodes():
        served = world.truth.of_machine(name)
        waiting = [pod for pod in world.pods_on(name).values() if pod not in served]
        subnet = world.subnet()
        if waiting and subnet.capacity - subnet.reserved - subnet.kept_for_primaries >= len(waiting):
            raise Violation("everybody served", f"{', '.join(waiting)} on {name} without an address")


def _aligned(world: World, records: dict[str, list[ContainerRecord]]) -> None:
    """With its primary, a node has whole batches."""
    scaler = world.subnet().scaler
    for name in world.nodes():
        total = len(records[name][0].state.grants) + 1
        if total % scaler.batch:
            raise Violation("aligned", f"{name} has {total} addresses, and the batch is {scaler.batch}")
