"""The node's pool: its network containers (NCs), their grants, and which sandbox uses which.

What must hold: a grant is in one state (`grant_table`); a sandbox has one grant of each NC and family; the address of a
sandbox is assigned to no other, whatever grant ID it comes back under. `apply` is the only way in which anything
changes, in the running agent and when the journal is replayed.

A node has one NC of its own, which the fence protects. Additional NCs come and go with the status.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from podpool.agent import records
from podpool.agent.grant_table import GrantState, GrantTable, rank_by_surplus
from podpool.agent.network_container import (
    interface_of,
    nc_families,
    node_gateway_of,
    parse_grants,
    with_known_grants,
)
from podpool.api.azure import NetworkContainer
from podpool.cni.protocol import Attachment
from podpool.core.addresses import parse_address
from podpool.core.cooldown_levels import CooldownInForce

DEPARTED_RETENTION = 3600.0
"""Seconds for which the last use of an address that left the pool is kept, in case it is granted again."""


class Pool:
    """The pool of one node; `is_programmed` returns whether the underlay has programmed an NC up to a version."""

    def __init__(self, is_programmed: Callable[[str, int], bool] = lambda _nc, _version: True) -> None:
        self._is_programmed = is_programmed
        self.boot_id = ""
        self.adopted_nc = ""
        """The ID of the node's own NC; only a quorum read decides it."""
        self.closed_ncs: set[str] = set()
        """NCs that were this node's and never are again."""
        self.nc: NetworkContainer | None = None
        """The node's own NC in the last accepted status."""
        self.additional_ncs: dict[str, NetworkContainer] = {}
        self.nc_families: tuple[records.NCFamily, ...] = ()
        """A sandbox gets one address of each."""
        self.unusable: dict[str, str] = {}
        """Listed grants that cannot be used, with the reason."""
        self.lost: set[str] = set()
        """Grants that sandboxes may use without a record."""
        self.incomplete = False
        """The journal is damaged or too old, and which grants are lost is not known yet."""
        self.grants = GrantTable()
        self.stopped = False
        """The last agent shut down cleanly."""
        self.cooldown_forced_at: float | None = None
        """When all addresses were last taken for used; grants listed later may have been used before it."""
        self.departed: dict[str, float] = {}
        """The last use of addresses that left the pool."""

    # Queries

    @property
    def version(self) -> int:
        """The highest version accepted; -1 before the first."""
        return self.nc.version if self.nc else -1

    @property
    def ncs(self) -> tuple[NetworkContainer, ...]:
        """All NCs of the last accepted status, the node's own first."""
        return ((self.nc,) if self.nc else ()) + tuple(self.additional_ncs.values())

    @property
    def granted(self) -> int:
        """The number of grants that the last accepted status lists."""
        return sum(len(each.ip_assignments) for each in self.ncs)

    @property
    def assigned(self) -> Mapping[str, records.GrantAssignment]:
        """The grants in use."""
        return self.grants.assigned

    @property
    def pending_release(self) -> Mapping[str, records.PoolGrant]:
        """The grants that were released and are still listed."""
        return self.grants.pending_release

    @property
    def free(self) -> int:
        """The number of grants neither assigned nor pending release."""
        return len(self.grants.unused) + len(self.grants.used)

    def assignments_of(self, attachment: Attachment) -> tuple[records.GrantAssignment, ...]:
        """Return what a sandbox uses."""
        return self.grants.assignments_of(attachment)

    def node_gateway(self, grant: records.PoolGrant) -> str:
        """Return the gateway of a Pod whose next hop is the node itself; empty if there is none."""
        nc = self.additional_ncs.get(grant.nc, self.nc)
        return node_gateway_of(nc, parse_address(grant.address).family) if nc else ""

    def state_of(self, grant: str, *, now: float, cooldown: float) -> GrantState | None:
        """Return the state of a grant; None when it is not in the pool."""
        stored = self.grants.stored_state(grant)
        if stored in (None, GrantState.ASSIGNED, GrantState.PENDING_RELEASE):
            return stored
        used = self.grants.used.get(grant)
        if used and used.since + cooldown > now:
            return GrantState.COOLING_DOWN
        programmed = self._programmed(used or self.grants.unused[grant])
        return GrantState.AVAILABLE if programmed else GrantState.PENDING_PROGRAMMING

    def next_available(
        self, *, now: float, cooldown: CooldownInForce, nc_family: records.NCFamily | None = None
    ) -> records.PoolGrant | None:
        """Return the grant that has been available for longest, of one NC and family or of all.

        If none is, the one that was used longest ago, if the shortest cooldown has passed.
        """
        unused, used = (
            next((g for g in self._known(each) if nc_family in (None, g.nc_family) and self._programmed(g)), None)
            for each in (self.grants.unused.values(), self.grants.used.values())
        )
        if used is None:
            return unused
        if unused:
            available_since = used.since + cooldown.level
            return used if available_since <= now and available_since < unused.since else unused
        return used if used.since + cooldown.shortest <= now else None

    def next_addresses(self, *, now: float, cooldown: CooldownInForce) -> tuple[records.PoolGrant, ...]:
        """Return what a new sandbox would get: one grant of each NC and family, or nothing."""
        found = [self.next_available(now=now, cooldown=cooldown, nc_family=each) for each in self.nc_families]
        chosen = tuple(each for each in found if each)
        return chosen if len(chosen) == len(found) else ()

    def releasable(self, *, now: float, cooldown: float) -> list[records.PoolGrant]:
        """Return what may be released: never used and newest first, then by time since the last use."""
        cooled, _ = self.grants.split_used(now=now, cooldown=cooldown)
        free = list(self._known((*reversed(self.grants.unused.values()), *cooled)))
        return free if len(self.nc_families) == 1 else rank_by_surplus(free)

    def cooling_down(self, *, now: float, cooldown: float) -> list[records.PoolGrant]:
        """Return the grants that cool down, for whatever reason."""
        _, cooling = self.grants.split_used(now=now, cooldown=cooldown)
        return cooling

    def next_cooled_down(self, *, now: float, cooldown: float) -> float | None:
        """Return when the next grant has cooled down; None when none cools down."""
        cooling = self.cooling_down(now=now, cooldown=cooldown)
        return cooling[0].since + cooldown if cooling else None

    def pending_programming(self) -> Iterator[records.PoolGrant]:
        """Return the free grants that the underlay has not programmed."""
        return (grant for grant in self.grants.free() if not self._programmed(grant))

    def recent_uses(self, *, now: float, cooldown: float) -> list[float]:
        """Return the last uses within the cooldown, of addresses not in use now, those that left since included."""
        cooling = self.cooling_down(now=now, cooldown=cooldown)
        others = [*(each for each in self.grants.pending_release.values() if each.used), *cooling]
        here = [each.since for each in others if not each.use_assumed]
        return [since for since in (*self.departed.values(), *here) if since + cooldown > now]

    def pending_release_cooled(self, *, now: float) -> float | None:
        """Return the seconds since the last use of any grant pending release; None when none was used."""
        return min((now - grant.since for grant in self.pending_release.values() if grant.used), default=None)

    def unassigned_lost(self) -> Iterator[records.PoolGrant]:
        """Return the free grants that a sandbox may use without a record."""
        return (each for each in self.grants.free() if each.id in self.lost)

    def holds(self, grant: str) -> bool:
        """Return whether a grant is free or in use, not pending release."""
        return self.grants.stored_state(grant) not in (None, GrantState.PENDING_RELEASE)

    def accepts(self, nc: NetworkContainer) -> bool:
        """Return whether this is news of the node's own NC, not older than what was accepted."""
        return nc.id == self.adopted_nc and self._is_news(nc)

    def accepts_additional(self, nc: NetworkContainer) -> bool:
        """Return whether this is news of an additional NC."""
        return nc.id not in {self.adopted_nc, *self.closed_ncs} and self._is_news(nc)

    def _is_news(self, nc: NetworkContainer) -> bool:
        known = self._accepted(nc.id)
        if known is None or nc.version > known.version:
            return True
        return nc.version == known.version and with_known_grants(nc, known) != known

    def _accepted(self, nc: str) -> NetworkContainer | None:
        return self.nc if nc == self.adopted_nc else self.additional_ncs.get(nc)

    def _programmed(self, grant: records.PoolGrant) -> bool:
        return self._is_programmed(grant.nc or self.adopted_nc, grant.version)

    def _known(self, grants: Iterable[records.PoolGrant]) -> Iterable[records.PoolGrant]:
        """Return the grants that no sandbox uses without a record."""
        if self.incomplete:
            return ()
        return (each for each in grants if each.id not in self.lost) if self.lost else grants

    # Transitions

    def apply(self, record: records.AnyRecord) -> None:
        """Apply a record; records of other parts change nothing."""
        self.stopped = isinstance(record, records.Stopped) or (isinstance(record, records.Started) and self.stopped)
        match record:
            case records.Assigned() | records.Unassigned() | records.ReleasePending():
                self._apply_use(record)
            case records.Started():
                self._start(record)
            case records.NCAdopted():
                self._adopt(record.nc)
                self.incomplete = self.incomplete or record.incomplete
            case records.NCAccepted():
                self._accept(record.nc, at=record.at)
            case records.NCRemoved():
                self.additional_ncs.pop(record.nc, None)
                self._remove_unlisted(record.nc, listed=frozenset())
                self._update_nc_families()
            case records.CooldownForced():
                self.lost |= {*record.lost}  # also those with a recorded user: it may be an earlier one
                self.incomplete = record.incomplete
                self._force_cooldown(at=record.at)
            case records.LostGrantsCleared():
                self.lost -= {*record.grants}
                self.grants.assume_used(at=record.at, grants=record.grants)
            case records.Snapshot():
                self._restore(record)

    def snapshot(self) -> records.Snapshot:
        """Return the whole pool as one record."""
        grants = self.grants
        return records.Snapshot(
            boot_id=self.boot_id,
            stopped=self.stopped,
            incomplete=self.incomplete,
            cooldown_forced_at=self.cooldown_forced_at,
            adopted_nc=self.adopted_nc,
            closed_ncs=tuple(sorted(self.closed_ncs)),
            nc=self.nc,
            additional_ncs=tuple(self.additional_ncs.values()),
            unused=tuple(grants.unused.values()),
            used=tuple(grants.used.values()),
            assigned=tuple(grants.assigned.values()),
            pending_release=tuple(grants.pending_release.values()),
            departed=dict(self.departed),
            unusable=dict(self.unusable),
            lost=tuple(sorted(self.lost)),
        )

    def _restore(self, record: records.Snapshot) -> None:
        self.boot_id, self.stopped, self.incomplete = record.boot_id, record.stopped, record.incomplete
        self.cooldown_forced_at, self.adopted_nc, self.nc = record.cooldown_forced_at, record.adopted_nc, record.nc
        self.closed_ncs, self.lost = set(record.closed_ncs), set(record.lost)
        self.additional_ncs = {each.id: each for each in record.additional_ncs}
        self.departed, self.unusable = dict(record.departed), dict(record.unusable)
        self.grants.restore(record)
        self._update_nc_families()

    def _apply_use(self, record: records.Assigned | records.Unassigned | records.ReleasePending) -> None:
        match record:
            case records.Assigned():
                self.grants.assign([self._assignment(each, record) for each in (record.grant, *record.more)])
            case records.Unassigned():
                self._unassign(record.grant, at=record.at)
            case records.ReleasePending():
                for grant in record.grants:
                    self.grants.release(grant)

    def _start(self, record: records.Started) -> None:
        first, rebooted = not self.boot_id, record.boot_id != self.boot_id
        self.boot_id, clean, self.stopped = record.boot_id, self.stopped, False
        if rebooted:
            self.cooldown_forced_at, self.lost, self.incomplete = None, set(), False
            self.grants.restart_clock(at=record.boot)
            self.departed = dict.fromkeys(self.departed, record.boot)
        self.incomplete = self.incomplete or record.damaged
        if record.damaged or (rebooted and not clean and not first):
            self._force_cooldown(at=record.boot)  # the lost tail of the journal may have used any of them
        for grant in list(self.assigned) if rebooted else ():
            self._unassign(grant, at=record.boot)  # no sandbox survives a reboot

    def _force_cooldown(self, *, at: float) -> None:
        self.cooldown_forced_at = at
        self.grants.assume_used(at=at)

    def _adopt(self, nc: str) -> None:
        if nc == self.adopted_nc:
            return
        self.closed_ncs |= {self.adopted_nc} - {""}
        self.adopted_nc, self.nc, self.unusable, self.lost = nc, None, {}, set()
        for each in ("", *self.additional_ncs):
            self._remove_unlisted(each, listed=frozenset())
        self.additional_ncs.clear()
        self._update_nc_families()

    def _accept(self, nc: NetworkContainer, *, at: float) -> None:
        known, own = self._accepted(nc.id), nc.id == self.adopted_nc
        newer = known is None or nc.version > known.version
        accepted = nc if known is None or newer else with_known_grants(nc, known)
        if own:
            self.nc = accepted
        else:
            self.additional_ncs[nc.id] = accepted
        if newer:
            self.departed = {each: since for each, since in self.departed.items() if at - since < DEPARTED_RETENTION}
            listed = frozenset(each.name for each in nc.ip_assignments)
            self.lost -= {each.name for each in known.ip_assignments} - listed if known else set()
            self._remove_unlisted("" if own else nc.id, listed=listed)
            self._add_listed(at=at)
        self._update_nc_families()

    def _update_nc_families(self) -> None:
        self.nc_families = tuple((self._tag(nc), family) for nc in self.ncs for family in nc_families(nc))

    def _tag(self, nc: NetworkContainer) -> str:
        return "" if nc is self.nc else nc.id

    def _assignment(self, grant_id: str, record: records.Assigned) -> records.GrantAssignment:
        grant = self.grants.unused.get(grant_id) or self.grants.used[grant_id]
        prefix, gateway = interface_of(self.additional_ncs.get(grant.nc, self.nc), grant.address)
        return records.GrantAssignment(
            grant=grant,
            attachment=record.attachment,
            pod=record.pod,
            network=record.network,
            prefix=prefix,
            gateway=gateway,
            netns=record.netns,
            added=record.added,
        )

    def _unassign(self, grant: str, *, at: float) -> None:
        if not self.assigned[grant].revoked:
            self.grants.unassign(grant, at=at, to=GrantState.COOLING_DOWN)
        elif any(each.name == grant for nc in self.ncs for each in nc.ip_assignments):
            # released by a third party, or unlisted and listed again
            self.grants.unassign(grant, at=at, to=GrantState.PENDING_RELEASE)
        else:
            self._depart([self.grants.unassign(grant, at=at, to=None)])
            self._add_listed(at=at)  # its address may be listed under a new grant ID

    def _remove_unlisted(self, nc: str, *, listed: frozenset[str]) -> None:
        self._depart(self.grants.remove_unlisted(nc, listed=listed))

    def _depart(self, grants: Iterable[records.PoolGrant]) -> None:
        self.departed |= {grant.address: grant.since for grant in grants if grant.used}

    def _add_listed(self, *, at: float) -> None:
        """Add the listed grants that are not in the pool yet."""
        self.unusable = {}
        taken = {grant.address: grant.id for grant in self.grants.all()}
        added: list[records.PoolGrant] = []
        for grant in self._listed(at=at):
            if self.grants.stored_state(grant.id):
                continue
            if grant.address in taken:
                self.unusable[grant.id] = f"{grant.address} is in the pool already, as {taken[grant.address]}"
                continue
            taken[grant.address] = grant.id
            added.append(self._with_last_use(grant))
        self.grants.add(added)

    def _with_last_use(self, grant: records.PoolGrant) -> records.PoolGrant:
        last, forced = self.departed.pop(grant.address, None), self.cooldown_forced_at
        if last is not None and (forced is None or last >= forced):
            return msgspec.structs.replace(grant, since=last, used=True)
        return grant if forced is None else grant.assume_used(at=forced)

    def _listed(self, *, at: float) -> Iterator[records.PoolGrant]:
        """Return the listed grants that can be used."""
        for nc in self.ncs:
            usable, unusable = parse_grants(nc, tag=self._tag(nc), at=at)
            self.unusable |= unusable
            yield from usable.values()
