"""Build the site's navigation from the sections and links of docs/index.md."""

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

INDEX = "index"
_SECTION = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_LINK = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def trees(page: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Return the sections, each with its links as title and page."""
    heads = list(_SECTION.finditer(page))
    ends = [*(head.start() for head in heads[1:]), len(page)]
    for head, end in zip(heads, ends, strict=True):
        links = [(link["title"], link["page"]) for link in _LINK.finditer(page, head.end(), end)]
        if links:
            yield head["title"], links


def _read(_app: Sphinx, document: str, source: list[str]) -> None:
    if document != INDEX:
        return
    for title, links in trees(source[0]):
        entries = "\n".join(f"{text} <{page}>" for text, page in links)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"
