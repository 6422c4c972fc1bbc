"""A page in a real browser, on a cluster: opened, and ready to be looked at."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from parts.axe import script
from podpool.runtime.http_server import serving
from tests.dashboard.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from parts.browser import Browser, Page

SHOWN = "Number(document.documentElement.dataset.shown ?? 0) > 0"
"""The page has drawn something."""
MAPPED = "document.querySelectorAll('#map-legend li').length > 0"
"""The map was asked for and drawn."""

DEMAND = {f"node-{number:02}": 3 + number % 5 for number in range(8)}


class OpenDashboard:
    """A cluster, and a page that looks at it."""

    def __init__(self, cluster: FakeCluster, page: Page, url: str) -> None:
        self.cluster = cluster
        self.page = page
        self.url = url

    async def set_pods(self, demand: Mapping[str, int], *, seconds: float = 1.0) -> None:
        """Let something happen on the cluster, and the page be message."""
        await self.cluster.set_pods(demand)
        await self.cluster.later(seconds)

    async def faults(self) -> list[str]:
        """What axe finds: the rule, and where it is broken."""
        if not await self.page.run("typeof axe === 'object'"):
            await self.page.run(script())
        found = await self.page.run("axe.run().then((message) => message.violations)")
        return [f"{each['id']}: {[node['target'] for node in each['nodes']]}" for each in found]

    async def box(self, selector: str) -> dict[str, Any]:
        """Where an element is."""
        found = await self.page.run(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        return dict(found)


async def filled(cidr: str = "10.40.0.0/24", demand: Mapping[str, int] = DEMAND) -> FakeCluster:
    """A cluster with a subnet, nodes and Pods, a network in slices, and an Event."""
    cluster = FakeCluster()
    await cluster.open(cidr, gateway=cidr.partition("/")[0][:-1] + "1", excluded=())
    await cluster.set_pods(demand)
    slices = {name: (f"10.9.0.{16 * number}/28", 2 * number % 15) for number, name in enumerate(list(demand)[:8])}
    cluster.divide("storage", "10.9.0.0/16", slices)
    await cluster.later(1)
    cluster.add_event(next(iter(demand)), "something that a person should know", warning=True)
    await cluster.later(1)
    return cluster


@asynccontextmanager
async def open_dashboard(
    browser: Browser, cluster: FakeCluster, *, width: int = 1440, height: int = 1000
) -> AsyncIterator[OpenDashboard]:
    """Open the page; at the end nothing may have been complained about."""
    async with serving(cluster.page, host="127.0.0.1", port=0, grace=0.1) as port:
        url = f"http://127.0.0.1:{port}/"
        async with browser.page(width=width, height=height) as page:
            await page.open(url)
            await page.until(SHOWN)
            await page.until(MAPPED)
            yield OpenDashboard(cluster, page, url)
            assert [] == page.complaints
