"""Links between pages have a target, also on a code host; the site checks those within docs/ too."""

import re
from pathlib import Path

import pytest

from parts.pages import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match("https?://", target):
            continue
        file, _, anchor = target.partition("#")
        target_page = page.parent / file if file else page
        assert target_page.exists(), target
        assert not anchor or anchor in anchors(target_page), target


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as code hosts build them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(), inline=False), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(text: str, *, inline: bool = True) -> str:
    blocks = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", blocks) if inline else blocks
