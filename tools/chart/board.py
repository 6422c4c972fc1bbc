"""The Grafana board: capacity, waiting Pods, free addresses, slices, health of ledger, controller and agents."""

from __future__ import annotations

import json
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
SUBNET = "{{network}}.{{subnet}}"
RANGE = "{{network}} {{range}}"
RECONCILE = 'rate(podpool_ledger_request_duration_seconds_bucket{path="/v1/reconcile"}[5m])'

# title, unit, and legend by query
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Waiting: addresses that Pods lack", "short", {"sum by (network, subnet) (podpool_subnet_waiting)": SUBNET}),
    (
        "Free addresses by subnet",
        "short",
        {"podpool_subnet_capacity - on (network, subnet) podpool_subnet_reserved": SUBNET},
    ),
    (
        "Use of each subnet",
        "percentunit",
        {"podpool_subnet_reserved / on (network, subnet) podpool_subnet_capacity": SUBNET},
    ),
    (
        "Capacity and reserved, with the trend of a week",
        "short",
        {
            "sum by (network, subnet) (podpool_subnet_capacity)": f"{SUBNET} capacity",
            "sum by (network, subnet) (podpool_subnet_reserved)": f"{SUBNET} reserved",
            "predict_linear(podpool_subnet_reserved[6h], 7 * 86400)": f"{SUBNET} in a week",
        },
    ),
    (
        "Grants and releases per second",
        "ops",
        {
            "rate(podpool_subnet_grants_total[5m])": f"{SUBNET} grants",
            "rate(podpool_subnet_releases_total[5m])": f"{SUBNET} releases",
        },
    ),
    (
        "Batch, and cooling down",
        "short",
        {"podpool_subnet_batch": f"{SUBNET} batch", "podpool_subnet_cooling_down": f"{SUBNET} cooling down"},
    ),
    (
        "Nodes with most idle addresses",
        "short",
        {"topk(10, sum by (instance) (cx_ipam_available_ips))": "{{instance}}"},
    ),
    (
        "Nodes with most Pods",
        "short",
        {"topk(10, sum by (instance) (cx_ipam_pod_allocated_ips))": "{{instance}}"},
    ),
    (
        "ADD, 99th percentile",
        "s",
        {"histogram_quantile(0.99, sum by (le) (rate(podpool_agent_add_seconds_bucket[5m])))": "all nodes"},
    ),
    (
        "Slices assigned, and free",
        "short",
        {
            "podpool_controller_slices_assigned": f"{RANGE} assigned",
            "podpool_controller_slices_free": f"{RANGE} free",
        },
    ),
    ("Nodes without a slice", "short", {"podpool_controller_slices_nodes_waiting": RANGE}),
    (
        "Agents that are fenced, or fail ADDs",
        "short",
        {
            "sum(podpool_agent_fenced)": "fenced",
            "sum(rate(podpool_agent_cni_errors_total[5m]))": "CNI errors per second",
        },
    ),
    (
        "Ledger: reconcile, 99th percentile",
        "s",
        {f"histogram_quantile(0.99, sum by (le) ({RECONCILE}))": "reconcile"},
    ),
    (
        "Ledger: requests per second by status",
        "reqps",
        {"sum by (status) (rate(podpool_ledger_requests_total[5m]))": "{{status}}"},
    ),
    (
        "Controller: leader, and seconds without the ledger",
        "short",
        {
            "sum(podpool_controller_leader)": "leaders",
            "max(podpool_controller_ledger_unreachable_seconds)": "seconds without the ledger",
        },
    ),
)


def board() -> str:
    """Return the board as JSON, for a ConfigMap or an import."""
    return json.dumps(
        {
            "title": "podpool",
            "uid": "podpool",
            "schemaVersion": 39,
            "tags": ["podpool", "ipam"],
            "time": {"from": "now-6h", "to": "now"},
            "refresh": "30s",
            "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
            "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
        },
        indent=1,
    )


def _panel(number: int, title: str, unit: str, queries: dict[str, str]) -> dict[str, Any]:
    place = {"x": number % COLUMNS * WIDTH, "y": number // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": SOURCE}
        for index, (query, legend) in enumerate(queries.items())
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
