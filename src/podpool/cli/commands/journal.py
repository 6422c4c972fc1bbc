"""`podpool agent journal show`: each record as a line, then the resulting state."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from podpool.agent.journal_reader import JournalContents
from podpool.agent.pool import Pool
from podpool.agent.records import AnyRecord
from podpool.agent.secondary.slices import Slice, Slices
from podpool.agent.state import read_agent_journal
from podpool.cli.output import Printer
from podpool.core.errors import InvalidInput
from podpool.runtime.disk import LocalDisk


class JournalAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """An address in use by a sandbox."""

    address: str
    sandbox: str
    interface: str
    pod: str
    note: str = ""

    def __str__(self) -> str:
        pod = f" for {self.pod}" if self.pod else ""
        note = f", {self.note}" if self.note else ""
        return f"{self.address} is assigned to {self.sandbox} {self.interface}{pod}{note}"


def show_journal(*, state: str, output: str, no_color: bool) -> None:
    """Print the journal. It is only read, so its agent may run."""
    if not Path(state).is_dir():
        raise InvalidInput("--state", state, "is not a directory")
    contents, pool, slices = read_agent_journal(LocalDisk(Path(state))), Pool(), Slices()
    for record in contents.records:
        pool.apply(record)
        slices.apply(record)
    assignments = list(_assignments(pool, slices))
    slice_lines = [_slice(each) for each in slices]
    result = {
        "records": [msgspec.to_builtins(each) for each in contents.records],
        "assignments": assignments,
        "slices": slice_lines,
        "nc": pool.adopted_nc,
        "version": max(pool.version, 0),
        "grants": pool.granted,
        "free": pool.free,
        "pending_release": len(pool.pending_release),
        "torn_bytes": contents.torn,
        "damaged": contents.damaged,
    }
    counts = (
        f"{len(contents.records)} records: NC {pool.adopted_nc or '(none)'} at version {result['version']}, "
        f"{pool.granted} grants, {len(pool.assigned)} assigned, {pool.free} free or cooling down, "
        f"{len(pool.pending_release)} pending release"
    )
    lines = [msgspec.json.encode(each).decode() for each in contents.records]
    lines += [*map(str, assignments), *slice_lines, counts, *_faults(contents)]
    Printer(output, no_color=no_color).result(result, *lines)


def _faults(contents: JournalContents[AnyRecord]) -> Iterator[str]:
    if contents.torn and not contents.damaged:
        yield f"the last {contents.torn} bytes are torn: the next agent truncates them"
    if contents.damaged:
        where = f" ({contents.damage})" if contents.damage else ""
        yield f"the journal is damaged{where}, later records do not count: the next agent rebuilds its state"


def _assignments(pool: Pool, slices: Slices) -> Iterator[JournalAssignment]:
    for assignment in pool.assigned.values():
        pod = assignment.pod
        yield JournalAssignment(
            address=assignment.grant.address,
            sandbox=assignment.attachment.container_id,
            interface=assignment.attachment.ifname,
            pod=f"{pod.namespace}/{pod.name}" if pod.name else "",
            note="no longer listed in the NNC" if assignment.revoked else "",
        )
    for slot, holder in slices.holders():
        yield JournalAssignment(
            address=slot.address,
            sandbox=holder.attachment.container_id,
            interface=holder.attachment.ifname,
            pod=holder.podref,
            note="inferred from the IPPool or the Pod" if holder.inferred else "",
        )


def _slice(found: Slice) -> str:
    closed = ", closed" if found.closed else ""
    return (
        f"slice {found.prefix} of {found.range}{closed}: {len(found.assigned)} assigned, {len(found.used)} used before"
    )
