"""Pictures of the page for README and docs: a real `podpool up` is played to a good moment, before a real Chromium.

That moment is after the act with slices: the subnet is short, its batch has shrunk, and every part shows something.
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
from podpool.lab.demo.run import GO_ON
from podpool.lab.demo.scenario import ACTS
from tools.docs import DOCS

WIDTH = 1400
MOMENT = next(number for number, act in enumerate(ACTS, 1) if act.title == "Slices")
LOOK = 30.0
"""Seconds after each act: it is seen in the chart, and a forecast has something to go by."""


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """What a picture shows: the page in these colours, from a part of it on, so many pixels of it."""

    colours: str
    begins: str
    height: int


PICTURES = {
    "dashboard.png": Portrait(colours="light", begins="content", height=1250),
    "dashboard-dark.png": Portrait(colours="dark", begins="nodes", height=620),
}


def main() -> None:
    """Take them."""
    with tempfile.TemporaryDirectory(prefix="podpool-portraits-") as scratch, _played(Path(scratch) / "up") as page:
        browser = Browser(Path(scratch))
        browser.start()
        try:
            for name, portrait in PICTURES.items():
                taken = asyncio.run(_taken(browser, page, portrait))
                (DOCS / "pictures" / name).write_bytes(taken)
        finally:
            browser.stop()


@contextmanager
def _played(home: Path) -> Iterator[str]:
    """Play the story to the moment, and stop when enough was seen; gives the page's address."""
    port = free_ports(4)
    words = ["up", "--step", "--home", str(home), "--port", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "podpool", *words], stdin=pipe, stdout=pipe, text=True) as stage:
        try:
            for act in range(1, MOMENT + 1):
                _until_said(stage, GO_ON)
                time.sleep(LOOK)
                if act < MOMENT:
                    _press_enter(stage)
            yield f"http://127.0.0.1:{port + 1}"
        finally:
            stage.terminate()


def _until_said(stage: subprocess.Popen[str], words: str) -> None:
    for line in stage.stdout or ():
        print(line, end="")
        if words in line:
            return
    raise SystemExit("podpool up ended before the moment came")


def _press_enter(stage: subprocess.Popen[str]) -> None:
    if stage.stdin:
        stage.stdin.write("\n")
        stage.stdin.flush()


async def _taken(browser: Browser, url: str, portrait: Portrait) -> bytes:
    async with browser.page(width=WIDTH, height=portrait.height) as page:
        await page.prefer(color_scheme=portrait.colours)
        await page.open(url)
        await page.until("document.querySelectorAll('#map-legend li').length > 0")
        await page.run(f"document.getElementById('{portrait.begins}').scrollIntoView({{ behavior: 'instant' }})")
        await asyncio.sleep(1.0)  # what moves comes to rest
        return await page.picture()


if __name__ == "__main__":
    main()
