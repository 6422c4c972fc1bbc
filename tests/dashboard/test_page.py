"""The page in a real browser: what it shows, that it follows, and that everybody can use it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from podpool.runtime.http_server import serving
from podpool.runtime.transport import Response
from tests.dashboard.dashboard_page import MAPPED, SHOWN, OpenDashboard, filled, open_dashboard
from tests.dashboard.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from parts.browser import Browser, Page
    from podpool.runtime.transport import Request

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("browser")]

ACTIVE = "document.getElementById('node-active').textContent"
COVERED = """[...document.querySelectorAll('.grid')].every((grid) => {
    const [canvas, room] = [grid.querySelector('canvas'), grid.querySelector('.container')];
    return canvas.clientHeight >= Math.min(grid.clientHeight, room.clientHeight);
})"""
"""No grid has room in which nothing is drawn."""
SLOW = """void (() => {
    const real = window.fetch;
    window.late = [];
    window.fetch = async (...asked) => {
      const answer = await real(...asked);
      await new Promise((go) => late.push(go));
      return answer;
    };
})()"""
"""Makes answers late, each until somebody lets it go."""
DRAWER = "document.getElementById('detail').open"


def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_it_shows_subnets_nodes_addresses_slices_and_events(browser: Browser, pictures: Path) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            page = show.page
            assert "Every Pod has an address." == await page.text("#headline")
            card = await page.text("#subnet-cards article")
            assert "vnet.pods" in card
            assert "10.40.0.0/24" in card
            assert "Not enough data yet." in card
            assert "8 nodes" == await page.text("#nodes-title")
            assert "37 assigned" in await page.text("#map-legend")
            assert "8 of 4\u202f096 slices assigned" in await page.text("#network-list")
            assert "something that a person should know" in await page.text("#activity-list")
            assert "live" == await page.text("#link-text")
            (pictures / "page.png").write_bytes(await page.screenshot())

    run_scenario(scenario())


def test_nodes_without_a_slice_are_shown_with_the_remedy(browser: Browser, pictures: Path) -> None:
    """A cluster without a ledger has no panels of subnets and addresses."""

    async def scenario() -> None:
        cluster = FakeCluster(has_ledger=False)
        names = [f"node-{number:02}" for number in range(12)]
        slices = {name: (f"10.9.0.{32 * number}/27", number) for number, name in enumerate(names[:8])}
        cluster.divide("storage", "10.9.0.0/24", slices, size="/27", waiting=names[8:])
        for name in names:
            cluster.join(name)
            cluster.add_event(name, "no free slice of 10.9.0.0/24", warning=True)
        cluster.feed.refresh()
        async with serving(cluster.page, host="127.0.0.1", port=0, grace=0.1) as port, browser.page() as page:
            await page.open(f"http://127.0.0.1:{port}/")
            await page.until(SHOWN)
            assert "Every Pod has an address. 4 nodes wait for a slice of network storage." == await page.text(
                "#headline"
            )
            assert "12 nodes, 4 without a slice" == await page.text("#nodes-title")
            shown = await page.text("#network-list")
            assert "8 of 8 slices assigned" in shown
            assert "4 nodes without a slice: use a larger range, such as 10.9.0.0/23, or node_slice_size /28" in shown
            assert "nodes without a slice4" in await page.text("#sums")
            assert "Node node-00 and 11 more: no free slice" in await page.text("#activity-list")
            hidden = "[...document.querySelectorAll('section, nav a')].filter((each) => !each.checkVisibility())"
            assert ["subnets", "addresses"] == await page.run(
                f"{hidden}.filter((each) => each.id).map((each) => each.id)"
            )
            assert ["Subnets", "Addresses"] == await page.run(
                f"{hidden}.filter((each) => !each.id).map((each) => each.text)"
            )
            assert [] == await OpenDashboard(cluster, page, "").faults()
            await page.press("/")
            await page.write("node-11")
            await page.until("document.querySelectorAll('#matches [role=option]').length === 1")
            await page.press("Enter")
            await page.until("document.getElementById('detail-body').textContent.includes('waits for a slice')")
            (pictures / "slices.png").write_bytes(await page.screenshot())
            assert [] == page.complaints

    run_scenario(scenario())


def test_it_follows_what_happens(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            await show.set_pods({"node-00": 40, "node-99": 2})
            await show.page.until("document.getElementById('nodes-title').textContent.startsWith('9 nodes')")
            joined = "document.getElementById('activity-list').textContent.includes('Node node-99 joined')"
            await show.page.until(joined)
            cluster.bind("lonely", "node-01")
            await cluster.later(1)
            await cluster.later(3)
            await show.page.until(
                "document.getElementById('headline').textContent === '1 Pod waits for an address on 1 node.'"
            )
            await show.page.until("document.querySelector('.hero').dataset.mood === 'bad'")

    run_scenario(scenario())


def test_what_is_open_beside_the_page_follows_too(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            await show.page.run("document.getElementById('search').focus()")
            await show.page.write("node-03")
            await show.page.until("document.querySelectorAll('#matches [role=option]').length > 0")
            await show.page.press("Enter")
            message = "document.getElementById('detail-body').textContent"
            await show.page.until(f"{DRAWER} && {message}.includes('6 of them assigned')")
            await show.set_pods({"node-03": 9})
            await asyncio.sleep(2)
            await cluster.later(1)
            await show.page.until(f"{message}.includes('9 of them assigned')")

    run_scenario(scenario())


def test_a_scarce_subnet_shows_its_history(browser: Browser, pictures: Path) -> None:
    """Thresholds, exhaustion, a shrinking batch, a forecast with its uncertainty, waiting Pods and for how long."""

    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster, height=1300) as show:
            for step in range(40):
                await show.set_pods(
                    {name: 4 + number + step * 3 // 4 for number, name in enumerate(cluster.model.nodes)}, seconds=6
                )
            page = show.page
            await page.until("document.querySelectorAll('.chart .band').length > 0")
            await page.until("document.querySelectorAll('.chart .threshold').length === 2")
            await page.until("document.querySelector('.ladder [aria-current]').textContent !== '16'")
            await page.until("!document.querySelector('.forecast').textContent.includes('Not enough')")
            await page.until("document.querySelector('.chip').textContent.startsWith('full: ')")
            first = await page.run(ACTIVE)
            assert " wait, default/" in first
            (pictures / "scarce.png").write_bytes(await page.screenshot())

    run_scenario(scenario())


def test_what_is_searched_for_is_found_with_its_history(browser: Browser, pictures: Path) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            page = show.page
            await page.press("/")
            assert "search" == await page.run("document.activeElement.id")
            await page.write("node-03")
            marked = "document.querySelector('#matches [aria-selected=true]')?.textContent"
            await page.until(f"{marked}?.startsWith('nodenode-03')")
            assert await page.run("document.querySelectorAll('#matches [role=option]').length > 2")
            await page.press("ArrowDown")
            await page.until("document.querySelector('#matches [aria-selected=true] .of').textContent === 'pod'")
            (pictures / "search.png").write_bytes(await page.screenshot())
            await page.press("Enter")
            await page.until(f"{DRAWER} && document.querySelectorAll('.past > li').length > 0")
            assert "default/node-03-0" == await page.text("#detail-title")
            assert "It has 10.40.0." in await page.text("#detail-body")
            assert f" in {cluster.subnet.network}" in await page.text(".past > li")
            assert [] == await show.faults()
            (pictures / "history.png").write_bytes(await page.screenshot())
            await page.press("Escape")
            await page.until(f"!{DRAWER}")
            cluster.caches.pods.discard("default/node-03-0")
            await page.run("document.getElementById('search').focus()")
            await page.write("node-03-0")
            await page.until(
                "document.querySelector('#matches [aria-selected=true] .detail')?.textContent"
                ".startsWith('It was deleted')"
            )
            await page.press("Enter")
            await page.until(f"{DRAWER} && document.querySelectorAll('.past > li').length > 0")
            assert "It was deleted: " in await page.text("#detail-body")
            await page.press("Escape")
            await page.until(f"!{DRAWER}")
            await page.press("/")
            await page.write("nothing-like-it")
            await page.until("document.getElementById('matches').textContent.includes('No match.')")
            await page.press("Escape")

    run_scenario(scenario())


def test_colours_follow_the_system_and_a_choice_is_kept(browser: Browser, pictures: Path) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            page = show.page
            ground = "getComputedStyle(document.body).backgroundColor"
            light = await page.run(ground)
            await page.prefer(color_scheme="dark")
            dark = await page.run(ground)
            assert light != dark
            (pictures / "dark.png").write_bytes(await page.screenshot())
            await page.run("document.getElementById('theme').click()")
            assert light == await page.run(ground)
            await page.open(show.url)
            await page.until(SHOWN)
            assert light == await page.run(ground)
            assert "Theme: light" == await page.run("document.getElementById('theme').ariaLabel")
            await page.run("localStorage.clear()")

    run_scenario(scenario())


def test_everything_can_be_reached_with_the_keyboard(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster) as show:
            page = show.page
            reached = []
            for _ in range(60):
                await page.press("Tab")
                reached.append(await page.run("document.activeElement.id || document.activeElement.className"))
            assert {"skip", "search", "theme", "chart", "node-order", "node-grid", "map-subnet", "address-grid"} <= set(
                reached
            )
            await page.run("document.getElementById('node-grid').focus()")
            first = await page.run(ACTIVE)
            await page.press("ArrowRight")
            assert first != await page.run(ACTIVE)
            await page.press("Home")
            assert first == await page.run(ACTIVE)
            await page.press("End")
            await page.press("Enter")
            await page.until(DRAWER)
            await page.press("Escape")
            await page.run("document.getElementById('address-grid').focus()")
            for _ in range(4):
                await page.press("ArrowRight")
            address = "document.getElementById('address-active').textContent"
            assert str(await page.run(address)).startswith("10.40.0.4, ")
            await page.until(f"{address}.includes(' since ')")
            await page.run("document.querySelector('.chart').focus()")
            await page.press("ArrowLeft")
            await page.until("document.getElementById('announcer').textContent.includes('assigned')")

    run_scenario(scenario())


def test_pointing_at_an_address_shows_its_owner_and_since_when(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster, height=1600) as show:
            page = show.page
            place = await show.box("#address-grid canvas")
            left = await page.run("parseFloat(getComputedStyle(document.documentElement).fontSize) * 7")
            size = (place["width"] - left) / 32
            await page.point(place["x"] + left + 12 * min(size, 28) + 4, place["y"] + 5)
            await page.until("!document.getElementById('tip').hidden")
            await page.until("document.getElementById('tip').textContent.includes(' since ')")

    run_scenario(scenario())


@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1440, 900), (3840, 2160)])
def test_nothing_keeps_people_from_using_it(browser: Browser, pictures: Path, width: int, height: int) -> None:
    """From a phone to a wall, in both colours: axe finds nothing, and nothing sticks out sideways."""

    async def scenario() -> None:
        cluster = await filled()
        async with open_dashboard(browser, cluster, width=width, height=height) as show:
            for scheme in ("light", "dark"):
                await show.page.prefer(color_scheme=scheme)
                assert [] == await show.faults()
            assert width >= await show.page.run("document.documentElement.scrollWidth")
            (pictures / f"{width}.png").write_bytes(await show.page.screenshot())

    run_scenario(scenario())


def test_five_thousand_nodes(browser: Browser, pictures: Path) -> None:
    """Only what is in sight is drawn and in the document; a change of one of them arrives as a change of one."""

    async def scenario() -> None:
        cluster = await filled("10.0.0.0/15", {f"node-{number:04}": number % 12 for number in range(5000)})
        async with open_dashboard(browser, cluster) as show:
            page = show.page
            title = await page.text("#nodes-title")
            assert "5\u202f000 nodes" == title
            assert 600 > await page.run("document.querySelectorAll('*').length")
            assert 500 >= await page.run("document.querySelector('#node-grid canvas').getBoundingClientRect().height")
            scrolled = """(async () => {
                const grid = document.getElementById('node-grid');
                for (let step = 0; step < 60; step++) {
                  grid.scrollTop += 60;
                  await new Promise(requestAnimationFrame);
                }
                return grid.scrollTop;
            })()"""
            assert await page.run(scrolled) > 1000
            await page.run("document.getElementById('node-grid').focus()")
            await page.press("End")
            last = await page.run(ACTIVE)
            assert last.startswith("node-")
            cluster.bind("late", "node-2500")
            await cluster.later(1)
            await page.until("document.getElementById('nodes-title').textContent.includes('1 with waiting Pods')")
            await page.press("Home")
            assert str(await page.run(ACTIVE)).startswith("node-2500, ")
            await page.resize(3840, 2160)
            await page.until(COVERED)
            (pictures / "many.png").write_bytes(await page.screenshot())

    run_scenario(scenario())


def test_before_the_first_snapshot_it_is_stated(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        async with serving(cluster.page, host="127.0.0.1", port=0, grace=0.1) as port, browser.page() as page:
            await page.open(f"http://127.0.0.1:{port}/")
            await page.until(SHOWN)
            assert "No data has been read yet." == await page.text("#headline")
            cluster.model.problems["the ledger"] = "the ledger cannot be reached: it is away"
            cluster.feed.refresh()
            await page.until("!document.getElementById('problems').hidden")
            assert [] == await OpenDashboard(cluster, page, "").faults()
            await page.press("Tab")
            assert [] == page.complaints

    run_scenario(scenario())


def test_it_takes_up_where_it_was_when_the_server_comes_back(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = await filled()
        async with serving(cluster.page, host="127.0.0.1", port=0, grace=0.1) as port:
            pass
        async with browser.page() as page:
            async with serving(cluster.page, host="127.0.0.1", port=port, grace=0.1):
                await page.open(f"http://127.0.0.1:{port}/")
                await page.until(MAPPED)
            await page.until("document.getElementById('link-text').textContent === 'reconnecting'")
            await cluster.set_pods({"node-77": 1})
            await cluster.later(1)
            async with serving(cluster.page, host="127.0.0.1", port=port, grace=0.1):
                await page.until("document.getElementById('link-text').textContent === 'live'")
                await page.until("document.getElementById('nodes-title').textContent.startsWith('9 nodes')")

    run_scenario(scenario())


def test_it_follows_again_after_it_was_refused(browser: Browser) -> None:
    """A browser gives up for good on an answer that is no stream."""

    async def scenario() -> None:
        cluster = await filled()
        refusing = True

        async def door(request: Request) -> Response:
            return Response(503) if refusing and request.path == "/api/stream" else await cluster.page(request)

        async with serving(door, host="127.0.0.1", port=0, grace=0.1) as port, browser.page() as page:
            await page.open(f"http://127.0.0.1:{port}/")
            await page.until("document.getElementById('link-text').textContent === 'reconnecting'")
            refusing = False
            await page.until("document.getElementById('link-text').textContent === 'live'")

    run_scenario(scenario())


def test_an_event_that_is_received_twice_at_once_is_shown_once(browser: Browser) -> None:
    async def scenario() -> None:
        async with open_dashboard(browser, await filled()) as show:
            received = """import('/stream.js').then(({ ClusterState }) => {
                const known = new ClusterState();
                const at = '2026-01-01T00:00:00Z';
                const entries = [['once', 'e'], ['twice', 'e'], ['other', undefined]];
                known.addActivity(entries.map(([message, key]) => ({ at, message, key })));
                return known.activity.map((each) => each.message);
            })"""
            assert ["twice", "other"] == await show.page.run(received)

    run_scenario(scenario())


async def last_shown(page: Page, selector: str, *, while_: str) -> str:
    """Let the second of two answers go, then the first; tells what the second showed."""
    await page.run("late[1]()")
    await page.until(f"document.querySelector('{selector}').textContent !== {json.dumps(while_)}")
    message = await page.text(selector)
    await page.run("late[0](); new Promise((go) => setTimeout(go, 50))")
    return message


def test_a_late_answer_is_for_who_asked(browser: Browser) -> None:
    """Of the drawer and of the map: what was asked for last is shown, whoever is answered last."""

    async def scenario() -> None:
        async with open_dashboard(browser, await filled()) as show:
            page = show.page
            await page.run(SLOW)
            for number in (1, 2):
                opened = f"void import('/detail.js').then(({{ openDetail }}) => openDetail('node', 'node-0{number}'))"
                await page.run(opened)
                await page.until(f"late.length === {number}")
            assert await last_shown(page, "#detail-body", while_="Loading …") == await page.text("#detail-body")
            await page.press("Escape")
            await page.run("late = []; void document.getElementById('map-subnet').dispatchEvent(new Event('change'))")
            await page.until("late.length === 1")
            before = await page.text("#map-legend")
            await show.set_pods({"node-88": 3})
            await page.until("late.length === 2")
            assert await last_shown(page, "#map-legend", while_=before) == await page.text("#map-legend")

    run_scenario(scenario())


def test_enter_waits_for_the_answer_to_what_is_written(browser: Browser) -> None:
    async def scenario() -> None:
        async with open_dashboard(browser, await filled()) as show:
            page = show.page
            await page.press("/")
            await page.write("node-0")
            await page.until("document.querySelectorAll('#matches [role=option]').length > 2")
            await page.write("5")
            await page.press("Enter")
            await page.until(DRAWER)
            assert "node-05" == await page.text("#detail-title")
            await page.press("Escape")
            await page.run("window.fetch = () => Promise.reject(new TypeError('away'))")
            await page.press("/")
            await page.write("node")
            await page.until("document.getElementById('matches').textContent.includes('server does not respond')")
            await page.press("Escape")

    run_scenario(scenario())


def test_a_browser_that_may_keep_nothing_still_has_colours(browser: Browser) -> None:
    async def scenario() -> None:
        async with open_dashboard(browser, await filled()) as show:
            page = show.page
            forbidden = "{ get() { throw new DOMException('forbidden', 'SecurityError') } }"
            await page.run(f"void Object.defineProperty(window, 'localStorage', {forbidden})")
            await page.run("import('/theme.js').then(({ watchTheme }) => watchTheme(() => (window.coloured = true)))")
            assert await page.run("window.coloured")
            before = await page.run("document.getElementById('theme').ariaLabel")
            await page.run("document.getElementById('theme').click()")
            assert before != await page.run("document.getElementById('theme').ariaLabel")

    run_scenario(scenario())


def test_a_map_of_ipv6_names_its_addresses(browser: Browser) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        await cluster.open("fd00::/122")
        await cluster.set_pods({"a": 3})
        await cluster.later(1)
        async with open_dashboard(browser, cluster) as show:
            await show.page.run("document.getElementById('address-grid').focus()")
            await show.page.press("End")
            message = await show.page.run("document.getElementById('address-active').textContent")
            assert message.startswith("fd00::3f, ")

    run_scenario(scenario())
