"""All scenarios. A new one is a module here and an entry in this list."""

from bench.scenarios import agent, cluster, controller, core, kube, ledger, pool_yield, sim, slices

ALL = (
    agent.SCENARIO,
    core.SCENARIO,
    cluster.SCENARIO,
    controller.SCENARIO,
    kube.SCENARIO,
    ledger.SCENARIO,
    pool_yield.SCENARIO,
    sim.SCENARIO,
    slices.SCENARIO,
    slices.LARGE,
    slices.JOINING,
)
