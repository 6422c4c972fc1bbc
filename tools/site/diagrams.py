"""Convert the mermaid sequence diagrams of the pages to SVG, so that the site needs no script for them.

Code hosts render mermaid themselves. Only the syntax that the pages use is supported: participants, notes and arrows;
anything else is an error. Lines and text have the colour of the surrounding text, for light and dark mode.
"""

import html
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

COLUMN, ROW, TOP, HALF_BOX = 150, 34, 44, 58
_PARTICIPANT = re.compile(r"participant (?P<name>\w+) as (?P<title>.+)")
_NOTE = re.compile(r"Note over (?P<first>\w+),(?P<last>\w+): (?P<text>.+)")
_ARROW = re.compile(r"(?P<first>\w+)(?P<kind>--?>>)(?P<last>\w+): (?P<text>.+)")


class UnsupportedSyntax(ValueError):
    """A line of a diagram that is not supported."""


class Step(msgspec.Struct, frozen=True):
    """One arrow or note, between two participants."""

    first: int
    last: int
    text: str
    kind: str


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension: a code block of the language mermaid becomes an SVG."""
    app.add_directive("mermaid", _Mermaid)
    app.config.myst_fence_as_directive = {"mermaid"}
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def draw(text: str) -> str:
    """Return the SVG of a sequence diagram. Raises `UnsupportedSyntax`."""
    names, steps = _read(text)
    width, height = COLUMN * len(names), TOP + ROW * (len(steps) + 1)
    elements = [
        *_participants(list(names.values()), height),
        *(_step(step, TOP + ROW * at) for at, step in enumerate(steps, 1)),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="13">'
    title = f"<title>{html.escape('; '.join(step.text for step in steps))}</title>"
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        ' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    )
    return "".join([head, title, marker, *elements, "</svg>"])


class _Mermaid(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            svg = draw("\n".join(self.content))
        except UnsupportedSyntax as error:
            raise self.error(str(error)) from None
        return [nodes.raw("", f'<div class="diagram">{svg}</div>', format="html")]


def _read(text: str) -> tuple[dict[str, str], list[Step]]:
    kind, *lines = filter(None, map(str.strip, text.splitlines()))
    if kind != "sequenceDiagram":
        raise UnsupportedSyntax(f"only sequenceDiagram is supported, not {kind!r}")
    names: dict[str, str] = {}
    steps: list[Step] = []
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            names[found["name"]] = found["title"]
        elif found := _NOTE.fullmatch(line) or _ARROW.fullmatch(line):
            order = list(names)
            kind = found.groupdict().get("kind", "note")
            steps.append(Step(order.index(found["first"]), order.index(found["last"]), found["text"], kind))
        else:
            raise UnsupportedSyntax(f"unsupported line {line!r}; use participant, Note over, ->> or -->>")
    return names, steps


def _participants(titles: list[str], height: int) -> Iterator[str]:
    for at, title in enumerate(titles):
        middle = _middle(at)
        yield f'<path d="M{middle} 32V{height}" stroke="currentColor" stroke-opacity=".4" stroke-dasharray="3 3"/>'
        yield f'<rect x="{middle - HALF_BOX}" y="4" width="{2 * HALF_BOX}" height="28" rx="4" fill="none"'
        yield ' stroke="currentColor"/>'
        yield _text(middle, 22, title, weight="bold")


def _step(step: Step, y: int) -> str:
    left, right = sorted((_middle(step.first), _middle(step.last)))
    if step.kind == "note":
        box = f'<rect x="{left - HALF_BOX}" y="{y - 18}" width="{right - left + 2 * HALF_BOX}" height="24" rx="4"'
        return f'{box} fill="currentColor" fill-opacity=".12"/>{_text((left + right) // 2, y - 2, step.text)}'
    dashes = ' stroke-dasharray="5 3"' if step.kind.startswith("--") else ""
    line = f'stroke="currentColor" fill="none" marker-end="url(#arrow)"{dashes}'
    if step.first == step.last:
        loop = f'<path d="M{left} {y - 10}h28v14h-26" {line}/>'
        return f"{loop}{_text(left + 36, y, step.text, anchor='start')}"
    path = f'<path d="M{_middle(step.first)} {y}H{_middle(step.last)}" {line}/>'
    return f"{path}{_text((left + right) // 2, y - 6, step.text)}"


def _middle(at: int) -> int:
    return COLUMN * at + COLUMN // 2


def _text(x: int, y: int, text: str, *, anchor: str = "middle", weight: str = "normal") -> str:
    attributes = f'x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="currentColor"'
    return f"<text {attributes}>{html.escape(text)}</text>"
