"""Change streams: a change is computed once, in one transaction, and passed to all followers.

No task of its own: of the followers that wait, one is woken by a commit and computes what changed for all. So a client
that does not read its stream delays no other. Changes that a slow client has not read are merged: it receives the
latest state once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

import msgspec

from podpool.ledger.domain.allocator import SubnetTransaction
from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.token_scope import EVERYTHING, TokenScope
from podpool.ledger.messages import SubnetChange

_HEARTBEAT_INTERVAL = 15.0
"""A stream without changes sends a heartbeat at this interval."""

_Changes = Mapping[int, Mapping[str, SubnetChange] | None]
"""Of each subnet, the change as each cluster sees it; None if the subnet was deleted."""


class _Follower:
    """One stream: what was sent, and what is to be sent."""

    def __init__(self, cluster: str, scope: TokenScope) -> None:
        self.cluster = cluster
        self._scope = scope
        self.wake = asyncio.Event()
        self._sent: dict[int, SubnetChange] = {}
        self._pending: dict[int, SubnetChange | None] = {}

    def offer(self, changes: _Changes) -> None:
        """Queue what is worth an event."""
        for number, by_cluster in changes.items():
            change = by_cluster[self.cluster] if by_cluster is not None else None
            if change is not None and not self._scope.allows(change.state.subnet):
                continue
            last = self._pending.get(number) or self._sent.get(number)
            if change is not None and last is not None and change.state.revision < last.state.revision:
                continue  # read before the one that it has
            if number in self._pending or _is_event(self._sent.get(number), change):
                self._pending[number] = change
                self.wake.set()

    def take(self) -> list[SubnetChange]:
        """Return the events to send."""
        pending, self._pending = self._pending, {}
        events = []
        for number, change in pending.items():
            last = self._sent.pop(number, None)
            if change is not None:
                self._sent[number] = change
            if not _is_event(last, change):
                continue
            if change is not None:
                events.append(change)
            elif last is not None:
                events.append(msgspec.structs.replace(last, servable=(), removed=True))
        return events


class ChangeFeed:
    """The change streams of one replica."""

    def __init__(self, store: LedgerStore, *, clock: LedgerClock) -> None:
        self._store = store
        self._clock = clock
        self._followers: dict[_Follower, None] = {}
        self._waiting: dict[_Follower, None] = {}
        self._changed: dict[int, None] = {}
        self._computing = self._stopped = False
        self._unsubscribe: Callable[[], object] | None = None

    def stop(self) -> None:
        """End every stream."""
        self._stopped = True
        for follower in self._followers:
            follower.wake.set()

    async def follow(
        self, cluster: str, *, scope: TokenScope = EVERYTHING
    ) -> AsyncGenerator[SubnetChange | None, None]:
        """Yield the state of each subnet, then its changes, for a cluster; None is a heartbeat."""
        follower = _Follower(cluster, scope)
        self._add(follower)
        try:
            follower.offer(await self._store.read(lambda repo: self._read(repo, None, (cluster,))))
            while not self._stopped:
                if self._changed and not self._computing:
                    await self._compute()
                if events := follower.take():
                    for event in events:
                        yield event
                elif not await self._wait(follower):
                    yield None
        finally:
            self._remove(follower)

    async def _wait(self, follower: _Follower) -> bool:
        """Wait until there is something to do; returns False if nothing happened for a while."""
        if self._stopped or (self._changed and not self._computing):
            return True
        follower.wake.clear()
        self._waiting[follower] = None
        try:
            async with asyncio.timeout(_HEARTBEAT_INTERVAL):
                return await follower.wake.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(follower, None)

    async def _compute(self) -> None:
        """Read what has changed, once, for all followers."""
        numbers, self._changed, self._computing = self._changed, {}, True
        clusters = tuple(dict.fromkeys(follower.cluster for follower in self._followers))
        try:
            changes = await self._store.read(lambda repo: self._read(repo, numbers, clusters))
            for follower in self._followers:
                if follower.cluster in clusters:
                    follower.offer(changes)
                else:  # it came meanwhile, and may have read before this change
                    self._changed.update(numbers)
        except BaseException:
            self._changed = numbers | self._changed
            raise
        finally:
            self._computing = False
            self._wake_one()

    def _read(self, repo: Repository, numbers: Iterable[int] | None, clusters: Sequence[str]) -> _Changes:
        """Return these subnets, or all."""
        if numbers is None:
            numbers = [row.number for row in repo.subnets()]
        return {number: self._read_one(repo, number, clusters) for number in numbers}

    def _read_one(self, repo: Repository, number: int, clusters: Sequence[str]) -> Mapping[str, SubnetChange] | None:
        try:
            row = repo.subnet_by_number(number)
        except LookupError:  # deleted
            return None
        subnet = SubnetTransaction(repo, row, time=self._clock.now(repo))
        state = subnet.state
        return {each: SubnetChange(state=state, servable=tuple(subnet.servable(each))) for each in clusters}

    def _on_change(self, numbers: Sequence[int]) -> None:
        self._changed.update(dict.fromkeys(numbers))
        self._wake_one()

    def _wake_one(self) -> None:
        if self._changed and not self._computing:
            for follower in self._waiting:
                follower.wake.set()
                break

    def _add(self, follower: _Follower) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self._store.subscribe(self._on_change)
        self._followers[follower] = None

    def _remove(self, follower: _Follower) -> None:
        del self._followers[follower]
        if self._unsubscribe and not self._followers:
            self._unsubscribe()
            self._unsubscribe = None
            self._changed = {}
        self._wake_one()


def _is_event(last: SubnetChange | None, change: SubnetChange | None) -> bool:
    if change is None or last is None:
        return last is not change
    return _relevant(last) != _relevant(change)


def _relevant(change: SubnetChange) -> object:
    """Return what makes a change worth an event: not every grant, and not the time."""
    state, conditions = change.state, (change.state.exhausted, change.state.frozen, change.state.draining)
    return state.subnet, state.scaler, state.waiting, state.waiting_for_buffer, conditions, change.servable
