"""The agent's NodeNetworkConfig: the newest that it has seen, from wherever, and what it changes in the book.

A watch may be late, so an older version is not believed; a quorum read is, unless something newer was seen while it was
under way. Which container is this node's is decided on quorum reads alone (`confirmation`). A name in the spec is
consent that somebody gave: what it names is never given to a Pod again, whoever wrote it there.
"""

import asyncio
from collections.abc import Sequence

from podpool.agent.fence import own_report
from podpool.agent.notices import Tell
from podpool.agent.records import Accepted, Named, Parted
from podpool.agent.state import Book
from podpool.api.azure import AgentReport, NetworkConfigStatus, NetworkContainer, NodeNetworkConfig
from podpool.runtime.clock import Clock

GRACE = 1.0
"""Seconds after which a status that did not change counts as the answer: it stays the same when it was short before."""


class OwnConfig:
    """What the API server has of this node, as far as the agent knows."""

    def __init__(self, book: Book, clock: Clock, tell: Tell) -> None:
        self.newest: NodeNetworkConfig | None = None
        self.told_version = 0
        """The highest version that our annotation was ever seen to tell."""
        self.inherited: AgentReport | None = None
        """What our annotation told before this agent first wrote it; None until then."""
        self._book = book
        self._clock = clock
        self._tell = tell
        self._asked: tuple[float, NetworkConfigStatus] | None = None
        self._told: set[str] = set()

    @property
    def version(self) -> str:
        """The version of the newest, as a precondition names it."""
        return self.newest.metadata.resource_version if self.newest else ""

    def see(self, config: NodeNetworkConfig | None, *, believed: bool = False) -> None:
        """Look at what was read; `believed` whatever its version, because a quorum read found it."""
        if config and self.newest and _older(config, self.newest):
            if not believed:
                return
            self._tell("the NNC is older than it was: the API server was restored from an older copy, and is believed")
        self.newest = config
        container = self.own()
        if config and container:
            self.told_version = max(self.told_version, own_report(config).version)
            self._accept(container)
            self._accept_beside(config.status.network_containers)
            self._heed(config.spec.released)

    def wrote(self, on: NodeNetworkConfig | None) -> None:
        """Remember what the first report that we wrote took the place of."""
        if self.inherited is None and on:
            self.inherited = own_report(on)

    def see_unless_moved(self, config: NodeNetworkConfig, *, since: NodeNetworkConfig | None) -> None:
        """Believe an answer, unless something was seen while it was under way: the server may be another by now."""
        if self.newest is since:
            self.see(config, believed=True)

    def own(self) -> NetworkContainer | None:
        """Find our own container in it."""
        containers = self.newest.status.network_containers if self.newest else ()
        return next((each for each in containers if each.id == self._book.pool.adopted), None)

    def asked(self) -> None:
        """Remember what the status was when a request was made: only another one can answer it."""
        if self.newest:
            self._asked = (asyncio.get_running_loop().time(), self.newest.status)

    def answer_due(self) -> float | None:
        """Tell until when an unchanged status is not the answer yet, by the loop's time; None when it is."""
        if self._asked is None or self.newest is None:
            return None
        at, status = self._asked
        pending = status == self.newest.status and asyncio.get_running_loop().time() < at + GRACE
        return at + GRACE if pending else None

    def answered_short(self) -> bool | None:
        """Tell whether a status answered the last request with less; None before it was answered."""
        container = self.own()
        if self.newest is None or container is None or self.answer_due() is not None:
            return None
        ours = (container.id, *self._book.pool.beside)
        shown = [each for each in self.newest.status.network_containers if each.id in ours]
        usable = sum(len(each.ip_assignments) for each in shown) - len(self._book.pool.named)
        return container.status == "NCUpdateSubnetFullError" and usable < self.newest.spec.requested

    def _accept_beside(self, shown: Sequence[NetworkContainer]) -> None:
        """Take further containers as they are shown; those whose addresses are not listed one by one are not ours."""
        pool = self._book.pool
        others = {
            each.id: each for each in shown if each.id not in ("", pool.adopted) and each.assignment_mode == "dynamic"
        }
        for gone in [each for each in pool.beside if each not in others]:
            self._book.write(Parted(container=gone))
        for container in others.values():
            if pool.accepts_beside(container):
                self._take(container)

    def _accept(self, container: NetworkContainer) -> None:
        if self._book.pool.accepts(container):
            self._take(container)

    def _take(self, container: NetworkContainer) -> None:
        pool = self._book.pool
        self._book.write(Accepted(container=container, at=self._clock.boot()))
        for grant, reason in pool.left_out.items():
            self._tell_once(grant, f"grant {grant} of container {container.id} is left out: {reason}")
        for grant, holding in pool.holdings.items():
            if holding.dropped:
                where = f"{holding.grant.address} of sandbox {holding.owner.container_id}"
                self._tell_once(grant, f"the status of container {container.id} dropped {where}, which is in use")

    def _heed(self, names: tuple[str, ...]) -> None:
        pool = self._book.pool
        foreign = tuple(name for name in names if pool.knows(name) and not self._let_go_already(name))
        if foreign:
            self._book.write(Named(grants=foreign, version=pool.version, boot_id=pool.boot_id))
            self._tell(f"grants {', '.join(foreign)} were named for release by another hand: no Pod gets them any more")

    def _let_go_already(self, grant: str) -> bool:
        holding = self._book.pool.holdings.get(grant)
        return holding is not None and holding.dropped

    def _tell_once(self, grant: str, sentence: str) -> None:
        if grant not in self._told:
            self._told.add(grant)
            self._tell(sentence)


def _older(config: NodeNetworkConfig, than: NodeNetworkConfig) -> bool:
    one, other = config.metadata.resource_version, than.metadata.resource_version
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
