"""Screenshots of the dashboard for README and docs: a real `podpool up` in a real Chromium.

They are taken after the scenario step with slices: the subnet is short, its batch has shrunk, and every panel has data.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from parts.browser import Browser
from parts.loopback import free_ports
from podpool.lab.demo.run import PRESS_ENTER
from podpool.lab.demo.scenario import STEPS
from tools.docs import DOCS

WIDTH = 1400
LAST_STEP = next(number for number, step in enumerate(STEPS, 1) if step.title == "Slices")
PAUSE = 30.0
"""Seconds after each step, so that the chart shows it and the forecast has samples."""


class Screenshot(msgspec.Struct, frozen=True, kw_only=True):
    """Colour scheme, the element at the top, and the height in pixels."""

    color_scheme: str
    top_element: str
    height: int


PICTURES = {
    "dashboard.png": Screenshot(color_scheme="light", top_element="content", height=1250),
    "dashboard-dark.png": Screenshot(color_scheme="dark", top_element="nodes", height=620),
}


def main() -> None:
    """Take all screenshots."""
    with (
        tempfile.TemporaryDirectory(prefix="podpool-screenshots-") as scratch,
        _demo_until_step(Path(scratch) / "up") as page,
    ):
        browser = Browser(Path(scratch))
        browser.start()
        try:
            for name, screenshot in PICTURES.items():
                image = asyncio.run(_capture(browser, page, screenshot))
                (DOCS / "pictures" / name).write_bytes(image)
        finally:
            browser.stop()


@contextmanager
def _demo_until_step(home: Path) -> Iterator[str]:
    """Run the demo up to the step and yield the URL of the dashboard."""
    port = free_ports(4)
    words = ["up", "--step", "--home", str(home), "--port", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "podpool", *words], stdin=pipe, stdout=pipe, text=True) as demo:
        try:
            for step in range(1, LAST_STEP + 1):
                _read_until(demo, PRESS_ENTER)
                time.sleep(PAUSE)
                if step < LAST_STEP:
                    _press_enter(demo)
            yield f"http://127.0.0.1:{port + 1}"
        finally:
            demo.terminate()


def _read_until(demo: subprocess.Popen[str], text: str) -> None:
    for line in demo.stdout or ():
        print(line, end="")
        if text in line:
            return
    raise SystemExit("podpool up ended before the step was reached")


def _press_enter(demo: subprocess.Popen[str]) -> None:
    if demo.stdin:
        demo.stdin.write("\n")
        demo.stdin.flush()


async def _capture(browser: Browser, url: str, screenshot: Screenshot) -> bytes:
    async with browser.page(width=WIDTH, height=screenshot.height) as page:
        await page.prefer(color_scheme=screenshot.color_scheme)
        await page.open(url)
        await page.until("document.querySelectorAll('#map-legend li').length > 0")
        await page.run(f"document.getElementById('{screenshot.top_element}').scrollIntoView({{ behavior: 'instant' }})")
        await asyncio.sleep(1.0)  # animations end
        return await page.screenshot()


if __name__ == "__main__":
    main()
