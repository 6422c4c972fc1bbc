"""Every scenario there is. A new one is a module here, and its name in this list."""

from bench.scenarios import controller, core, kube, ledger, sim

ALL = (core.SCENARIO, controller.SCENARIO, kube.SCENARIO, ledger.SCENARIO, sim.SCENARIO)
