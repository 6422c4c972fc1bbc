"""A real headless Chromium, driven by its DevTools protocol.

As root it runs without its sandbox, which does not work there. Console errors and warnings are recorded, so that a test
can assert that there are none.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from parts.daemon import Daemon
from parts.debian import command
from parts.polling import INTERVAL, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

KEYS = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "Home": 36,
    "End": 35,
    "PageDown": 34,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
LARGEST = 64 << 20


class Browser:
    """One Chromium with its own profile."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._port = home / "DevToolsActivePort"
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        quiet = ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync"]
        words = [
            *(command("chromium"), "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={home}"),
            *("--no-first-run", "--disable-component-update", "--disable-extensions", "--mute-audio"),
            *("--force-color-profile=srgb", "--hide-scrollbars", *sandbox, *quiet, "about:blank"),
        ]
        env = {**os.environ, "HOME": str(home)}
        self.daemon = Daemon(words, log=home / "chromium.log", ready=self._listens, env=env)

    def _listens(self) -> bool:
        return self._port.exists() and len(self._port.read_text().split()) == 2

    def start(self) -> None:
        """Start Chromium and wait until it listens."""
        self.daemon.start()

    def stop(self) -> None:
        """Stop Chromium."""
        self.daemon.stop()

    @asynccontextmanager
    async def page(self, *, width: int = 1440, height: int = 900) -> AsyncIterator[Page]:
        """Open an empty page of the given size."""
        port, path = self._port.read_text().split()
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=LARGEST) as websocket,
        ):
            page = Page(websocket)
            receiving = asyncio.create_task(page.receive())
            try:
                await page.attach()
                await page.resize(width, height)
                yield page
                await page.close()
            finally:
                receiving.cancel()
                await asyncio.wait([receiving])


class Page:
    """A page in the browser."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        """Errors and warnings in the console, in order."""
        self._websocket = websocket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = self._target = ""

    async def attach(self) -> None:
        """Create the page and subscribe to its console."""
        self._target = (await self.ask("Target.createTarget", url="about:blank"))["targetId"]
        attached = await self.ask("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.ask(f"{domain}.enable")

    async def close(self) -> None:
        """Close the page."""
        await self.ask("Target.closeTarget", targetId=self._target)

    async def open(self, url: str) -> None:
        """Open a URL and wait until it is loaded."""
        gone = await self.ask("Page.navigate", url=url)
        assert not gone.get("errorText"), gone["errorText"]  # noqa: S101  a test's own
        await self.until("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:  # noqa: ANN401  any JSON value
        """Run a script in the page and return its result."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            message = answer["exceptionDetails"]
            raise AssertionError(message.get("exception", {}).get("description") or message["text"])
        return answer["result"].get("value")

    async def until(self, script: str, *, seconds: float = TIMEOUT) -> None:
        """Wait until a script returns true."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while not await self.run(script):
            assert clock() < deadline, f"timed out after {seconds:.0f} s waiting until {script}: {self.complaints}"  # noqa: S101  a test's own
            await asyncio.sleep(INTERVAL)

    async def text(self, selector: str) -> str:
        """Return the text of an element."""
        return str(await self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    async def press(self, key: str) -> None:
        """Press a key: a letter, or a name as `ArrowDown`."""
        named = {"windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {"text": key}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **named, **text)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    async def write(self, words: str) -> None:
        """Type into the focused element."""
        for letter in words:
            await self.press(letter)

    async def point(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the pointer, and optionally click."""
        await self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def resize(self, width: int, height: int) -> None:
        """Resize the page."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def prefer(self, **features: str) -> None:
        """Emulate a media preference: `color_scheme="dark"`."""
        message = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        await self.ask("Emulation.setEmulatedMedia", features=message)

    async def screenshot(self) -> bytes:
        """Return a screenshot as PNG."""
        taken = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(taken["data"])

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a protocol command and wait for its result."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        await self._websocket.send_json(message)
        async with asyncio.timeout(TIMEOUT):
            reply = await answer
        if "error" in reply:
            raise AssertionError(f"{method}: {reply['error']}")
        return dict(reply["result"])

    async def receive(self) -> None:
        """Process a message of the browser."""
        async for frame in self._websocket:
            message = json.loads(frame.data)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            else:
                self._note(message["method"], message.get("params", {}))

    def _note(self, method: str, message: Mapping[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = message["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and message["type"] in ("error", "warning", "assert"):
            values = (each.get("value", each.get("description")) for each in message["args"])
            self.complaints.append(" ".join(map(str, values)))
        elif method == "Log.entryAdded" and message["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{message['entry']['text']} {message['entry'].get('url', '')}".strip())
