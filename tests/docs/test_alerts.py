"""Alerts are valid, use metrics that exist, and name a heading of docs/operating.md as their runbook."""

import asyncio
import re
from typing import Any

import msgspec
import promql_parser
import pytest

from parts.pages import ROOT
from tools.reference.metrics import DocumentedMetric, metrics_by_component

RULES = [
    rule
    for group in msgspec.yaml.decode((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
KNOWN: dict[str, DocumentedMetric] = {
    series: each
    for metrics in asyncio.run(metrics_by_component()).values()
    for each in metrics
    for series in each.series
}


@pytest.fixture(params=RULES, ids=lambda rule: str(rule["alert"]))
def rule(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  a rule of the file
    return request.param


def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    assert series_of(rule) <= KNOWN.keys()


def test_labels_in_its_summary_exist(rule: dict[str, Any]) -> None:
    known = {"instance", "job", *(label for series in series_of(rule) for label in KNOWN[series].labels)}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= known


def test_its_runbook_exists(rule: dict[str, Any]) -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    assert rule["annotations"]["runbook"] in {heading.lower().replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in {"critical", "warning"}


def series_of(rule: dict[str, Any]) -> set[str]:
    """Return the series in a rule's expression."""
    found: set[str] = set()

    def collect(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.add(str(part.name))

    promql_parser.walk(promql_parser.parse(rule["expr"]), collect)
    assert found
    return found
