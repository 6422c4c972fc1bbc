"""The evening: the parts come up, the story is played, the stage stays open until somebody closes it."""

import asyncio
import os
import platform
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from podpool.api.builtin import ObjectReference
from podpool.core.errors import PodpoolError
from podpool.inspect.audit import AuditReport, summarize
from podpool.lab.demo.start_api_server import start_api_server
from podpool.lab.demo.cluster import Cluster, lock_directory, check_ports, install_plugin
from podpool.lab.demo.driver import DemoDriver
from podpool.lab.demo.processes import Supervisor
from podpool.lab.demo.scenario import STEPS, TIMINGS
from podpool.lab.demo.screen import Display, summary_line
from podpool.lab.demo.settings import DemoSettings, StateDirectory, default_home, without_password

SETTLE_TIMEOUT = 15.0
REFRESH = 0.25
STDIN = 0
PRESS_ENTER = "  press Enter to go on"


class LinuxRequired(PodpoolError):
    """Another system than Linux."""

    def __init__(self) -> None:
        super().__init__("podpool up needs Linux; podpool tour and podpool sim run here as well")


def run_demo(settings: DemoSettings, *, home: Path, fresh: bool, console: Console) -> bool:
    """Play; tells whether everything came as it should."""
    if platform.system() != "Linux":
        raise LinuxRequired
    place = StateDirectory(home)
    with lock_directory(place):
        check_ports(settings)
        going_on = place.set(settings, fresh=fresh)
        with Display(console) as screen:
            good = asyncio.run(_evening(settings, place, screen, going_on=going_on))
    for line in next_steps(settings, home):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return good


async def _evening(settings: DemoSettings, home: StateDirectory, screen: Display, *, going_on: bool) -> bool:
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


async def _play(settings: DemoSettings, home: StateDirectory, supervisor: Supervisor, screen: Display, *, going_on: bool) -> bool:
    begun = asyncio.get_running_loop().time()
    server = "kube-apiserver" if settings.api == "real" else "pocket"
    screen.tell(f"starting an API server ({server}), a ledger, a controller and the agents of {settings.nodes} nodes")
    plugin = await install_plugin(home, screen.tell)
    api = await start_api_server(settings, home, supervisor)
    cluster = Cluster(settings, home, supervisor, api=api, tell=screen.tell)
    try:
        stage = DemoDriver(cluster, plugin)
        await asyncio.gather(stage.register(), cluster.start(boots=stage.boot_of))
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(stage.run()), group.create_task(_draw(stage, screen))]
            ready = await stage.until(lambda: not stage.picture().unserved, within=SETTLE_TIMEOUT)
            seconds = asyncio.get_running_loop().time() - begun
            again = "ready again" if going_on else "ready"
            lacking = "" if ready else f"; {', '.join(stage.picture().unserved)} still without addresses"
            screen.tell(f"{again} after {seconds:.1f} s: {settings.nodes} nodes, {settings.subnet}{lacking}")
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


async def _story(stage: DemoDriver, screen: Display) -> bool:
    pace = TIMINGS.get(stage.settings.story)
    if pace is None:
        screen.tell("the stage is yours: kubectl run, create and delete Pods; they get their addresses from the plugin")
        return True
    good, home = True, stage.cluster.home
    progress = home.file("act")
    played = int(progress.read_text()) if progress.exists() else 0
    if played == len(STEPS):
        screen.tell("The story was played to its end before: the stage is as it was. --fresh plays it again.")
        return True
    for number, act in list(enumerate(STEPS, 1))[played:]:
        screen.tell(f"Act {number} of {len(STEPS)}: {act.title}: {act.about}")
        _on_page(stage, number, "Begins", f"{act.title}: {act.about}")
        outcome = await act.play(stage, pace)
        report = await stage.audited(within=SETTLE_TIMEOUT)
        as_it_should = outcome.good and report.clean
        for line in (outcome.sentence, summary_line(stage.picture()), *_judged(report)):
            screen.tell(f"  {line}")
        _on_page(stage, number, "Ends", f"{act.title}: {outcome.sentence}", warning=not as_it_should)
        home.write(b"%d" % number, "act")
        good = good and as_it_should
        await (_enter(screen) if stage.settings.step else asyncio.sleep(pace.between))
    about = ObjectReference(kind="Story", name="podpool-up")
    stage.events.record(about, reason="Story", action="Ends", note="it is over; the stage is yours")
    screen.tell("The story is over." + ("" if stage.settings.once else " The stage stays open: Ctrl-C closes it."))
    return good


def _judged(report: AuditReport) -> list[str]:
    wrong = [f"WRONG: {each.about}: {each.message}" for each in report.findings]
    return [f"audit: {summarize(report)}", *wrong, *(f"WRONG: not looked at: {each}" for each in report.unchecked)]


def _on_page(stage: DemoDriver, number: int, action: str, note: str, *, warning: bool = False) -> None:
    """Tell of an act where the page, and `podpool watch`, look."""
    about = ObjectReference(kind="Act", name=str(number))
    stage.events.record(about, reason="Act", action=action, note=note, warning=warning)


async def _enter(screen: Display) -> None:
    """Wait until somebody presses Enter; where nobody can, go on."""
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(STDIN, pressed.set)
    except OSError:  # it is a file, or nothing at all
        return
    screen.tell(PRESS_ENTER)
    try:
        await pressed.wait()
    finally:
        loop.remove_reader(STDIN)
    os.read(STDIN, 4096)


async def _draw(stage: DemoDriver, screen: Display) -> None:
    while True:
        screen.show(stage.picture())
        await asyncio.sleep(REFRESH)


def _ways_in(cluster: Cluster) -> list[str]:
    """Say what to open and what to paste, in lines that fit a small terminal."""
    page = [f"  the page: {cluster.page}"] if cluster.page else []
    return [
        *page,
        "  in another terminal:",
        f"    export KUBECONFIG={shlex.quote(str(cluster.api.kubeconfig))}",
        "    kubectl get nodes,pods,nnc -A",
        f"    {_typed()} status   # or nodes, pods, subnets, audit",
    ]


def _typed() -> str:
    """Tell how podpool is typed here: a checkout's own is in its .venv."""
    own = Path(sys.executable).with_name("podpool")
    return "podpool" if shutil.which("podpool") or not own.exists() else os.path.relpath(own)


def next_steps(settings: DemoSettings, home: Path) -> list[str]:
    """Say what to try next: every command can be pasted, for this stage and where it was."""
    again = f"{_typed()} up{_stage_words(settings, home)}"
    other = "" if settings.scarcity == "off" else " --scarcity off --mode reactive"
    return [
        f"Stopped. What there was is kept in {home}.",
        "The next podpool up goes on with it, --fresh begins anew. Try next:",
        f"  {again} --fresh --step",
        "      the story again, act by act",
        f"  {again} --scenario none",
        "      your own Pods, with kubectl",
        f"  {again} --fresh{other}",
        "      what the scaling changes",
        f"  {_typed()} sim --seed 7",
        "      a history with faults of every kind, in the simulator",
    ]


def _stage_words(settings: DemoSettings, home: Path) -> str:
    """Write what makes it the same stage, where that is not as usual; a database without its password."""
    usual = DemoSettings()
    kept = {"home": str(home)} if home != default_home() else {}
    names = ("port", "nodes", "subnet", "batch", "api", "database")
    kept |= {name: str(value) for name in names if (value := getattr(settings, name)) != getattr(usual, name)}
    if "database" in kept:
        kept["database"] = without_password(settings.database)
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in kept.items())
