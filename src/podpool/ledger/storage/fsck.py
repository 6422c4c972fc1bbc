"""Are the books in themselves consistent? Read from a copy, so that a running ledger is not held up.

Every sum is counted again from what it is the sum of: the slots of the blocks are the truth about who has which
address, the containers about who waits. What is found is said in words, one sentence for each fault.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from podpool.ledger.domain.scaling_policy import rungs_of
from podpool.ledger.domain.subnet_layout import BLOCK
from podpool.ledger.storage.backup import Line
from podpool.ledger.storage.block import NEVER, PRIMARY, Block
from podpool.ledger.storage.rows import ContainerRow, SubnetRow


class Checked(msgspec.Struct):
    """What was read, and what is wrong with it."""

    faults: list[str] = msgspec.field(default_factory=list)
    subnets: int = 0
    containers: int = 0
    addresses: int = 0


def check(lines: Iterable[Line]) -> Checked:
    """Check a copy of the books."""
    books = _Books()
    for table, columns, row in lines:
        read = getattr(books, f"read_{table}", None)
        if read is not None:
            read(dict(zip(columns, row, strict=True)))
    return Checked(
        faults=list(books.faults()),
        subnets=len(books.subnets),
        containers=sum(not row.closed for row in books.containers.values()),
        addresses=sum(books.held.values()),
    )


class _Books:
    """What the rows come to, counted anew."""

    def __init__(self) -> None:
        self.subnets: dict[int, SubnetRow] = {}
        self.containers: dict[int, ContainerRow] = {}
        self.held: Counter[int] = Counter()
        self._resting: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._blocks: defaultdict[int, list[int]] = defaultdict(list)
        self._primaries: Counter[int] = Counter()
        self._grants: Counter[bytes] = Counter()
        self._members: set[tuple[str, str, str]] = set()
        self._alarms: Counter[int] = Counter()
        self._odd: list[str] = []

    def read_subnet(self, row: dict[str, Any]) -> None:
        subnet = msgspec.json.decode(row["row"], type=SubnetRow)
        self.subnets[subnet.number] = subnet
        if (row["number"], row["network"], row["name"], row["due"]) != (
            *(subnet.number, subnet.made.network, subnet.made.name),
            subnet.due,
        ):
            self._odd.append(f"subnet {row['number']} is found by what its row does not say")

    def read_container(self, row: dict[str, Any]) -> None:
        container = msgspec.json.decode(row["row"], type=ContainerRow)
        self.containers[container.number] = container
        columns = ("number", "id", "cluster", "subnet", "node", "node_uid", "need_since", "wish_since")
        same = all(row[column] == getattr(container, column) for column in columns)
        if not same or (bool(row["closed"]), bool(row["foreign_agent"])) != (
            container.closed,
            container.reading is not None,
        ):
            self._odd.append(f"container {row['id']} is found by what its row does not say")

    def read_block(self, row: dict[str, Any]) -> None:
        subnet, number = self.subnets.get(row["subnet"]), row["number"]
        if subnet is None:
            self._odd.append(f"block {number} belongs to subnet {row['subnet']}, which does not exist")
            return
        block = Block.decode(row["slots"])
        members = set(subnet.ground.slots(number))
        if block.ready != row["ready"]:
            self._odd.append(f"block {number} of {subnet.name} is found by a rest that none of its addresses has")
        for slot in range(BLOCK):
            owner = block.owner(slot)
            if slot not in members and owner is not None:
                address = subnet.ground.text(subnet.ground.address(number, slot))
                self._odd.append(f"{address} is held in {subnet.name}, but must never be given")
            if owner is not None:
                self._read_owned(subnet, number, owner, block.grant(slot))
            elif block.stamp(slot) != NEVER and block.stamp(slot) > subnet.awake:
                self._resting[subnet.number][block.stamp(slot)] += 1

    def read_member(self, row: dict[str, Any]) -> None:
        self._members.add((row["cluster"], row["network"], row["subnet"]))

    def read_alarm(self, row: dict[str, Any]) -> None:
        self._alarms[row["subnet"]] += 1

    def _read_owned(self, subnet: SubnetRow, block: int, owner: int, grant: bytes) -> None:
        self.held[subnet.number] += 1
        if block not in self._blocks[owner][-1:]:
            self._blocks[owner].append(block)
        if grant == PRIMARY:
            self._primaries[owner] += 1
        else:
            self._grants[grant] += 1
        container = self.containers.get(owner)
        if container is None or container.closed or container.subnet != subnet.number:
            self._odd.append(f"an address in block {block} of {subnet.name} belongs to {_name(container, owner)}")

    def faults(self) -> Iterator[str]:
        yield from self._odd
        for grant, count in self._grants.items():
            if count > 1:
                yield f"grant {grant.hex()} stands for {count} addresses"
        for number, subnet in self.subnets.items():
            yield from self._faults_of_subnet(number, subnet)
        for number, container in self.containers.items():
            yield from self._faults_of_container(number, container)
        places = Counter(
            (row.cluster, row.node, row.node_uid, row.subnet) for row in self.containers.values() if not row.closed
        )
        for (cluster, node, *_), count in places.items():
            if count > 1:
                yield f"node {node} of cluster {cluster} has {count} open containers in one subnet"

    def _faults_of_subnet(self, number: int, subnet: SubnetRow) -> Iterator[str]:
        mine = [row for row in self.containers.values() if row.subnet == number]
        totals = [
            sum(row.load.reservation(scaler) for row in mine if row.load is not None) for scaler in rungs_of(subnet)
        ]
        rests = {since: count for since, count in subnet.resting if since > subnet.awake}
        for what, said, counted in (
            ("addresses are held", subnet.held, self.held[number]),
            ("addresses rest", rests, dict(self._resting[number])),
            ("addresses are needed by waiting Pods", subnet.need, sum(row.need for row in mine)),
            ("addresses are wished for buffers", subnet.wish, sum(row.wish for row in mine)),
            ("foreign requests are unsettled", subnet.unsettled, sum(row.unsettled for row in mine)),
            ("addresses will be held, by rung", list(subnet.totals), totals),
            ("alarms are open", subnet.alarms, self._alarms[number]),
        ):
            if said != counted:
                yield f"subnet {subnet.name} says that {said} {what}; counted, it is {counted}"

    def _faults_of_container(self, number: int, container: ContainerRow) -> Iterator[str]:
        blocks, primaries = self._blocks[number], self._primaries[number]
        if list(container.blocks) != sorted(blocks):
            said = list(container.blocks)
            yield f"container {container.id} says that its addresses are in blocks {said}; they are in {sorted(blocks)}"
        if primaries > 1:
            yield f"container {container.id} has {primaries} primaries"
        subnet = self.subnets.get(container.subnet)
        if subnet is None:
            yield f"container {container.id} is in subnet {container.subnet}, which does not exist"
        elif not container.closed and (container.cluster, subnet.made.network, subnet.made.name) not in self._members:
            yield f"cluster {container.cluster} has a container in {subnet.name}, but is no member of it"


def _name(container: ContainerRow | None, number: int) -> str:
    if container is None:
        return f"container {number}, which does not exist"
    return f"container {container.id}, which is {'closed' if container.closed else 'in another subnet'}"
