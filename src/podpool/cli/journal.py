"""What an agent has written down, for people: each record as a line, then what they come to."""

from pathlib import Path

import msgspec

from podpool.agent.journal import read_journal
from podpool.agent.networks.slices import Slices
from podpool.agent.pool import Pool
from podpool.core.errors import InvalidInput
from podpool.runtime.disk import LocalDisk


def show_journal(*, state: str) -> None:
    """Print the journal as it is; nothing is changed, also while its agent runs."""
    if not Path(state).is_dir():
        raise InvalidInput("--state", state, "there is no such directory")
    found, pool, slices = read_journal(LocalDisk(Path(state))), Pool(), Slices()
    lines = []
    for record in found.records:
        pool.apply(record)
        slices.apply(record)
        lines.append(msgspec.json.encode(record).decode())
    for holding in pool.holdings.values():
        pod = f" for {holding.pod.namespace}/{holding.pod.name}" if holding.pod.name else ""
        note = ", which the status dropped" if holding.dropped else ""
        owner = f"{holding.owner.container_id} {holding.owner.ifname}"
        lines.append(f"{holding.grant.address} is held by {owner}{pod}{note}")
    for slot, tenant in slices.tenants():
        note = ", which another hand gave" if tenant.found else ""
        owner = f"{tenant.owner.container_id} {tenant.owner.ifname}"
        lines.append(f"{slot.address} is held by {owner} for {tenant.podref}{note}")
    for slice_ in slices:
        told = f"slice {slice_.prefix} of {slice_.range}" + (", closed" if slice_.closed else "")
        lines.append(f"{told}: {len(slice_.held)} in use, {len(slice_.used)} used before")
    lines.append(
        f"{len(found.records)} records: container {pool.adopted or '(none)'} at version {max(pool.version, 0)}, "
        f"{pool.listed} grants, {len(pool.holdings)} in use, {pool.free} free or resting, {len(pool.named)} named"
    )
    if found.torn:
        what = "damaged" if found.damaged else "torn"
        lines.append(f"the last {found.torn} bytes are {what}: the next agent cuts them off")
    print("\n".join(lines))  # noqa: T201  for the person who typed it
