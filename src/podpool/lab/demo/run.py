"""`podpool up`: start the demo cluster, run the scenario, keep the cluster running until it is stopped."""

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
from podpool.lab.demo.api_server import start_api_server
from podpool.lab.demo.cluster import DemoCluster, check_ports, install_plugin, lock_directory
from podpool.lab.demo.cluster_operations import COMPONENT, DemoDriver
from podpool.lab.demo.display import Display, summary_line
from podpool.lab.demo.processes import Supervisor
from podpool.lab.demo.scenario import STEPS, TIMINGS
from podpool.lab.demo.settings import DemoSettings, StateDirectory, default_home, without_password

SETTLE_TIMEOUT = 15.0
REFRESH = 0.25
STDIN = 0
PRESS_ENTER = "  press Enter to continue"
PROGRESS_FILE = "step"


class LinuxRequired(PodpoolError):
    """The demo runs on Linux only."""

    def __init__(self) -> None:
        super().__init__("podpool up needs Linux; podpool tour and podpool sim run here as well")


def run_demo(settings: DemoSettings, *, home: Path, fresh: bool, console: Console) -> bool:
    """Run the demo; return whether every step of the scenario succeeded."""
    if platform.system() != "Linux":
        raise LinuxRequired
    directory = StateDirectory(home)
    with lock_directory(directory):
        check_ports(settings)
        resumed = directory.prepare(settings, fresh=fresh)
        with Display(console) as display:
            succeeded = asyncio.run(_run_until_stopped(settings, directory, display, resumed=resumed))
    for line in next_steps(settings, home):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return succeeded


async def _run_until_stopped(
    settings: DemoSettings, directory: StateDirectory, display: Display, *, resumed: bool
) -> bool:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    supervisor = Supervisor()
    running = asyncio.ensure_future(_run_cluster(settings, directory, supervisor, display, resumed=resumed))
    waiting = asyncio.ensure_future(stopping.wait())
    futures: list[asyncio.Future[Any]] = [running, waiting, supervisor.failed]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if supervisor.failed.done():
            supervisor.failed.result()
        return running.result() if running.done() else True
    finally:
        display.print("stopping")
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        await supervisor.stop()


async def _run_cluster(
    settings: DemoSettings, directory: StateDirectory, supervisor: Supervisor, display: Display, *, resumed: bool
) -> bool:
    started = asyncio.get_running_loop().time()
    server = "kube-apiserver" if settings.api == "real" else "lite API server"
    display.print(f"starting {server}, ledger, controller, dashboard and {settings.nodes} agents")
    plugin = await install_plugin(directory, display.print)
    api = await start_api_server(settings, directory, supervisor)
    cluster = DemoCluster(settings, directory, supervisor, api=api, print_line=display.print)
    try:
        driver = DemoDriver(cluster, plugin)
        await asyncio.gather(driver.register(), cluster.start(boot_id=driver.boot_id))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(driver.run()), group.create_task(_refresh(driver, display))]
            ready = await driver.until(lambda: not driver.state().unserved, within=SETTLE_TIMEOUT)
            seconds = asyncio.get_running_loop().time() - started
            again = " again" if resumed else ""
            missing = "" if ready else f"; without addresses: {', '.join(driver.state().unserved)}"
            size = f"{settings.nodes} nodes, subnet {settings.subnet}"
            display.print(f"The demo cluster is running{again}, after {seconds:.1f} s: {size}{missing}")
            for line in _connections(cluster):
                display.pin(line)
            succeeded = await _run_scenario(driver, display)
            if not settings.once:
                await asyncio.Event().wait()
            for task in tasks:
                task.cancel()
        return succeeded
    finally:
        await cluster.close()
        api.stop()


async def _run_scenario(driver: DemoDriver, display: Display) -> bool:
    timing = TIMINGS.get(driver.settings.scenario)
    if timing is None:
        display.print("No scenario. Create Pods with kubectl; they get their addresses from the plugin.")
        return True
    succeeded, directory = True, driver.cluster.home
    progress = directory.file(PROGRESS_FILE)
    completed = int(progress.read_text()) if progress.exists() else 0
    if completed == len(STEPS):
        display.print("The scenario was completed by an earlier run; --fresh runs it again.")
        return True
    for number, step in list(enumerate(STEPS, 1))[completed:]:
        display.print(f"Step {number} of {len(STEPS)}: {step.title}: {step.about}")
        _record(driver, number, "Started", f"{step.title}: {step.about}")
        outcome = await step.run(driver, timing)
        report = await driver.audit(within=SETTLE_TIMEOUT)
        passed = outcome.succeeded and report.clean
        for line in (outcome.text, summary_line(driver.state()), *_audit_lines(report)):
            display.print(f"  {line}")
        _record(driver, number, "Finished", f"{step.title}: {outcome.text}", warning=not passed)
        directory.write(b"%d" % number, PROGRESS_FILE)
        succeeded = succeeded and passed
        await (_wait_for_enter(display) if driver.settings.step else asyncio.sleep(timing.between_steps))
    regarding = ObjectReference(kind="Scenario", name=COMPONENT)
    driver.events.record(regarding, reason="Scenario", action="Finished", note="finished; the cluster keeps running")
    running = "" if driver.settings.once else " The cluster keeps running: Ctrl-C stops it."
    display.print(f"The scenario has finished.{running}")
    return succeeded


def _audit_lines(report: AuditReport) -> list[str]:
    failed = [f"FAILED: {each.subject}: {each.message}" for each in report.findings]
    return [f"audit: {summarize(report)}", *failed, *(f"FAILED: not checked: {each}" for each in report.unchecked)]


def _record(driver: DemoDriver, number: int, action: str, note: str, *, warning: bool = False) -> None:
    """Record an Event about a step, which the dashboard and `podpool watch` show."""
    regarding = ObjectReference(kind="Step", name=str(number))
    driver.events.record(regarding, reason="Step", action=action, note=note, warning=warning)


async def _wait_for_enter(display: Display) -> None:
    """Wait for Enter; return at once if standard input cannot be waited for."""
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(STDIN, pressed.set)
    except OSError:  # a file, or closed
        return
    display.print(PRESS_ENTER)
    try:
        await pressed.wait()
    finally:
        loop.remove_reader(STDIN)
    os.read(STDIN, 4096)


async def _refresh(driver: DemoDriver, display: Display) -> None:
    while True:
        display.update(driver.state())
        await asyncio.sleep(REFRESH)


def _connections(cluster: DemoCluster) -> list[str]:
    """Return what to open and what to type, in lines for 80 columns."""
    dashboard = [f"  dashboard: {cluster.dashboard}"] if cluster.dashboard else []
    return [
        *dashboard,
        "  in another terminal:",
        f"    export KUBECONFIG={shlex.quote(str(cluster.api.kubeconfig))}",
        "    kubectl get nodes,pods,nnc -A",
        f"    {_program()} status   # or nodes, pods, subnets, audit",
    ]


def _program() -> str:
    """Return how to call podpool: that of a checkout is in its .venv."""
    own = Path(sys.executable).with_name("podpool")
    return "podpool" if shutil.which("podpool") or not own.exists() else os.path.relpath(own)


def next_steps(settings: DemoSettings, home: Path) -> list[str]:
    """Return commands to try next, for the same demo cluster."""
    again = f"{_program()} up{_options(settings, home)}"
    other = "" if settings.scarcity == "off" else " --scarcity off --mode reactive"
    return [
        f"Stopped. The state is kept in {home}.",
        "The next podpool up continues from it, --fresh starts anew. Try next:",
        f"  {again} --fresh --step",
        "      the scenario again, step by step",
        f"  {again} --scenario none",
        "      your own Pods, with kubectl",
        f"  {again} --fresh{other}",
        "      the scenario with other scaling",
        f"  {_program()} sim --seed 7",
        "      a scenario with all kinds of faults, in the simulator",
    ]


def _options(settings: DemoSettings, home: Path) -> str:
    """Return the options that differ from the defaults; a database without its password."""
    defaults = DemoSettings()
    options = {"home": str(home)} if home != default_home() else {}
    names = ("port", "nodes", "subnet", "batch", "api", "database")
    options |= {name: str(value) for name in names if (value := getattr(settings, name)) != getattr(defaults, name)}
    if "database" in options:
        options["database"] = without_password(settings.database)
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in options.items())
