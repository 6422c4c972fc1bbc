"""The story, in acts. Each says what it is about to show, does it, and says what came of it.

What comes of an act is measured on the stage, never promised: an act that does not come to its end in time says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.core.scaling import target
from podpool.core.settings import Settings, parse_settings
from podpool.lab.demo.driver import DemoDriver
from podpool.lab.demo.settings import BURST_PODS, INITIAL_PODS

MULTI_NETWORK_PODS, INTERFACES = 6, 10
STEP_TIMEOUT = 60.0
SHORTAGE_TIMEOUT = 12.0


class StepTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long one looks at things."""

    between: float
    """Seconds between two acts,"""
    wave: float
    """and between two waves of Pods."""


TIMINGS = {"full": StepTiming(between=8.0, wave=1.5), "short": StepTiming(between=0.0, wave=0.2)}


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an act."""

    good: bool
    sentence: str


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True):
    """One act."""

    title: str
    about: str
    play: Callable[[DemoDriver, StepTiming], Awaitable[StepOutcome]]


async def quiet(stage: DemoDriver, _: StepTiming) -> StepOutcome:
    """Give every node a few Pods; after an earlier story, send the others home."""
    wanted = INITIAL_PODS * len(stage.alive)
    await stage.end(stage.own()[wanted:])
    good = await stage.until(lambda: len(stage.own()) <= wanted, within=STEP_TIMEOUT)
    await _fill(stage, wanted)
    good = good and await _all_run(stage)
    idle = stage.picture().idle
    return _told(stage, good, f"every Pod has its address; {idle} more are idle on the nodes, for those that come next")


async def burst(stage: DemoDriver, _: StepTiming) -> StepOutcome:
    """Land many Pods on one node at once."""
    node = next(iter(stage.alive))
    begun, asked = asyncio.get_running_loop().time(), stage.asked(node)
    await stage.add(BURST_PODS, node=node)
    good = await _all_run(stage)
    seconds, asked = asyncio.get_running_loop().time() - begun, stage.asked(node) - asked
    steps = "one step" if asked == 1 else f"{asked} steps"
    return _told(stage, good, f"{BURST_PODS} Pods on {node} had their addresses after {seconds:.1f} s, asked for in {steps}")


async def growth(stage: DemoDriver, pace: StepTiming) -> StepOutcome:
    """Add Pods until full batches would fill the subnet."""
    picture = stage.picture()
    counts = {each.name: each.running + each.waiting for each in picture.nodes if each.alive}
    capacity = picture.subnet.capacity if picture.subnet else 0
    wanted = pods_that_fill(capacity, counts, parse_settings(stage.settings.overrides))
    good = await _grow(stage, wanted, pace)
    return _told(stage, good, f"with B={stage.settings.batch} for every node the subnet would be full at {wanted} Pods")


async def scarcity(stage: DemoDriver, pace: StepTiming) -> StepOutcome:
    """Go on beyond that."""
    before = stage.picture()
    room = before.subnet.capacity - before.subnet.reserved_for_primaries - len(stage.alive) if before.subnet else 0
    wanted = room * 95 // 100
    if stage.settings.scarcity == "off":
        return await _too_many(stage, wanted)
    good = await _grow(stage, wanted, pace)
    after = stage.picture()
    sentence = (
        f"{after.running} Pods run where {before.running} did: the batch went from {before.batch} to {after.batch}, "
        f"idle addresses from {before.idle} to {after.idle}"
    )
    return _told(stage, good, sentence)


async def _too_many(stage: DemoDriver, wanted: int) -> StepOutcome:
    """Show what happens when nobody gives anything back."""
    await _fill(stage, wanted)
    await _all_run(stage, within=SHORTAGE_TIMEOUT)
    picture = stage.picture()
    await stage.end([each for each in stage.pods.cache.values() if not each.status.pod_ips])
    sentence = f"{picture.running} Pods run, and {picture.waiting} wait beside {picture.idle} idle addresses"
    return StepOutcome(good=await _all_run(stage), sentence=f"with --scarcity off nothing is given back: {sentence}")


async def slices(stage: DemoDriver, _: StepTiming) -> StepOutcome:
    """Connect Pods to a second network many times."""
    leaving = [each for each in stage.pods.cache.values() if each.status.pod_ips][-2 * MULTI_NETWORK_PODS :]
    await stage.end(leaving)
    await stage.widen()
    good = await stage.until(lambda: stage.sliced() >= set(stage.alive), within=STEP_TIMEOUT)
    good = good and await stage.until(
        lambda: not {each.key for each in leaving} & set(stage.pods.cache), within=STEP_TIMEOUT
    )
    begun = asyncio.get_running_loop().time()
    for each in leaving[::2]:  # where there is room now, also in a subnet that is short
        await stage.add(1, node=each.spec.node_name, interfaces=INTERFACES)
    good = good and await _all_run(stage)
    seconds = asyncio.get_running_loop().time() - begun
    given = sum(len(each.further_addresses) for each in stage.pods.cache.values())
    sentence = (
        f"each node has a slice of its own; {given} addresses of it were given after {seconds:.1f} s, without a lock"
    )
    return _told(stage, good and given >= MULTI_NETWORK_PODS * INTERFACES, sentence)


async def loss(stage: DemoDriver, _: StepTiming) -> StepOutcome:
    """Lose a machine."""
    if len(stage.alive) < 2:
        return StepOutcome(good=True, sentence="there is only one node, so none is lost")
    node = list(stage.alive)[-1]
    held = next(each.held for each in stage.picture().nodes if each.name == node)
    await stage.lose(node)

    rested = 0

    def free() -> bool:
        nonlocal rested  # for a few seconds, which need not be those in which the node is seen to have nothing
        picture = stage.picture()
        rested = max(rested, picture.subnet.resting if picture.subnet else 0)
        return rested >= held and all(each.held == 0 for each in picture.nodes if each.name == node)

    settings = parse_settings(stage.settings.overrides)
    good = await stage.until(free, within=STEP_TIMEOUT + settings.node_gc_delay)
    gone = f"{settings.node_gc_delay:.0f} s later (11 min in a cluster)"
    sentence = f"{node} died with {held} addresses; {gone} they rest, and then are free"
    return _told(stage, good, sentence)


async def killings(stage: DemoDriver, _: StepTiming) -> StepOutcome:
    """Kill an agent and the controller."""
    before = _by_pod(stage)
    agent, controller = stage.cluster.agents[next(iter(stage.alive))], stage.cluster.controller
    starts = agent.starts
    agent.kill()
    if controller:
        controller.kill()
    # those of the second network stay, to be looked at when the story is over
    await stage.end([each for each in stage.pods.cache.values() if each.status.pod_ips and not each.further][-4:])
    await stage.add(2)

    def back() -> bool:
        return agent.starts > starts and agent.ready.is_set() and bool(controller and controller.ready.is_set())

    good = await stage.until(back, within=STEP_TIMEOUT) and await _all_run(stage)
    after = _by_pod(stage)
    kept = all(after[each] == before[each] for each in before if each in after)
    sentence = "an agent and the controller were killed in the middle of it, and came back; no Pod lost its address"
    return _told(stage, good and kept, sentence)


STEPS = (
    ScenarioStep(title="A quiet start", about="a few Pods on every node", play=quiet),
    ScenarioStep(title="A burst", about=f"{BURST_PODS} Pods land on one node at once", play=burst),
    ScenarioStep(title="Growth", about="Pods come until full batches would fill the subnet", play=growth),
    ScenarioStep(
        title="Scarcity", about="more Pods come; batches shrink, idle addresses flow back, and they fit", play=scarcity
    ),
    ScenarioStep(title="Slices", about=f"a second network; {MULTI_NETWORK_PODS} Pods with {INTERFACES} interfaces in it", play=slices),
    ScenarioStep(title="A node dies", about="its addresses stay its own until it is retry_until_done gone, and then rest", play=loss),
    ScenarioStep(title="Two processes are killed", about="an agent and the controller, in the middle of work", play=killings),
)


def pods_that_fill(capacity: int, on_nodes: Mapping[str, int], settings: Settings) -> int:
    """Tell with how many Pods, evenly spread over all but the busiest node, full batches would fill the subnet.

    Or the nodes, if those are full before.
    """
    counts = dict(on_nodes)

    def total() -> int:
        sizes = (
            target(demand=count, scaler=settings.scaler, primaries=1, maximum=settings.node_maximum) + 1
            for count in counts.values()
        )
        return sum(sizes)

    while counts and total() <= capacity:
        fewest = min(counts, key=lambda name: (counts[name], name))
        if counts[fewest] >= settings.node_maximum - 1:
            break
        counts[fewest] += 1
    return sum(counts.values())


async def _fill(stage: DemoDriver, wanted: int) -> None:
    there = len(stage.pods.cache)
    if wanted > there:
        await stage.add(wanted - there)


async def _grow(stage: DemoDriver, wanted: int, pace: StepTiming) -> bool:
    good = True
    while good and (there := len(stage.pods.cache)) < wanted:
        await stage.add(min(wanted - there, max(4, wanted // 8)))
        good = await _all_run(stage)
        await asyncio.sleep(pace.wave)
    return good


async def _all_run(stage: DemoDriver, *, within: float = STEP_TIMEOUT) -> bool:
    def all_run() -> bool:
        picture = stage.picture()
        return picture.waiting == 0 and picture.running >= 1 and picture.running == len(stage.pods.cache)

    return await stage.until(all_run, within=within)


def _by_pod(stage: DemoDriver) -> dict[str, str]:
    return {each.metadata.uid: each.status.pod_ips[0].ip for each in stage.pods.cache.values() if each.status.pod_ips}


def _told(stage: DemoDriver, good: bool, sentence: str) -> StepOutcome:  # noqa: FBT001  what came of it
    if good:
        return StepOutcome(good=True, sentence=sentence)
    refusal = next(iter(stage.kubelets.refusals.values()), "")
    waiting = stage.picture().waiting
    why = f"; a Pod is told: {refusal}" if refusal else ""
    return StepOutcome(good=False, sentence=f"it is not done in time: {waiting} Pods wait{why}")
