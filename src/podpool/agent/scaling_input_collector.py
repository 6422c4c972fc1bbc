"""Collects what the scaling decision and the error messages depend on; stores nothing."""

import msgspec

from podpool.agent.demand import PodDemand
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.fence import own_report, shows_other_nc
from podpool.agent.informers import AgentInformers
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.refusal_reasons import no_address_reason, not_ready_reason, shortage_message
from podpool.agent.scaling_decision import (
    InventoryReport,
    ScalingInputs,
    ScalingParameters,
    inventory_report,
    requested_inventory,
)
from podpool.agent.state import AgentState
from podpool.api.azure import AgentReport, NodeNetworkConfig
from podpool.core.cooldown_levels import CooldownInForce


class InputCollector:
    """Reads pool, NNC, Pods and subnet on demand."""

    def __init__(
        self,
        deps: AgentDeps,
        options: AgentOptions,
        state: AgentState,
        nnc: NNCTracker,
        informers: AgentInformers,
        demand: PodDemand,
    ) -> None:
        self._deps = deps
        self._mode = options.mode
        self._state = state
        self._nnc = nnc
        self._informers = informers
        self._demand = demand

    def collect(self) -> ScalingInputs | None:
        """Return what a decision depends on; None while something is not known."""
        nnc, pool, parameters = self._nnc.newest, self._state.pool, self.parameters()
        pods = self._informers.pods.cache
        known = pods.synced.is_set() and pool.nc is not None and self._nnc.own_nc() is not None
        if not known or nnc is None or parameters is None:
            return None
        settings = self._deps.settings
        now, cooldown, reported = self._deps.clock.boot(), parameters.cooldown, own_report(nnc)
        kept, briefly = (
            sum(not grant.use_assumed for grant in pool.cooling_down(now=now, cooldown=each))
            for each in (cooldown.retention, cooldown.shortest)
        )
        return ScalingInputs(
            spec=nnc.spec,
            reported=reported,
            parameters=parameters,
            primaries=sum(bool(each.primary_ip) for each in nnc.status.network_containers),
            granted=pool.granted,
            pending_release=tuple(pool.pending_release),
            releasable=tuple(grant.id for grant in pool.releasable(now=now, cooldown=cooldown.retention)),
            assigned=sum(not each.revoked for each in pool.assigned.values()),
            cooling_down=kept,
            cooling_briefly=briefly,
            unserved=self._demand.unserved(pods.values(), pool.assigned.values()),
            withheld=self._withheld(),
            addresses_per_pod=max(len(pool.nc_families), 1),
            mode=self._mode,
            recently_used=len(pool.recent_uses(now=now, cooldown=settings.cooldown_filling)),
            answered_short=self._nnc.answered_short(),
            boot_id=self._boot_id_to_report(reported),
            version=pool.version,
            reported_version=min(self._nnc.reported_version, pool.version),
            inventory=self._inventory(nnc, reported),
        )

    def identity_report(self) -> AgentReport | None:
        """Return the report to write while nothing can be decided: a reply to an inventory request, or our own NC."""
        nnc, pool = self._nnc.newest, self._state.pool
        if nnc is None:
            return None
        reported = own_report(nnc)
        inventory = self._inventory(nnc, reported)
        if inventory.inventory == reported.inventory and not shows_other_nc(nnc, pool=pool):
            return None
        version, boot_id = max(pool.version, 0), self._boot_id_to_report(reported)
        report = msgspec.structs.replace(inventory.into(reported), version=version, boot_id=boot_id)
        return None if report == reported else report

    def parameters(self) -> ScalingParameters | None:
        """Return what the subnet prescribes; None while it is not known."""
        nnc = self._nnc.newest
        return self._informers.subnet.parameters(nnc.status.scaler) if nnc else None

    def cooldown(self) -> CooldownInForce:
        """Return the cooldown in force: the longest while nothing is known about the subnet."""
        parameters, levels = self.parameters(), self._deps.settings.cooldown_levels
        return parameters.cooldown if parameters else levels.in_force(levels.roomy)

    def not_ready_reason(self) -> str | None:
        """Return what the agent needs before it can assign any address of the pool; None when it has all of it."""
        refused = self._nnc.refused_reason()
        return refused or not_ready_reason(self._deps.node, self._state, settings=self._deps.settings)

    def no_address_reason(self) -> str:
        """Return why there is no address."""
        nnc, now = self._nnc.newest, self._deps.clock.boot()
        return self._nnc.refused_reason() or no_address_reason(
            self._deps.node,
            self._state,
            requested=nnc.spec.requested if nnc else None,
            cooling_down=len(self._state.pool.cooling_down(now=now, cooldown=self.cooldown().shortest)),
            settings=self._deps.settings,
        )

    def shortage_message(self) -> str:
        """Return why Pods wait for addresses, without numbers."""
        return shortage_message(self._state)

    def _withheld(self) -> int:
        """Return the number of withheld addresses; the Pods that show lost ones count as unserved already."""
        if not self._state.lost_withheld:
            return 0
        shown = {each.ip for pod in self._informers.pods.cache.values() for each in pod.status.pod_ips}
        return sum(each.address not in shown for each in self._state.pool.unassigned_lost())

    def _inventory(self, nnc: NodeNetworkConfig, reported: AgentReport) -> InventoryReport:
        requested = requested_inventory(self._informers.nnc.object) or reported.inventory
        return inventory_report(nnc, self._state.pool, journal=self._state.journal_id, requested=requested)

    def _boot_id_to_report(self, reported: AgentReport) -> str:
        """Return our boot ID once the Node reports it."""
        node = self._informers.node.object
        return self._deps.boot_id if node and node.boot_id == self._deps.boot_id else reported.boot_id
