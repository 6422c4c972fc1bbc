"""Measured figures in prose are those of the last benchmark, the same on every page."""

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def measured(name: str) -> dict[str, float]:
    results = json.loads((DOCS / "benchmarks.json").read_text())["results"]
    (found,) = [each["ours"] for each in results if each["id"] == name]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("page", ["operating.md", "slices.md"])
def test_the_cpu_of_a_write_to_an_ippool(page: str) -> None:
    text = " ".join((DOCS / page).read_text().split())
    for nodes, microseconds in measured("slice-pool-write-cpu-growth-exponent").items():
        if nodes in {"64", "5000"}:
            assert f"{microseconds / 1000:.0f} ms" in text, f"{nodes} nodes"
