"""What the agent knows of the node's own pool and subnet, put together for those who decide and those who tell."""

from collections.abc import Callable, Mapping

import msgspec

from podpool.agent.demand import Demand
from podpool.agent.deps import Ground
from podpool.agent.errors import not_yet, why_none
from podpool.agent.fence import own_report, strange
from podpool.agent.nnc_patch import View
from podpool.agent.nnc_status import OwnConfig
from podpool.agent.records import Owner, PodName
from podpool.agent.report import listing_of, statement
from podpool.agent.scaling_modes import Terms
from podpool.agent.state import Book
from podpool.agent.subnets import Subnets
from podpool.api.azure import AgentReport, NodeNetworkConfig
from podpool.api.builtin import Node, Pod
from podpool.kube.cache import Store
from podpool.kube.object_informer import Mirror


class Outlook:
    """Looks at the parts when asked; keeps nothing."""

    def __init__(  # noqa: PLR0913  everything that there is to look at
        self,
        ground: Ground,
        *,
        book: Book,
        config: OwnConfig,
        subnets: Subnets,
        demand: Demand,
        pods: Store[Pod],
        own_node: Mirror[Node],
        own_config: Mirror[NodeNetworkConfig],
        waiting: Callable[[], Mapping[Owner, PodName]],
        boot_id: str,
    ) -> None:
        self._ground = ground
        self._book = book
        self._config = config
        self._subnets = subnets
        self._demand = demand
        self._pods = pods
        self._own_node = own_node
        self._own_config = own_config
        self._waiting = waiting
        self._boot_id = boot_id

    def view(self) -> View | None:
        """Put together what a decision depends on; None while something is not known."""
        config, container, terms = self._config.newest, self._config.own(), self.terms()
        known = self._pods.synced.is_set() and self._book.pool.container is not None
        if not known or config is None or container is None or terms is None:
            return None
        now, rest = self._ground.clock.boot(), self._ground.settings.cooldown_in_force(exhausted=terms.exhausted)
        reported = own_report(config)
        return View(
            spec=config.spec,
            reported=reported,
            terms=terms,
            primaries=sum(bool(each.primary_ip) for each in config.status.network_containers),
            listed=self._book.pool.listed,
            named=tuple(self._book.pool.named),
            releasable=tuple(grant.id for grant in self._book.pool.releasable(now=now, rest=rest)),
            assigned=sum(not each.dropped for each in self._book.pool.holdings.values()),
            resting=self._book.pool.resting(now=now, rest=rest),
            unserved=self._demand.unserved(
                self._pods.values(),
                holdings=self._book.pool.holdings.values(),
                waiting=self._waiting(),
            ),
            lanes=max(len(self._book.pool.lanes), 1),
            mode=self._ground.mode,
            used_lately=self._book.pool.used_lately(now=now, cooldown=self._ground.settings.cooldown),
            answered_short=self._config.answered_short(),
            boot_id=self._boot_to_report(reported),
            version=self._book.pool.version,
            told_version=min(self._config.told_version, self._book.pool.version),
            statement=statement(config, self._book.pool, asked=self._asked_for(reported)),
        )

    def statement(self) -> AgentReport | None:
        """Word what must be told although the NNC does not show our container, or nothing can be decided yet."""
        config, pool = self._config.newest, self._book.pool
        if config is None:
            return None
        reported = own_report(config)
        said = statement(config, pool, asked=self._asked_for(reported))
        if said.listed == reported.listed and not strange(config, pool=pool):
            return None
        version, boot_id = max(pool.version, 0), self._boot_to_report(reported)
        told = msgspec.structs.replace(said.into(reported), version=version, boot_id=boot_id)
        return None if told == reported else told

    def _asked_for(self, reported: AgentReport) -> int:
        return listing_of(self._own_config.object) or reported.listed

    def _boot_to_report(self, reported: AgentReport) -> str:
        node = self._own_node.object
        return self._boot_id if node and node.boot_id == self._boot_id else reported.boot_id

    def terms(self) -> Terms | None:
        """Tell by which settings the node asks; None while they are not known."""
        config: NodeNetworkConfig | None = self._config.newest
        return self._subnets.terms(config.status.scaler) if config else None

    def rest(self) -> float:
        """Tell for how long an address rests now."""
        terms = self.terms()
        return self._ground.settings.cooldown_in_force(exhausted=terms.exhausted if terms else False)

    def not_yet(self) -> str | None:
        """Say what the agent needs before it can give any address of the pool; None when it has all of it."""
        return not_yet(self._ground.node, self._book, settings=self._ground.settings)

    def why_none(self) -> str:
        """Say why there is no address."""
        config = self._config.newest
        return why_none(
            self._ground.node,
            self._book,
            requested=config.spec.requested if config else None,
            resting=sum(1 for _ in self._book.pool.not_rested(now=self._ground.clock.boot(), rest=self.rest())),
            settings=self._ground.settings,
        )
