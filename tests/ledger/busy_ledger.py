"""A ledger under load, to be killed: prints each grant after its response."""

import asyncio
import itertools
import random
import sys
from pathlib import Path

from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import (
    DemandReport,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.sqlite.store import SqliteStore
from podpool.runtime.clock import SystemClock

SUBNET = SubnetName(network="vnet", name="pods")


CALLERS = 6


async def main(path: str, run: str) -> None:
    ledger = LedgerService(SqliteStore(Path(path)), clock=SystemClock(), rng=random.SystemRandom())
    await ledger.start()
    await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/16"))
    await asyncio.gather(*(call(ledger, f"{run}-{number}") for number in range(CALLERS)))


async def call(ledger: LedgerService, cluster: str) -> None:
    """Request more and more addresses, concurrently with other callers."""
    term = (await ledger.open_term(OpenTermRequest(cluster=cluster))).term
    known: set[str] = set()
    for number in itertools.count(1):
        node = f"n{number % 20}"
        item = ReconcileItem(subnet=SUBNET, node=node, node_uid=node, wanted=number // 10, report=DemandReport())
        response = await ledger.reconcile(ReconcileRequest(cluster=cluster, term=term, number=number, items=(item,)))
        state = response.results[0].state
        for grant in state.grants if state else ():
            if grant.id not in known:
                known.add(grant.id)
                print(cluster, grant.id, grant.address, flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2]))
