"""The story, as somebody sees it who steps through it: after each act the audit, and the page in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from podpool.lab.demo.run import GO_ON
from podpool.lab.demo.scenario import ACTS, INTERFACES, WIDE_PODS
from podpool.lab.demo.settings import BURST
from tests.lab.demo.evenings import Evening

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from parts.browser import Browser, Page

NODES = 3
SUBNET, CAPACITY = "10.77.0.0/25", 125
PATIENCE = 240.0
"""Seconds for an act, on a machine that has other things to do."""
ACT = "document.getElementById('act')"
LARGEST_REST = "window.largestRest"


@pytest.fixture
def evening(tmp_path: Path) -> Evening:
    """A stage of three nodes."""
    return Evening(tmp_path / "up")


def figure(words: str) -> str:
    """A figure of the subnet's card, by what is written beside it."""
    rows = "[...document.querySelectorAll('#subnet-cards .figures div')]"
    row = f"{rows}.find((each) => each.querySelector('dt').textContent === {json.dumps(words)})"
    return f"Number({row}.querySelector('dd').textContent.replace(/\\D/g, ''))"


def tells(selector: str, words: str) -> str:
    """A part of the page has these words in it."""
    return f"document.querySelector({json.dumps(selector)}).textContent.includes({json.dumps(words)})"


def quiet(_: str) -> Sequence[str]:
    return [tells("#nodes-title", f"{NODES} nodes"), tells(".card .full", f"{NODES * 16} of {CAPACITY} reserved")]


def burst(_: str) -> Sequence[str]:
    busiest = "document.getElementById('node-active').textContent"
    return [f"{busiest}.startsWith('node-1, ')", f"Number({busiest}.match(/([0-9]+) used by Pods/)[1]) >= {BURST}"]


def growth(told: str) -> Sequence[str]:
    full_at = number_in("would be full at ([0-9]+) Pods", told)
    return [f"{figure('used by Pods')} === {full_at}", "document.querySelectorAll('.threshold').length === 2"]


def scarcity(told: str) -> Sequence[str]:
    smaller = "Number(document.querySelector('.ladder [aria-current]').textContent) < 16"
    marked = "document.querySelectorAll('.chart .band').length > 0"
    more = f"{figure('used by Pods')} === {number_in('([0-9]+) Pods run where', told)}"
    return [smaller, marked, more, tells(".chip", "short"), tells("#headline", "vnet.pods is short")]


def slices(_: str) -> Sequence[str]:
    given = f"{WIDE_PODS * INTERFACES} of {NODES * 62} addresses used"
    return [tells("#network-list", f"{NODES} of 1\u202f024 slices taken"), tells("#network-list", given)]


def loss(told: str) -> Sequence[str]:
    held = number_in("died with ([0-9]+) addresses", told)
    gone = tells("#news-list", f"node-{NODES} is gone")
    return [f"{LARGEST_REST} >= {held}", gone, tells("#nodes-title", f"{NODES - 1} nodes")]


def killings(_: str) -> Sequence[str]:
    return [tells("#act", "came back"), tells("#headline", "Every Pod has its address")]


SEEN = (quiet, burst, growth, scarcity, slices, loss, killings)
"""What the page shows after each act, from what the terminal says of it."""


def number_in(pattern: str, text: str) -> int:
    """The number that a sentence tells."""
    found = re.search(pattern, text)
    assert found, text
    return int(found[1])


async def look(page: Page, number: int, told: str) -> None:
    """See on the page what the terminal tells of an act."""
    outcome, sums, judged = (line.strip() for line in told.splitlines()[-3:])
    assert judged.startswith("audit: Nothing is wrong among")
    await page.until(f"!{ACT}.hidden && {ACT}.textContent.startsWith('Act {number} ')")
    await page.until(f"{ACT}.textContent.endsWith({json.dumps(outcome)})")
    await page.until(f"{figure('used by Pods')} === {number_in('([0-9]+) Pods run, 0 wait', sums)}")
    for each in SEEN[number - 1](told):
        await page.until(each)
    assert "live" == await page.text("#link-words")
    assert await page.run("document.getElementById('troubles').hidden")


@pytest.mark.real
@pytest.mark.xdist_group("stage")
def test_after_each_act_the_audit_is_clean_and_the_page_shows_it(
    evening: Evening, browser: Browser, pictures: Path
) -> None:
    evening.open(
        "--nodes", str(NODES), "--subnet", SUBNET, "--story", "short", "--step", until_said="export KUBECONFIG"
    )

    async def watched() -> None:
        async with browser.page(height=1400) as page:
            await page.open(evening.page)
            await page.until("document.querySelectorAll('#subnet-cards .figures div').length > 0")
            rest = f"{LARGEST_REST} = Math.max({LARGEST_REST} ?? 0, {figure('resting')})"
            await page.run(f"void setInterval(() => {rest}, 100)")
            for number, act in enumerate(ACTS, 1):
                await asyncio.to_thread(evening.until_said, GO_ON, times=number, patience=PATIENCE)
                told = evening.said.split(f"Act {number} of {len(ACTS)}: ")[1].rpartition(f"{GO_ON}\n")[0]
                assert told.startswith(f"{act.title}: {act.about}")
                report = await asyncio.to_thread(evening.audit)
                assert (True, []) == (report["clean"], report.get("findings", [])), act.title
                await look(page, number, told)
                (pictures / f"act-{number}.png").write_bytes(await page.picture())
                evening.press_enter()
            await asyncio.to_thread(evening.until_said, "The story is over")
            await page.until(f"{ACT}.hidden")
            assert [] == page.complaints

    try:
        asyncio.run(watched())
        assert "WRONG" not in evening.said
        assert "not done in time" not in evening.said
    finally:
        code = evening.close()
    assert (0, []) == (code, evening.left_over()), evening.said
    assert "Try next" in evening.said
