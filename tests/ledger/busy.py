"""A ledger under load, to be killed: prints each grant once it was answered."""

import asyncio
import itertools
import random
import sys
from pathlib import Path

from podpool.ledger.domain.service import Ledger
from podpool.ledger.messages import Item, NewSubnet, OpenTerm, Reconcile, Report, SubnetName
from podpool.ledger.storage.sqlite.store import ThreadStore
from podpool.runtime.clock import SystemClock

SUBNET = SubnetName(network="vnet", name="pods")


CALLERS = 6


async def main(path: str, run: str) -> None:
    ledger = Ledger(ThreadStore(Path(path)), clock=SystemClock(), rng=random.SystemRandom())
    await ledger.start()
    await ledger.create_subnet(NewSubnet(network="vnet", name="pods", cidr="10.0.0.0/16"))
    await asyncio.gather(*(call(ledger, f"{run}-{number}") for number in range(CALLERS)))


async def call(ledger: Ledger, cluster: str) -> None:
    """Ask for more and more, as one of several who share commits."""
    term = (await ledger.open_term(OpenTerm(cluster=cluster))).term
    known: set[str] = set()
    for number in itertools.count(1):
        node = f"n{number % 20}"
        item = Item(subnet=SUBNET, node=node, node_uid=node, wanted=number // 10, report=Report())
        answer = await ledger.reconcile(Reconcile(cluster=cluster, term=term, number=number, items=(item,)))
        state = answer.results[0].state
        for grant in state.grants if state else ():
            if grant.id not in known:
                known.add(grant.id)
                print(cluster, grant.id, grant.address, flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2]))
