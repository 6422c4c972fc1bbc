"""Values that are wrong or unsafe are refused before anything is installed; each error names the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.chart.rendering import REQUIRED, Refused, merged, render

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("chart")]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"network": {"profile": "vxlan"}}, "/network/profile"),
    ({"network": {"bridge": "br0/1"}}, "/network/bridge"),
    ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"kubernetes": {"port": 70000}}, "/kubernetes/port"),
    ({"agent": {"mode": "pod"}}, "/agent/mode"),
    ({"agent": {"stateDir": "journal"}}, "/agent/stateDir"),
    ({"agent": {"maxUnavailable": "many"}}, "/agent/maxUnavailable"),
    ({"controller": {"subnet": "pods"}}, "/controller/subnet"),
    ({"controller": {"replicas": 0}}, "/controller/replicas"),
    ({"ledger": {"mode": "mysql"}}, "/ledger/mode"),
    ({"ledger": {"url": "ledger:7780"}}, "/ledger/url"),
    ({"ledger": {"sqlite": {"size": "many"}}}, "/ledger/sqlite/size"),
    ({"ledger": {"tls": {"source": "none"}}}, "/ledger/tls/source"),
    ({"crds": ["example.com"]}, "/crds/0"),
    ({"agents": {}}, "agents"),
    ({"agent": {"replicas": 2}}, "replicas"),
    ({"logLevel": "loud"}, "/logLevel"),
]
UNSAFE: list[tuple[dict[str, Any], str]] = [
    ({"network": {"profile": ""}}, "network.profile is required"),
    ({"network": {"profile": "bridge", "bridge": ""}}, "network.bridge is required"),
    ({"network": {"profile": "macvlan"}}, "network.master is required"),
    ({"network": {"profile": "custom", "conflist": "prose"}}, "network.conflist is required"),
    ({"network": {"conflist": "{}"}}, "network.conflist has no effect"),
    ({"network": {"proxyUplink": "eth0"}}, "network.proxyUplink has no effect"),
    ({"controller": {"subnet": ""}}, "controller.subnet is required"),
    ({"ledger": {"mode": "none"}}, "ledger.mode none means secondary networks only"),
    (
        {"ledger": {"mode": "none"}, "network": {"profile": "none"}, "slices": {"enabled": False}},
        "slices.enabled must be true",
    ),
    ({"ledger": {"replicas": 2}}, "ledger.replicas 2 needs ledger.mode postgresql"),
    ({"ledger": {"mode": "postgresql"}}, "ledger.postgresql.secret is required"),
    ({"ledger": {"mode": "external"}}, "ledger.url is required"),
    ({"ledger": {"mode": "external", "url": "https://a"}}, "ledger.tokens.generate must be false"),
    (
        {"ledger": {"mode": "external", "url": "https://a", "tokens": {"generate": False}}},
        "ledger.tls.source must be secret",
    ),
    ({"ledger": {"sqlite": {"storage": "hostPath"}}}, "ledger.nodeSelector is required"),
    ({"ledger": {"tls": {"source": "certManager"}}}, "ledger.tls.issuer is required"),
    ({"metrics": {"podMonitor": True}}, "metrics.podMonitor needs metrics.enabled"),
]


@pytest.mark.parametrize(("values", "name"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_a_wrong_value_is_named(values: dict[str, Any], name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        render(tmp_path, merged(REQUIRED, values))
    assert name in str(refused.value)


@pytest.mark.parametrize(("values", "reason"), UNSAFE, ids=lambda each: each if isinstance(each, str) else "")
def test_an_unsafe_combination_is_refused_with_a_sentence(values: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        render(tmp_path, merged(REQUIRED, values))
    assert reason in str(refused.value)


def test_another_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="add --namespace kube-system"):
        render(tmp_path, REQUIRED, namespace="podpool")
