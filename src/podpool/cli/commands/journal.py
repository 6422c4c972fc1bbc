"""`podpool agent journal show`: each record as a line, then the resulting state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from podpool.agent.journal import JournalContents
from podpool.agent.pool import Pool
from podpool.agent.secondary.slices import Slice, Slices
from podpool.cli.output import Printer
from podpool.core.errors import InvalidInput
from podpool.runtime.disk import LocalDisk


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """An address in a Pod's hands."""

    address: str
    container: str
    interface: str
    pod: str
    note: str = ""

    def __str__(self) -> str:
        pod = f" for {self.pod}" if self.pod else ""
        note = f", {self.note}" if self.note else ""
        return f"{self.address} is held by {self.container} {self.interface}{pod}{note}"


def show_journal(*, state: str, output: str, no_color: bool) -> None:
    """Print the journal as it is; nothing is changed, also while its agent runs."""
    if not Path(state).is_dir():
        raise InvalidInput("--state", state, "is not a directory")
    found, pool, slices = read_agent_journal(LocalDisk(Path(state))), Pool(), Slices()
    for record in found.records:
        pool.apply(record)
        slices.apply(record)
    uses = list(_uses(pool, slices))
    told: dict[str, Any] = {
        "records": [msgspec.to_builtins(each) for each in found.records],
        "uses": uses,
        "slices": [_slice(each) for each in slices],
        "container": pool.adopted,
        "version": max(pool.version, 0),
        "grants": pool.listed,
        "free": pool.free,
        "named": len(pool.named),
        "torn": found.torn,
        "damaged": found.damaged,
    }
    lines = [msgspec.json.encode(each).decode() for each in found.records]
    lines += [*map(str, uses), *told["slices"]]
    lines.append(
        f"{len(found.records)} records: container {pool.adopted or '(none)'} at version {told['version']}, "
        f"{pool.listed} grants, {len(pool.holdings)} in use, {pool.free} free or resting, {len(pool.named)} named"
    )
    lines += _faults(found)
    Printer(output, no_color=no_color).result(told, *lines)


def _faults(found: JournalContents) -> Iterator[str]:
    if found.torn:
        what = "damaged" if found.damaged else "torn"
        yield f"the last {found.torn} bytes are {what}: the next agent cuts them off"
    if found.damaged:
        yield "the journal is damaged, and more was written than is shown: with the next agent every address rests once"


def _uses(pool: Pool, slices: Slices) -> Iterator[Use]:
    for held in pool.holdings.values():
        yield Use(
            address=held.grant.address,
            container=held.owner.container_id,
            interface=held.owner.ifname,
            pod=f"{held.pod.namespace}/{held.pod.name}" if held.pod.name else "",
            note="which the status dropped" if held.dropped else "",
        )
    for slot, tenant in slices.tenants():
        yield Use(
            address=slot.address,
            container=tenant.owner.container_id,
            interface=tenant.owner.ifname,
            pod=tenant.podref,
            note="which another hand gave" if tenant.found else "",
        )


def _slice(told: Slice) -> str:
    closed = ", closed" if told.closed else ""
    return f"slice {told.prefix} of {told.range}{closed}: {len(told.held)} in use, {len(told.used)} used before"
