"""Every scenario there is. A new one is a module here, and its name in this list."""

from bench.scenarios import core, kube, ledger, sim

ALL = (core.SCENARIO, kube.SCENARIO, ledger.SCENARIO, sim.SCENARIO)
