"""Every scenario there is. A new one is a module here, and its name in this list."""

from bench.scenarios import core, sim

ALL = (core.SCENARIO, sim.SCENARIO)
