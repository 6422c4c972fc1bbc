"""Alerts can be read, speak of metrics that there are, and lead to what is to be done."""

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
def rule(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401  a rule as it is written
    return request.param


def test_it_speaks_of_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert series_of(rule) <= KNOWN.keys()


def test_its_sentence_has_labels_that_there_are(rule: dict[str, Any]) -> None:
    there = {"instance", "job", *(label for series in series_of(rule) for label in KNOWN[series].labels)}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= there


def test_it_leads_to_what_is_to_be_done(rule: dict[str, Any]) -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    assert rule["annotations"]["runbook"] in {heading.lower().replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in {"critical", "warning"}


def series_of(rule: dict[str, Any]) -> set[str]:
    """The series that a rule is about; raises when it cannot be read."""
    found: set[str] = set()

    def look(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.add(str(part.name))

    promql_parser.walk(promql_parser.parse(rule["expr"]), look)
    assert found
    return found
