"""Change streams: a change is computed once, in a transaction of its network, and passed to all followers.

No task of its own: of the followers that wait, one is woken by a commit and computes what changed for all. So a client
that does not read its stream delays no other. Changes that a slow client has not read are merged: it receives the
latest state once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

import msgspec

from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.request_allocator import SubnetTransaction
from podpool.ledger.domain.token_scope import EVERYTHING, TokenScope
from podpool.ledger.messages import SubnetChange

_HEARTBEAT_INTERVAL = 15.0
"""A stream without changes sends a heartbeat at this interval."""

_Key = tuple[str, int]
"""The network and number of a subnet."""
_Changes = Mapping[_Key, Mapping[str, SubnetChange] | None]
"""Of each subnet, the change as each cluster sees it; None if the subnet was deleted."""


class _Follower:
    """One stream: what was sent, and what is to be sent."""

    def __init__(self, cluster: str, network: str, scope: TokenScope) -> None:
        self.cluster = cluster
        self.network = network
        """Empty for all networks."""
        self._scope = scope
        self.wake = asyncio.Event()
        self._sent: dict[_Key, SubnetChange] = {}
        self._pending: dict[_Key, SubnetChange | None] = {}

    def follows(self, network: str) -> bool:
        """Return whether it follows a network."""
        return self.network in ("", network)

    def offer(self, changes: _Changes) -> None:
        """Queue what is worth an event."""
        for key, by_cluster in changes.items():
            change = by_cluster[self.cluster] if by_cluster is not None else None
            if change is not None and not self._scope.allows(change.state.subnet):
                continue
            last = self._pending.get(key) or self._sent.get(key)
            if change is not None and last is not None and change.state.revision < last.state.revision:
                continue  # read before the one that it has
            if key in self._pending or _is_event(self._sent.get(key), change):
                self._pending[key] = change
                self.wake.set()

    def take(self) -> list[SubnetChange]:
        """Return the events to send."""
        pending, self._pending = self._pending, {}
        events = []
        for key, change in pending.items():
            last = self._sent.pop(key, None)
            if change is not None:
                self._sent[key] = change
            if not _is_event(last, change):
                continue
            if change is not None:
                events.append(change)
            elif last is not None:
                events.append(msgspec.structs.replace(last, servable=(), removed=True))
        return events


class _NetworkChanges:
    """The subnets of one network that have changed since their changes were computed."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.numbers: dict[int, None] = {}
        self.computing = False


class ChangeFeeds:
    """The change streams of one replica. Those of each network are computed on their own."""

    def __init__(self, store: LedgerStore, *, clock: LedgerClock) -> None:
        self._store = store
        self._clock = clock
        self._followers: dict[_Follower, None] = {}
        self._waiting: dict[_Follower, None] = {}
        self._changes: dict[str, _NetworkChanges] = {}
        self._stopped = False
        self._unsubscribe: Callable[[], object] | None = None

    def stop(self) -> None:
        """End every stream."""
        self._stopped = True
        for follower in self._followers:
            follower.wake.set()

    async def follow(
        self, cluster: str, *, network: str = "", scope: TokenScope = EVERYTHING
    ) -> AsyncGenerator[SubnetChange | None, None]:
        """Yield the state of each subnet of a network or all, then its changes, for a cluster; None is a heartbeat."""
        follower = _Follower(cluster, network, scope)
        self._add(follower)
        try:
            follower.offer(await self._store.query(lambda repo: self._read_all(repo, follower)))
            while not self._stopped:
                changes = self._next(follower)
                if changes is not None:
                    await self._compute(changes)
                if events := follower.take():
                    for event in events:
                        yield event
                elif not await self._wait(follower):
                    yield None
        finally:
            self._remove(follower)

    async def _wait(self, follower: _Follower) -> bool:
        """Wait until there is something to do; returns False if nothing happened for a while."""
        if self._stopped or self._next(follower) is not None:
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

    def _next(self, follower: _Follower) -> _NetworkChanges | None:
        """Return changes of a network that a follower waits for and that are not being computed."""
        pending = (each for each in self._changes.values() if each.numbers and not each.computing)
        return next((each for each in pending if follower.follows(each.network)), None)

    async def _compute(self, changes: _NetworkChanges) -> None:
        """Read what has changed in a network, once, for all its followers."""
        numbers, changes.numbers, changes.computing = changes.numbers, {}, True
        following = [each for each in self._followers if each.follows(changes.network)]
        clusters = tuple(dict.fromkeys(follower.cluster for follower in following))
        try:
            read = await self._store.read(
                lambda repo: _read(repo, numbers, clusters, time=self._clock.now(repo)), network=changes.network
            )
            for follower in self._followers:
                if not follower.follows(changes.network):
                    continue
                if follower.cluster in clusters:
                    follower.offer(read)
                else:  # it came meanwhile, and may have read before this change
                    changes.numbers.update(numbers)
        except BaseException:
            changes.numbers = numbers | changes.numbers
            raise
        finally:
            changes.computing = False
            self._wake_one(changes)

    def _read_all(self, repo: Repository, follower: _Follower) -> _Changes:
        numbers = [row.number for row in repo.subnets() if follower.follows(row.spec.network)]
        return _read(repo, numbers, (follower.cluster,), time=self._clock.now(repo))

    def _on_change(self, network: str, numbers: Sequence[int]) -> None:
        changes = self._changes.setdefault(network, _NetworkChanges(network))
        changes.numbers.update(dict.fromkeys(numbers))
        self._wake_one(changes)

    def _wake_one(self, changes: _NetworkChanges) -> None:
        """Wake one follower to compute the changes of a network."""
        if changes.numbers and not changes.computing:
            for follower in self._waiting:
                if follower.follows(changes.network):
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
            self._changes = {}
        for changes in self._changes.values():
            self._wake_one(changes)


def _read(repo: Repository, numbers: Iterable[int], clusters: Sequence[str], *, time: float) -> _Changes:
    """Return subnets as clusters see them."""
    changes: dict[_Key, Mapping[str, SubnetChange] | None] = {}
    for number in numbers:
        try:
            row = repo.subnet_by_number(number)
        except LookupError:  # deleted
            changes[repo.network, number] = None
            continue
        subnet = SubnetTransaction(repo, row, time=time)
        state = subnet.state
        changes[row.spec.network, number] = {
            each: SubnetChange(state=state, servable=tuple(subnet.servable(each))) for each in clusters
        }
    return changes


def _is_event(last: SubnetChange | None, change: SubnetChange | None) -> bool:
    if change is None or last is None:
        return last is not change
    return _relevant(last) != _relevant(change)


def _relevant(change: SubnetChange) -> object:
    """Return what makes a change worth an event: not every grant, and not the time."""
    state, conditions = change.state, (change.state.exhausted, change.state.frozen, change.state.draining)
    return state.subnet, state.scaler, state.waiting, state.waiting_for_buffer, conditions, change.servable
