"""Consistency check of a database, read from a backup so that a running ledger is not delayed.

Every sum is computed again from its source: the slots of the blocks define who holds which address, the network
containers define the shortages. Each fault is one sentence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from podpool.ledger.domain.address_block import NOT_FREE, PRIMARY, Block
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.scaling_policy import scaler_ladder
from podpool.ledger.domain.subnet_layout import BLOCK_SIZE
from podpool.ledger.storage.backup import BackupRow


class FsckReport(msgspec.Struct):
    """The faults, and what was checked."""

    faults: list[str] = msgspec.field(default_factory=list)
    subnets: int = 0
    network_containers: int = 0
    addresses: int = 0


def check(rows: Iterable[BackupRow]) -> FsckReport:
    """Check the rows of a backup."""
    recount = _Recount()
    for table, columns, row in rows:
        read = getattr(recount, f"read_{table}", None)
        if read is not None:
            read(dict(zip(columns, row, strict=True)))
    return FsckReport(
        faults=list(recount.faults()),
        subnets=len(recount.subnets),
        network_containers=sum(not row.closed for row in recount.ncs.values()),
        addresses=sum(recount.held.values()),
    )


class _Recount:
    """The rows, and the sums computed from them."""

    def __init__(self) -> None:
        self.subnets: dict[int, SubnetRow] = {}
        self.ncs: dict[int, NcRow] = {}
        self.held: Counter[int] = Counter()
        self._held_by: Counter[int] = Counter()
        self._cooling: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._blocks: defaultdict[int, list[int]] = defaultdict(list)
        self._primaries: Counter[int] = Counter()
        self._grants: Counter[bytes] = Counter()
        self._members: set[tuple[str, str, str]] = set()
        self._conflicts: Counter[int] = Counter()
        self._faults: list[str] = []

    def read_subnet(self, row: dict[str, Any]) -> None:
        subnet = msgspec.json.decode(row["row"], type=SubnetRow)
        self.subnets[subnet.number] = subnet
        stored = subnet.number, subnet.spec.network, subnet.spec.name, subnet.due
        if (row["number"], row["network"], row["name"], row["due"]) != stored:
            self._faults.append(f"subnet {row['number']}: columns and row differ")

    def read_network_container(self, row: dict[str, Any]) -> None:
        nc = msgspec.json.decode(row["row"], type=NcRow)
        self.ncs[nc.number] = nc
        columns = ("number", "id", "cluster", "subnet", "node", "node_uid", "pod_short_since", "buffer_short_since")
        same = all(row[column] == getattr(nc, column) for column in columns)
        if not same or (bool(row["closed"]), bool(row["third_party"])) != (nc.closed, nc.inferred is not None):
            self._faults.append(f"network container {row['id']}: columns and row differ")

    def read_block(self, row: dict[str, Any]) -> None:
        subnet, number = self.subnets.get(row["subnet"]), row["number"]
        if subnet is None:
            self._faults.append(f"block {number} belongs to subnet {row['subnet']}, which does not exist")
            return
        block = Block.decode(row["slots"])
        assignable = set(subnet.layout.slots(number))
        if block.ready != row["ready"]:
            ready = f"column ready is {row['ready']}, the slots give {block.ready}"
            self._faults.append(f"block {number} of {subnet.name}: {ready}")
        for slot in range(BLOCK_SIZE):
            owner = block.owner(slot)
            if slot not in assignable and owner is not None:
                address = subnet.layout.text(subnet.layout.address(number, slot))
                self._faults.append(f"{address} of {subnet.name} is held, but is not assignable")
            if owner is not None:
                self._count_held(subnet, number, owner, block.grant(slot))
            elif block.stamp(slot) != NOT_FREE and block.stamp(slot) > subnet.reusable_stamp:
                self._cooling[subnet.number][block.stamp(slot)] += 1

    def read_membership(self, row: dict[str, Any]) -> None:
        self._members.add((row["cluster"], row["network"], row["subnet"]))

    def read_ownership_conflict(self, row: dict[str, Any]) -> None:
        self._conflicts[row["subnet"]] += 1

    def _count_held(self, subnet: SubnetRow, block: int, owner: int, grant: bytes) -> None:
        self.held[subnet.number] += 1
        self._held_by[owner] += 1
        if block not in self._blocks[owner][-1:]:
            self._blocks[owner].append(block)
        if grant == PRIMARY:
            self._primaries[owner] += 1
        else:
            self._grants[grant] += 1
        nc = self.ncs.get(owner)
        if nc is None or nc.closed or nc.subnet != subnet.number:
            self._faults.append(f"an address in block {block} of {subnet.name} is held by {_describe(nc, owner)}")

    def faults(self) -> Iterator[str]:
        yield from self._faults
        for grant, count in self._grants.items():
            if count > 1:
                yield f"grant {grant.hex()} is used for {count} addresses"
        for number, subnet in self.subnets.items():
            yield from self._subnet_faults(number, subnet)
        for number, nc in self.ncs.items():
            yield from self._nc_faults(number, nc)
        ncs = (row for row in self.ncs.values() if not row.closed)
        nodes = Counter((row.cluster, row.node, row.node_uid, row.subnet) for row in ncs)
        for (cluster, node, *_), count in nodes.items():
            if count > 1:
                yield f"node {node} of cluster {cluster} has {count} open network containers in one subnet"

    def _subnet_faults(self, number: int, subnet: SubnetRow) -> Iterator[str]:
        ncs = [row for row in self.ncs.values() if row.subnet == number]
        loads = [row.load for row in ncs if row.load is not None]
        totals = [sum(load.reservation(scaler) for load in loads) for scaler in scaler_ladder(subnet)]
        cooling = {since: count for since, count in subnet.cooling if since > subnet.reusable_stamp}
        use = {cluster: (each.network_containers, each.held) for cluster, each in (subnet.usage or {}).items()}
        for what, stored, counted in (
            ("network containers and addresses, by cluster", use, self._use(ncs) if subnet.usage is not None else {}),
            ("held addresses", subnet.held, self.held[number]),
            ("open network containers", subnet.network_containers, sum(not row.closed for row in ncs)),
            ("addresses cooling down, by stamp", cooling, dict(self._cooling[number])),
            ("addresses short for waiting Pods", subnet.pod_shortage, sum(row.pod_shortage for row in ncs)),
            ("addresses short for buffers", subnet.buffer_shortage, sum(row.buffer_shortage for row in ncs)),
            ("unsettled requests of third-party agents", subnet.unsettled, sum(row.unsettled for row in ncs)),
            ("projected addresses, by ladder step", list(subnet.totals), totals),
            ("open ownership conflicts", subnet.conflicts, self._conflicts[number]),
        ):
            if stored != counted:
                yield f"subnet {subnet.name}: {what}: stored {stored}, counted {counted}"

    def _use(self, ncs: Iterable[NcRow]) -> dict[str, tuple[int, int]]:
        """Count the open network containers and the addresses of each cluster."""
        found: dict[str, tuple[int, int]] = {}
        for row in ncs:
            if not row.closed:
                count, held = found.get(row.cluster, (0, 0))
                found[row.cluster] = count + 1, held + self._held_by[row.number]
        return found

    def _nc_faults(self, number: int, nc: NcRow) -> Iterator[str]:
        blocks, primaries = sorted(self._blocks[number]), self._primaries[number]
        if list(nc.blocks) != blocks:
            yield f"network container {nc.id}: blocks: stored {list(nc.blocks)}, counted {blocks}"
        if primaries > 1:
            yield f"network container {nc.id} has {primaries} primaries"
        subnet = self.subnets.get(nc.subnet)
        if subnet is None:
            yield f"network container {nc.id} is in subnet {nc.subnet}, which does not exist"
        elif not nc.closed and (nc.cluster, subnet.spec.network, subnet.spec.name) not in self._members:
            yield f"cluster {nc.cluster} has a network container in {subnet.name}, but is not a member"


def _describe(nc: NcRow | None, number: int) -> str:
    if nc is None:
        return f"network container {number}, which does not exist"
    return f"network container {nc.id}, which is {'closed' if nc.closed else 'in another subnet'}"
