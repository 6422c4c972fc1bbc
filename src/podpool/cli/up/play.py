"""The evening: the parts come up, the story is played, the stage stays open until somebody closes it."""

import asyncio
import platform
import signal
from pathlib import Path
from typing import Any

from rich.console import Console

from podpool.cli.up.acts import ACTS, PACES
from podpool.cli.up.api import api_server
from podpool.cli.up.cluster import Cluster, alone, refuse_taken_ports, the_plugin
from podpool.cli.up.processes import Supervisor
from podpool.cli.up.screen import Screen, summed_up
from podpool.cli.up.settings import Home, Settings
from podpool.cli.up.stage import Stage
from podpool.core.errors import PodpoolError
from podpool.resources.builtin import ObjectReference

SETTLING = 15.0
FRAME = 0.25


class NotHere(PodpoolError):
    """Another system than Linux."""

    def __init__(self) -> None:
        super().__init__("podpool up needs Linux; podpool tour and podpool sim run here as well")


def run_up(settings: Settings, *, home: Path, fresh: bool, console: Console) -> bool:
    """Play; tells whether everything came as it should."""
    if platform.system() != "Linux":
        raise NotHere
    place = Home(home)
    with alone(place):
        refuse_taken_ports(settings)
        going_on = place.set(settings, fresh=fresh)
        with Screen(console) as screen:
            good = asyncio.run(_evening(settings, place, screen, going_on=going_on))
    console.print(_farewell(settings, home), highlight=False, markup=False, soft_wrap=True)
    return good


async def _evening(settings: Settings, home: Home, screen: Screen, *, going_on: bool) -> bool:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    supervisor = Supervisor()
    playing = asyncio.ensure_future(_play(settings, home, supervisor, screen, going_on=going_on))
    waiting = asyncio.ensure_future(stopping.wait())
    ends: list[asyncio.Future[Any]] = [playing, waiting, supervisor.failed]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if supervisor.failed.done():
            supervisor.failed.result()
        return playing.result() if playing.done() else True
    finally:
        screen.tell("stopping")
        for task in (playing, waiting):
            task.cancel()
        await asyncio.gather(playing, waiting, return_exceptions=True)
        await supervisor.stop()


async def _play(settings: Settings, home: Home, supervisor: Supervisor, screen: Screen, *, going_on: bool) -> bool:
    begun = asyncio.get_running_loop().time()
    server = "kube-apiserver" if settings.api == "real" else "pocket"
    screen.tell(f"starting an API server ({server}), a ledger, a controller and the agents of {settings.nodes} nodes")
    plugin = the_plugin(home, screen.tell)
    api = await api_server(settings, home, supervisor)
    cluster = Cluster(settings, home, supervisor, api=api, tell=screen.tell)
    try:
        stage = Stage(cluster, plugin)
        await asyncio.gather(stage.register(), cluster.start(boots=stage.boot_of))
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(stage.run()), group.create_task(_draw(stage, screen))]
            await stage.until(lambda: _ready(stage), within=SETTLING)
            seconds = asyncio.get_running_loop().time() - begun
            again = "ready again" if going_on else "ready"
            screen.tell(f"{again} after {seconds:.1f} s: {settings.nodes} nodes, {settings.subnet}")
            for line in _ways_in(cluster):
                screen.pin(line)
            good = await _story(stage, screen)
            if not settings.once:
                await asyncio.Event().wait()
            for task in running:
                task.cancel()
        return good
    finally:
        await cluster.close()
        api.stop()


def _ready(stage: Stage) -> bool:
    nodes = stage.picture().nodes
    return stage.picture().subnet is not None and all(each.held for each in nodes)


async def _story(stage: Stage, screen: Screen) -> bool:
    pace = PACES.get(stage.settings.story)
    if pace is None:
        screen.tell("the stage is yours: kubectl run, create and delete Pods; they get their addresses from the plugin")
        return True
    good, home = True, stage.cluster.home
    progress = home.file("act")
    played = int(progress.read_text()) % len(ACTS) if progress.exists() else 0
    for number, act in list(enumerate(ACTS, 1))[played:]:
        screen.tell(f"Act {number} of {len(ACTS)}: {act.title}: {act.about}")
        outcome = await act.play(stage, pace)
        clean = await stage.until(lambda: not stage.faults(), within=SETTLING)
        good = good and outcome.good and clean
        screen.tell(f"  {outcome.sentence}")
        screen.tell(f"  {summed_up(stage.picture())}")
        screen.tell("  every address has one owner" if clean else f"  WRONG: {'; '.join(stage.faults())}")
        stage.events.tell(
            ObjectReference(kind="Act", name=str(number)),
            reason="Act",
            action=f"Act{number}",
            note=f"{act.title}: {outcome.sentence}",
            warning=not (outcome.good and clean),
        )
        home.write(b"%d" % number, "act")
        await asyncio.sleep(pace.between)
    screen.tell("The story is over." + ("" if stage.settings.once else " The stage stays open: Ctrl-C closes it."))
    return good


async def _draw(stage: Stage, screen: Screen) -> None:
    while True:
        screen.show(stage.picture())
        await asyncio.sleep(FRAME)


def _ways_in(cluster: Cluster) -> list[str]:
    page = [f"  the page: {cluster.page}"] if cluster.page else []
    return [*page, f"  export KUBECONFIG={cluster.api.kubeconfig}   # then: kubectl get nodes,pods,nnc -A"]


def _farewell(settings: Settings, home: Path) -> str:
    other = "podpool up --fresh" if settings.scarcity == "off" else "podpool up --fresh --scarcity off --mode reactive"
    return (
        f"Stopped. What there was is kept in {home}: the next podpool up goes on with it, --fresh begins anew.\n"
        "Try next: podpool up --story none: your own Pods, with kubectl\n"
        f"          {other}: what the scaling changes\n"
        "          podpool sim --seed 7: a history with faults of every kind, in the simulator"
    )
