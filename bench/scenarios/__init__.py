"""Every scenario there is. A new one is a module here, and its name in this list."""

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
