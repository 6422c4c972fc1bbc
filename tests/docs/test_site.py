"""The documentation site builds without warnings, works offline, and its search finds pages."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from parts.pages import ROOT
from tools.site.diagrams import UnsupportedSyntax, draw
from tools.site.navigation import trees

if TYPE_CHECKING:
    from pathlib import Path

LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "srcset"}
"""Elements and attributes that load a resource."""

# The group makes all tests read one site: each worker would build its own.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it; a warning, such as a broken link, fails the build."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", target], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stderr
    return target


def test_every_page_exists(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    assert [] == [str(page) for page in pages if not (site / page).exists()]


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        reader = Reader()
        reader.feed(page.read_text())
        assert [] == [each for each in reader.loaded if re.match("(https?:)?//", each)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\([\"']?|@import [\"'])(https?:)?//", sheet.read_text()), sheet


def test_search_works_without_a_server(site: Path) -> None:
    """The index is a script, so that it loads from a file too."""
    index = (site / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    assert "podpool_subnet_wait" in index
    assert "requestedipcount" in index


def test_it_has_a_dark_mode(site: Path) -> None:
    assert "prefers-color-scheme:dark" in "".join(sheet.read_text() for sheet in site.rglob("furo.css"))


def test_diagrams_are_svg(site: Path) -> None:
    page = (site / "architecture.html").read_text()
    assert page.count('<div class="diagram"><svg ') == 1
    assert "requestedIPCount 15</text>" in page
    assert "sequenceDiagram" not in page


def test_unsupported_diagram_syntax_is_an_error() -> None:
    with pytest.raises(UnsupportedSyntax, match="only sequenceDiagram"):
        draw("flowchart LR\n  a --> b")
    with pytest.raises(UnsupportedSyntax, match="alt else"):
        draw("sequenceDiagram\n  participant a as one\n  alt else")


def test_the_navigation_follows_the_index_page() -> None:
    page = "# t\n\n## Begin\n\n- [One](one.md): first\n- [Two](b/two.md)\n\n## Words\n\nnone\n"
    assert [("Begin", [("One", "one"), ("Two", "b/two")])] == list(trees(page))


class Reader(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in LOADED and attributes.get("rel") not in {"next", "prev", "index", "search", "canonical"}:
            self.loaded.append(attributes.get(LOADED[tag]) or "")
