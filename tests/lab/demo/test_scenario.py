"""The scenario step by step: after each step the audit is clean, and the dashboard shows it in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from podpool.lab.demo.run import PRESS_ENTER
from podpool.lab.demo.scenario import INTERFACES, MULTI_NETWORK_PODS, STEPS
from podpool.lab.demo.settings import BURST_PODS
from tests.lab.demo.demo_process import DemoProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from parts.browser import Browser, Page

NODES = 3
SUBNET, CAPACITY = "10.77.0.0/25", 125
STEP_TIMEOUT = 240.0
"""Seconds for a step on a busy machine."""
STEP = "document.getElementById('step')"
MOST_COOLING = "window.mostCooling"


@pytest.fixture
def demo(tmp_path: Path) -> DemoProcess:
    """A demo with three nodes."""
    return DemoProcess(tmp_path / "up")


def figure(words: str) -> str:
    """A figure of the subnet's card, by its label."""
    rows = "[...document.querySelectorAll('#subnet-cards .figures div')]"
    row = f"{rows}.find((each) => each.querySelector('dt').textContent === {json.dumps(words)})"
    return f"Number({row}.querySelector('dd').textContent.replace(/\\D/g, ''))"


def contains(selector: str, words: str) -> str:
    """Part of the page contains a text."""
    return f"document.querySelector({json.dumps(selector)}).textContent.includes({json.dumps(words)})"


def steady_state(_: str) -> Sequence[str]:
    return [contains("#nodes-title", f"{NODES} nodes"), contains(".card .full", f"{NODES * 16} of {CAPACITY} reserved")]


def burst(_: str) -> Sequence[str]:
    busiest = "document.getElementById('node-active').textContent"
    return [f"{busiest}.startsWith('node-1, ')", f"Number({busiest}.match(/([0-9]+) assigned/)[1]) >= {BURST_PODS}"]


def growth(output: str) -> Sequence[str]:
    pods_that_fill = number_in("would be full at ([0-9]+) Pods", output)
    return [f"{figure('assigned')} === {pods_that_fill}", "document.querySelectorAll('.threshold').length === 2"]


def scarcity(output: str) -> Sequence[str]:
    smaller = "Number(document.querySelector('.ladder [aria-current]').textContent) < 16"
    marked = "document.querySelectorAll('.chart .band').length > 0"
    more = f"{figure('assigned')} === {number_in('([0-9]+) Pods run instead of', output)}"
    return [smaller, marked, more, contains(".chip", "exhausted"), contains("#headline", "vnet.pods is exhausted")]


def slices(_: str) -> Sequence[str]:
    given = f"{MULTI_NETWORK_PODS * INTERFACES} of {NODES * 62} addresses used"
    return [contains("#network-list", f"{NODES} of 1\u202f024 slices assigned"), contains("#network-list", given)]


def node_loss(output: str) -> Sequence[str]:
    held = number_in("was destroyed with ([0-9]+) addresses", output)
    gone = contains("#activity-list", f"node-{NODES} was removed")
    return [f"{MOST_COOLING} >= {held}", gone, contains("#nodes-title", f"{NODES - 1} nodes")]


def restarts(_: str) -> Sequence[str]:
    return [contains("#step", "restarted"), contains("#headline", "Every Pod has an address")]


EXPECTED = (steady_state, burst, growth, scarcity, slices, node_loss, restarts)
"""What the page shows after each step, from what the terminal prints."""


def number_in(pattern: str, text: str) -> int:
    """The number in a line."""
    found = re.search(pattern, text)
    assert found, text
    return int(found[1])


async def compare(page: Page, number: int, output: str) -> None:
    """Compare the page with the terminal."""
    outcome, figures, audit = (line.strip() for line in output.splitlines()[-3:])
    assert audit.startswith("audit: No violations in")
    await page.until(f"!{STEP}.hidden && {STEP}.textContent.startsWith('Step {number} ')")
    await page.until(f"{STEP}.textContent.endsWith({json.dumps(outcome)})")
    await page.until(f"{figure('assigned')} === {number_in('([0-9]+) Pods run, 0 wait', figures)}")
    for each in EXPECTED[number - 1](output):
        await page.until(each)
    assert "live" == await page.text("#link-text")
    assert await page.run("document.getElementById('problems').hidden")


@pytest.mark.real
@pytest.mark.xdist_group("demo")
def test_after_each_step_the_audit_is_clean_and_the_dashboard_shows_it(
    demo: DemoProcess, browser: Browser, pictures: Path
) -> None:
    demo.start("--nodes", str(NODES), "--subnet", SUBNET, "--scenario", "short", "--step", until="export KUBECONFIG")

    async def watched() -> None:
        async with browser.page(height=1400) as page:
            await page.open(demo.dashboard)
            await page.until("document.querySelectorAll('#subnet-cards .figures div').length > 0")
            update = f"{MOST_COOLING} = Math.max({MOST_COOLING} ?? 0, {figure('cooling down')})"
            await page.run(f"void setInterval(() => {update}, 100)")
            for number, step in enumerate(STEPS, 1):
                await asyncio.to_thread(demo.wait_for_output, PRESS_ENTER, times=number, timeout=STEP_TIMEOUT)
                output = demo.output.split(f"Step {number} of {len(STEPS)}: ")[1].rpartition(f"{PRESS_ENTER}\n")[0]
                assert output.startswith(f"{step.title}: {step.about}")
                report = await asyncio.to_thread(demo.audit)
                assert (True, []) == (report["clean"], report.get("findings", [])), step.title
                await compare(page, number, output)
                (pictures / f"step-{number}.png").write_bytes(await page.screenshot())
                demo.press_enter()
            await asyncio.to_thread(demo.wait_for_output, "The scenario has finished")
            await page.until(f"{STEP}.hidden")
            assert [] == page.complaints

    try:
        asyncio.run(watched())
        assert "FAILED" not in demo.output
        assert "timed out" not in demo.output
    finally:
        code = demo.stop()
    assert (0, []) == (code, demo.processes()), demo.output
    assert "Try next" in demo.output
