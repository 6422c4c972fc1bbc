"""Code and docs use the terms of the glossary (docs/concepts.md), and none of the words that it replaces."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".js", ".html", ".css", ".sql", ".c", ".h", ".toml", ".yaml"}

REPLACED = {
    "told": "logged, reported, configured",
    "tell": "log, report, return",
    "tells": "logs, reports, returns",
    "telling": "logging, reporting",
    "hear": "receive",
    "hears": "receives",
    "heard": "received, last_contact",
    "hearing": "inventory barrier",
    "herald": "event recorder",
    "echoes": "expectations",
    "shelf": "row cache",
    "desk": "context, subnet transaction",
    "seats": "allocator",
    "strays": "orphans",
    "outlook": "scaling inputs",
    "recollection": "journal loss recovery",
    "mishap": "error",
    "mishaps": "errors",
    "room": "package, free addresses",
    "rooms": "packages",
    "books": "database, repository, cache",
    "house": "codebase",
    "road": "transport",
    "roads": "transports",
    "patience": "timeout",
    "pocket": "lite API server",
    "reflector": "informer",
    "witness": "rollback detector",
    "brake": "circuit breaker",
    "resting": "cooling down",
    "rested": "cooled down",
    "story": "demo, scenario",
    "whoever": "the caller, the process",
    "somebody": "another node, a user",
    "nobody": "no node, no caller",
    "classic": "shared range",
    "subnet is short": "exhausted, full or running out; nodes are short",
    "subnet runs short": "exhausted, full or running out; nodes are short",
    "short subnet": "exhausted, full or running out; nodes are short",
}
"""Word -> what to use instead."""

ALLOWED: set[tuple[str, str]] = set()
"""Ordinary English where it is the right word: (word, file)."""


@cache
def everything() -> str:
    """Return all lines in lower case: most words do not occur at all, which one search finds."""
    return "\n".join(line for each in lines().values() for line in each).lower()


@cache
def lines() -> dict[str, list[str]]:
    """Return the lines of the files that users and developers read, by file name."""
    found = [*(ROOT / "src").rglob("*"), *(ROOT / "docs").rglob("*"), ROOT / "README.md"]
    texts = sorted(each for each in found if each.suffix in SUFFIXES and each.is_file())
    return {str(each.relative_to(ROOT)): each.read_text().splitlines() for each in texts}


def occurrences(word: str) -> list[str]:
    """Return where a word occurs, as FILE:LINE."""
    if word not in everything():
        return []
    pattern = re.compile(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])", re.IGNORECASE)
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, each in lines().items()
        if (word, name) not in ALLOWED
        for number, line in enumerate(each, 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("word", sorted(REPLACED))
def test_a_replaced_word_does_not_occur(word: str) -> None:
    assert not occurrences(word), f"use {REPLACED[word]!r}, or allow it in this file in ALLOWED"


def test_no_name_has_a_replaced_word() -> None:
    """Of a function, class or variable, also in tests and tools."""
    defined = re.compile(r"^\s*(?:async )?(?:def|class) (\w+)|^\s*(\w+)(?:: [^=]+)? = ", re.MULTILINE)
    files = [each for folder in ("src", "tests", "parts", "bench", "tools") for each in (ROOT / folder).rglob("*.py")]
    names = {name for each in files for found in defined.findall(each.read_text()) for name in found if name}
    assert [] == sorted(name for name in names if REPLACED.keys() & set(name.lower().split("_")))


def test_allowed_words_occur() -> None:
    """The allowlist has no entries that are not needed."""
    assert [] == [
        (word, name)
        for word, name in sorted(ALLOWED)
        if not re.search(rf"(?<![a-zA-Z]){word}(?![a-zA-Z])", "\n".join(lines()[name]), re.IGNORECASE)
    ]


def test_the_glossary_defines_each_term_once() -> None:
    section = (ROOT / "docs" / "concepts.md").read_text().partition("## Glossary")[2].partition("\n## ")[0]
    terms = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("|")][2:]
    names = [name.strip() for term in terms for name in term.split(",")]
    assert len(names) == len(set(names)) > 30
