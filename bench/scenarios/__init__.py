"""All scenarios. A new one is a module here and an entry in this list."""

from bench.scenarios import agent, cluster, controller, core, kube, ledger, sim, slices

ALL = (
    agent.SCENARIO,
    core.SCENARIO,
    cluster.SCENARIO,
    controller.SCENARIO,
    kube.SCENARIO,
    ledger.SCENARIO,
    sim.SCENARIO,
    slices.SCENARIO,
    slices.LARGE,
)
