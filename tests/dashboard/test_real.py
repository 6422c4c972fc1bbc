"""The page on a real cluster: API server, ledger, controller, agents and the page's server, each its own process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from parts.loopback import answers, free_port
from parts.pages import clear
from parts.polling import until
from tests.end_to_end.test_one_pod import OUR_ACCOUNTS, Spine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.browser import Browser
    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation")]


class Watched(Spine):
    """A small cluster with a page that looks at it."""

    def watch(self, ledger: str = "") -> str:
        """Start the page with the rights that the printed roles give; tell where it is."""
        port = free_port()
        words = [
            *("dashboard", "--kubeconfig", self.account("podpool-dashboard"), "--ledger", ledger or self.url),
            *("--ledger-token-file", str(self.home / "cluster-token"), "--listen", f"127.0.0.1:{port}"),
        ]
        self.start("dashboard", words, port=port)
        return f"http://127.0.0.1:{port}/"

    def run_pod(self, name: str, node: str) -> str:
        """Schedule a Pod, connect it through the real plugin, and report its address as a kubelet does."""
        self.bind(name, node)
        address = str(self.plugin("ADD", node, name)["ips"][0]["address"]).partition("/")[0]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        self.plane.admin.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})
        return address


@pytest.fixture
def watched(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Watched]:
    """A ledger with a subnet of 61 addresses, a controller, and the agents of two nodes."""
    clear(control_plane)
    made = Watched(control_plane, tmp_path)
    try:
        made.install()
        for node in ("one", "two"):
            made.run_agent(node)
        until(lambda: made.grants("one") and made.grants("two"), "both nodes have addresses")
        yield made
    finally:
        made.stop()


def test_a_real_cluster_is_seen_live(watched: Watched, browser: Browser, pictures: Path) -> None:
    """Pods that the real plugin connects appear by themselves; so does a waiting one; no request is refused."""
    mark = watched.plane.audit.mark()
    url = watched.watch()

    async def scenario() -> None:
        async with browser.page(height=1200) as page:
            await page.open(url)
            await page.until("document.getElementById('nodes-title').textContent === '2 nodes'")
            await page.until("document.getElementById('headline').textContent === 'Every Pod has an address.'")
            addresses = [await asyncio.to_thread(watched.run_pod, f"web-{number}", "one") for number in range(12)]
            await page.until("document.getElementById('sums').textContent.includes('Pods with an address12')")
            await asyncio.to_thread(watched.bind, "waiting", "two")
            await page.until("document.getElementById('headline').textContent.startsWith('1 Pod waits')")
            await page.press("/")
            await page.write(addresses[0])
            await page.until("document.querySelectorAll('#matches [role=option]').length === 1")
            await page.press("Enter")
            await page.until(
                "document.getElementById('detail-body').textContent.includes('Used by Pod default/web-0 on one')"
            )
            await page.until("document.querySelectorAll('.past > li').length > 0")
            (pictures / "real.png").write_bytes(await page.screenshot())
            assert [] == page.complaints

    asyncio.run(scenario())
    assert_only_read(watched, mark)


def test_without_a_ledger_it_shows_what_the_cluster_has(watched: Watched, browser: Browser, pictures: Path) -> None:
    mark = watched.plane.audit.mark()
    address = watched.run_pod("web", "one")
    url = watched.watch("none")
    until(lambda: answers(int(url.rpartition(":")[2].strip("/")), "/readyz"), "it is ready")

    async def scenario() -> None:
        async with browser.page(height=1200) as page:
            await page.open(url)
            await page.until("document.getElementById('headline').textContent === 'Every Pod has an address.'")
            await page.until("document.querySelector('.card .full').textContent.includes('32 on nodes')")
            assert "The capacity is known only with a ledger." in await page.text(".card .forecast")
            assert "available only with a ledger" in await page.text("#addresses-title")
            await page.press("/")
            await page.write(address)
            await page.until("document.querySelectorAll('#matches [role=option]').length === 1")
            await page.press("Enter")
            await page.until("document.getElementById('detail-body').textContent.includes('Used by Pod default/web')")
            assert "needs a ledger, and none is configured" in await page.text("#detail-body")
            (pictures / "no-ledger.png").write_bytes(await page.screenshot())
            assert [] == page.complaints

    asyncio.run(scenario())
    assert_only_read(watched, mark)


def assert_only_read(watched: Watched, mark: int) -> None:
    """The page asked for nothing that it may not have, and changed nothing."""
    asked = [each for each in watched.plane.audit.calls(since=mark) if each.user == f"{OUR_ACCOUNTS}dashboard"]
    assert {"get", "list", "watch"} >= {each.verb for each in asked}
    assert [] == [each for each in asked if each.status in (401, 403)]
