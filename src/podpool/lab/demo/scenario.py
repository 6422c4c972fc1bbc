"""The scenario of the demo, in steps. A step changes the cluster, waits for the effect, and reports what it measured.

A step fails if the effect does not appear within its timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.core.scaling import target
from podpool.core.settings import Settings, parse_settings
from podpool.lab.demo.cluster_operations import DemoDriver
from podpool.lab.demo.settings import BURST_PODS, INITIAL_PODS

MULTI_NETWORK_PODS, INTERFACES = 6, 10
STEP_TIMEOUT = 60.0
SHORTAGE_TIMEOUT = 12.0


class StepTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses of the scenario, in seconds."""

    between_steps: float
    between_waves: float


TIMINGS = {
    "full": StepTiming(between_steps=8.0, between_waves=1.5),
    "short": StepTiming(between_steps=0.0, between_waves=0.2),
}


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step."""

    succeeded: bool
    text: str


class ScenarioStep(msgspec.Struct, frozen=True):
    """A step of the scenario."""

    title: str
    about: str
    run: Callable[[DemoDriver, StepTiming], Awaitable[StepOutcome]]


async def steady_state(driver: DemoDriver, _: StepTiming) -> StepOutcome:
    """Create a few Pods on every node; delete those of an earlier scenario."""
    wanted = INITIAL_PODS * len(driver.alive)
    await driver.delete_pods(driver.scenario_pods()[wanted:])
    succeeded = await driver.until(lambda: len(driver.scenario_pods()) <= wanted, within=STEP_TIMEOUT)
    await _create_up_to(driver, wanted)
    succeeded = succeeded and await _all_running(driver)
    return _outcome(driver, succeeded, f"every Pod has an address; {driver.state().idle} more are idle on the nodes")


async def burst(driver: DemoDriver, _: StepTiming) -> StepOutcome:
    """Create many Pods on one node at once."""
    node = next(iter(driver.alive))
    started, before = asyncio.get_running_loop().time(), driver.request_count(node)
    await driver.create_pods(BURST_PODS, node=node)
    succeeded = await _all_running(driver)
    seconds, count = asyncio.get_running_loop().time() - started, driver.request_count(node) - before
    requests = "1 request" if count == 1 else f"{count} requests"
    text = f"{BURST_PODS} Pods on {node} had addresses after {seconds:.1f} s, with {requests}"
    return _outcome(driver, succeeded, text)


async def growth(driver: DemoDriver, timing: StepTiming) -> StepOutcome:
    """Create Pods until full batches would fill the subnet."""
    state = driver.state()
    counts = {node.name: node.running + node.waiting for node in state.nodes if node.alive}
    capacity = state.subnet.capacity if state.subnet else 0
    wanted = pods_that_fill(capacity, counts, parse_settings(driver.settings.overrides))
    succeeded = await _create_in_waves(driver, wanted, timing)
    text = f"with B={driver.settings.batch} on every node the subnet would be full at {wanted} Pods"
    return _outcome(driver, succeeded, text)


async def scarcity(driver: DemoDriver, timing: StepTiming) -> StepOutcome:
    """Create more Pods than that."""
    before = driver.state()
    subnet = before.subnet
    usable = subnet.capacity - subnet.reserved_for_primaries - len(driver.alive) if subnet else 0
    wanted = usable * 95 // 100
    if driver.settings.scarcity == "off":
        return await _shortage(driver, wanted)
    succeeded = await _create_in_waves(driver, wanted, timing)
    after = driver.state()
    text = (
        f"{after.running} Pods run instead of {before.running}: batch {before.batch} -> {after.batch}, "
        f"idle addresses {before.idle} -> {after.idle}"
    )
    return _outcome(driver, succeeded, text)


async def _shortage(driver: DemoDriver, wanted: int) -> StepOutcome:
    """Show the shortage without a scarcity policy."""
    await _create_up_to(driver, wanted)
    await _all_running(driver, within=SHORTAGE_TIMEOUT)
    state = driver.state()
    await driver.delete_pods([pod for pod in driver.pods.cache.values() if not pod.status.pod_ips])
    counts = f"{state.running} Pods run, {state.waiting} wait while {state.idle} addresses are idle"
    text = f"with --scarcity off no address returns: {counts}"
    return StepOutcome(succeeded=await _all_running(driver), text=text)


async def slices(driver: DemoDriver, _: StepTiming) -> StepOutcome:
    """Create Pods with many interfaces in a secondary network."""
    deleted = [pod for pod in driver.pods.cache.values() if pod.status.pod_ips][-2 * MULTI_NETWORK_PODS :]
    await driver.delete_pods(deleted)
    await driver.create_network()
    succeeded = await driver.until(lambda: driver.nodes_with_slice() >= set(driver.alive), within=STEP_TIMEOUT)
    succeeded = succeeded and await driver.until(
        lambda: not {pod.key for pod in deleted} & set(driver.pods.cache), within=STEP_TIMEOUT
    )
    started = asyncio.get_running_loop().time()
    for pod in deleted[::2]:  # their nodes have free addresses, also in an exhausted subnet
        await driver.create_pods(1, node=pod.spec.node_name, interfaces=INTERFACES)
    succeeded = succeeded and await _all_running(driver)
    seconds = asyncio.get_running_loop().time() - started
    count = sum(len(pod.secondary_addresses) for pod in driver.pods.cache.values())
    text = f"each node has a slice; {count} addresses were assigned in {seconds:.1f} s, without a lock"
    return _outcome(driver, succeeded and count >= MULTI_NETWORK_PODS * INTERFACES, text)


async def node_loss(driver: DemoDriver, _: StepTiming) -> StepOutcome:
    """Destroy a node."""
    if len(driver.alive) < 2:
        return StepOutcome(succeeded=True, text="there is only one node, so none is destroyed")
    node = list(driver.alive)[-1]
    held = next(each.held for each in driver.state().nodes if each.name == node)
    await driver.destroy_node(node)
    most_cooling_down = 0

    def released() -> bool:
        nonlocal most_cooling_down  # for a few seconds, which may end before the NNC is seen as deleted
        state = driver.state()
        most_cooling_down = max(most_cooling_down, state.subnet.cooling_down if state.subnet else 0)
        return most_cooling_down >= held and all(each.held == 0 for each in state.nodes if each.name == node)

    delay = parse_settings(driver.settings.overrides).node_gc_delay
    succeeded = await driver.until(released, within=STEP_TIMEOUT + delay)
    text = (
        f"{node} was destroyed with {held} addresses; node GC released them after {delay:.0f} s "
        "(11 min in a cluster), and they cool down"
    )
    return _outcome(driver, succeeded, text)


async def restarts(driver: DemoDriver, _: StepTiming) -> StepOutcome:
    """Kill an agent and the controller."""
    before = _address_by_uid(driver)
    agent, controller = driver.cluster.agents[next(iter(driver.alive))], driver.cluster.controller
    starts = agent.starts
    agent.kill()
    if controller:
        controller.kill()
    pods = driver.pods.cache.values()
    # Pods of the secondary network stay, to be inspected after the scenario
    await driver.delete_pods([pod for pod in pods if pod.status.pod_ips and not pod.secondary_networks][-4:])
    await driver.create_pods(2)

    def restarted() -> bool:
        return agent.starts > starts and agent.ready.is_set() and bool(controller and controller.ready.is_set())

    succeeded = await driver.until(restarted, within=STEP_TIMEOUT) and await _all_running(driver)
    after = _address_by_uid(driver)
    kept = all(after[uid] == before[uid] for uid in before if uid in after)
    text = "an agent and the controller were killed and restarted; no Pod lost its address"
    return _outcome(driver, succeeded and kept, text)


STEPS = (
    ScenarioStep("Steady state", f"{INITIAL_PODS} Pods on every node", steady_state),
    ScenarioStep("Burst", f"{BURST_PODS} Pods on one node at once", burst),
    ScenarioStep("Growth", "more Pods, until full batches would fill the subnet", growth),
    ScenarioStep("Scarcity", "more Pods; batches shrink and idle addresses return", scarcity),
    ScenarioStep(
        "Slices", f"a secondary network; {MULTI_NETWORK_PODS} Pods with {INTERFACES} interfaces in it", slices
    ),
    ScenarioStep("Node loss", "a node is destroyed; node GC releases its addresses", node_loss),
    ScenarioStep("Restarts", "an agent and the controller are killed under load", restarts),
)


def pods_that_fill(capacity: int, pods: Mapping[str, int], settings: Settings) -> int:
    """Return with how many Pods, spread evenly over all but the busiest node, batches or Pods fill subnet or nodes."""
    counts, scaler, maximum = dict(pods), settings.scaler, settings.node_maximum

    def total() -> int:
        return sum(target(demand=n, scaler=scaler, primaries=1, maximum=maximum) + 1 for n in counts.values())

    while counts and total() <= capacity:
        fewest = min(counts, key=lambda name: (counts[name], name))
        if counts[fewest] >= maximum - 1:
            break
        counts[fewest] += 1
    return sum(counts.values())


async def _create_up_to(driver: DemoDriver, wanted: int) -> None:
    existing = len(driver.pods.cache)
    if wanted > existing:
        await driver.create_pods(wanted - existing)


async def _create_in_waves(driver: DemoDriver, wanted: int, timing: StepTiming) -> bool:
    succeeded = True
    while succeeded and (existing := len(driver.pods.cache)) < wanted:
        await driver.create_pods(min(wanted - existing, max(4, wanted // 8)))
        succeeded = await _all_running(driver)
        await asyncio.sleep(timing.between_waves)
    return succeeded


async def _all_running(driver: DemoDriver, *, within: float = STEP_TIMEOUT) -> bool:
    def all_running() -> bool:
        state = driver.state()
        return state.waiting == 0 and state.running >= 1 and state.running == len(driver.pods.cache)

    return await driver.until(all_running, within=within)


def _address_by_uid(driver: DemoDriver) -> dict[str, str]:
    pods = driver.pods.cache.values()
    return {pod.metadata.uid: pod.status.pod_ips[0].ip for pod in pods if pod.status.pod_ips}


def _outcome(driver: DemoDriver, succeeded: bool, text: str) -> StepOutcome:  # noqa: FBT001  the result
    if succeeded:
        return StepOutcome(succeeded=True, text=text)
    error = next(iter(driver.kubelets.errors.values()), "")
    reason = f"; error of the plugin: {error}" if error else ""
    return StepOutcome(succeeded=False, text=f"timed out: {driver.state().waiting} Pods wait for an address{reason}")
