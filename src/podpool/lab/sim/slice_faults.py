"""Fault injection in a cluster with node slices: manual edits, third-party plugins and API errors."""

import ipaddress
from collections.abc import Callable
from functools import partial
from typing import Any

from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION, NODE_SLICE_POOLS
from podpool.lab.sim import nads
from podpool.lab.sim.actions import FaultInjector
from podpool.lab.sim.address_use_oracle import AddressUse
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.scenario import ScenarioEvent

THIRD_PARTY = "third-party"
"""The sandbox ID of third-party entries, and the machine of third-party Pods."""
ERROR_SHARE = 0.7
"""The share of patches that fail while API errors are injected."""


class SliceFaultInjector(FaultInjector):
    """Actions of people and of third-party plugins; what is deleted or changed is restored after a while."""

    # manual edits

    def delete_nad(self, event: ScenarioEvent) -> None:
        """Delete a NAD, and create it again later."""
        network = self._rng.choice(nads.networks(self._cluster.config))
        if nads.exists(self._cluster.store, network):
            nads.delete(self._cluster.store, network)
            self._after(event.amount, lambda: self._write_nad(network))

    def resize_slices(self, event: ScenarioEvent) -> None:
        """Change the slice size of a NAD, and change it back."""
        network = self._rng.choice(nads.sliced_networks(self._cluster.config))
        if nads.exists(self._cluster.store, network):
            self._write_nad(network, nads.SLICE_SIZES[1])
            self._after(event.amount, lambda: self._write_nad(network))

    def resize_range(self, event: ScenarioEvent) -> None:
        """Make the range of a NAD larger or smaller, perhaps with another slice size, and change it back."""
        network = self._rng.choice(nads.sliced_networks(self._cluster.config))
        if nads.exists(self._cluster.store, network):
            resized = self._rng.choice((network.larger, network.smaller))
            self._write_nad(resized, self._rng.choice(nads.SLICE_SIZES))
            self._after(event.amount, lambda: self._write_nad(network))

    def share_range(self, event: ScenarioEvent) -> None:
        """Remove the slice size of a NAD, so that all nodes share its range, for a while."""
        network = self._rng.choice(nads.sliced_networks(self._cluster.config))
        if nads.exists(self._cluster.store, network):
            self._write_nad(network, "")
            self._after(event.amount, lambda: self._write_nad(network))

    def _write_nad(self, network: AttachedNetwork, size: str = nads.SLICE_SIZES[0]) -> None:
        nads.write(self._cluster.store, network, size)

    def restore_api(self, event: ScenarioEvent) -> None:
        """Restore the API server from its copy; people create the NADs that are missing in it."""
        super().restore_api(event)
        for network in nads.networks(self._cluster.config):
            store = self._cluster.store
            complete = nads.exists(store, network) and (network.shared or nads.slice_size(store, network))
            if not complete:
                self._after(event.amount, partial(self._write_nad, network))

    def delete_ippools(self, event: ScenarioEvent) -> None:
        """Delete a node's IPPools."""
        for key in self._ippools_of(event.node):
            self._cluster.edited_ippools[key] = ""
            self._cluster.store.delete(self._cluster.store.registry.of(IP_POOLS), key)

    def delete_nodeslicepools(self, _: ScenarioEvent) -> None:
        """Delete the NodeSlicePools."""
        for key in list(self._cluster.store.objects(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.plural)):
            self._cluster.store.delete(self._cluster.store.registry.of(NODE_SLICE_POOLS), key)

    def replace_cut_off(self, event: ScenarioEvent) -> None:
        """Replace a machine that is cut off, and runs on for a while, by a new one under the same name."""
        if event.node in self._cluster.hosts:
            cut_off = self._cluster.cut_off(event.node)
            self._after(event.amount, lambda: self._cluster.end(cut_off))
            for pod in self._cluster.pods_on(event.node).values():
                self._cluster.delete_pod(pod)
            self._cluster.delete_node(event.node)
            self._after(event.amount / 2, lambda: self.join(event))

    # third-party plugins

    def third_party_entry(self, event: ScenarioEvent) -> None:
        """Write a third-party entry into a node's IPPools."""
        entry = {"id": THIRD_PARTY, "podref": f"default/{THIRD_PARTY}", "ifname": "net9"}
        index = str(1 + int(event.amount) % 6)
        self._edit_allocations(self._ippools_of(event.node), lambda allocations: {index: entry} | allocations)

    def third_party_removal(self, event: ScenarioEvent) -> None:
        """Remove all entries of a node's IPPools."""
        self._edit_allocations(self._ippools_of(event.node), lambda _: {})

    def third_party_pod(self, event: ScenarioEvent) -> None:
        """Assign the lowest free address of the shared range to a third-party Pod, for a while."""
        shared = next((each for each in nads.networks(self._cluster.config) if each.shared), None)
        key = f"kube-system/{shared.shared_pool}" if shared else ""
        pool = self._cluster.store.objects(IP_POOLS.group, IP_POOLS.plural).get(key)
        if shared is None or pool is None:
            return
        range_, allocations = ipaddress.ip_network(shared.range), pool["spec"]["allocations"]
        free = (offset for offset in range(1, range_.num_addresses - 1) if str(offset) not in allocations)
        offset, sandbox = next(free, None), f"{THIRD_PARTY}-{event.at}"
        if offset is None:
            return
        entry = {"id": sandbox, "podref": f"default/{sandbox}", "ifname": "net9"}
        self._edit_allocations([key], lambda allocations: {**allocations, str(offset): entry})
        now = self._cluster.loop.time()
        self._cluster.oracle.assign(AddressUse(str(range_[offset]), THIRD_PARTY, sandbox, f"default/{sandbox}", now))
        self._after(event.amount, lambda: self._remove_third_party_pod(key, sandbox))

    def _remove_third_party_pod(self, key: str, sandbox: str) -> None:
        self._cluster.oracle.release(THIRD_PARTY, sandbox)
        if key in self._cluster.store.objects(IP_POOLS.group, IP_POOLS.plural):
            self._edit_allocations([key], lambda found: {at: e for at, e in found.items() if e["id"] != sandbox})

    def _edit_allocations(self, keys: list[str], change: Callable[[Any], Any]) -> None:
        def edit(pool: Any) -> Any:  # noqa: ANN401  JSON
            return {**pool, "spec": {**pool["spec"], "allocations": change(pool["spec"]["allocations"])}}

        for key in keys:
            edited = self._cluster.store.update(self._cluster.store.registry.of(IP_POOLS), key, edit)
            self._cluster.edited_ippools[key] = edited["metadata"]["resourceVersion"]

    def _ippools_of(self, node: str) -> list[str]:
        found = self._cluster.store.objects(IP_POOLS.group, IP_POOLS.plural).items()
        return [key for key, pool in found if pool["metadata"].get("annotations", {}).get(NODE_ANNOTATION) == node]

    # API errors

    def inject_api_errors(self, event: ScenarioEvent) -> None:
        """Fail most patches of NodeSlices, IPPools and Leases with various codes, for a while."""
        self._cluster.api_errors.share = ERROR_SHARE
        self._after(event.amount, self._stop_api_errors)

    def _stop_api_errors(self) -> None:
        self._cluster.api_errors.share = 0.0
