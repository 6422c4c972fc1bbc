"""The application: its public pages, the metrics, and the admin token."""

import re
import stat
from pathlib import Path
from random import Random

import msgspec
import pytest

from podpool.core.errors import InvalidInput
from podpool.ledger.http.app import admin_token, build_app
from podpool.ledger.http.openapi import openapi_document
from podpool.ledger.http.routes import ROUTES
from podpool.runtime.transport import Request, Response
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


class AppHarness(LedgerHarness):
    """A ledger with all middleware."""

    def __init__(self) -> None:
        super().__init__()
        self.app = build_app(self.ledger, self.store, clock=self.clock)
        self.admin = "podpool_1_2"
        run(self.ledger.admin.accept_admin(self.admin))

    def get(self, path: str, *, token: str = "") -> Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return run(self.app.api(Request(method="GET", path=path, headers=headers)))

    def read(self, path: str) -> str:
        return run(self.get(path).read()).decode()

    def metrics(self) -> str:
        run(self.app.status.refresh())
        response = run(self.app.health(Request(method="GET", path="/metrics")))
        return run(response.read()).decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.MULTILINE)
        assert found, f"no {name}"
        return float(found[1])


def test_openapi_document_is_served() -> None:
    assert msgspec.json.encode(openapi_document()).decode() == AppHarness().read("/openapi.json")


def test_page_documents_every_route_without_other_hosts() -> None:
    page = AppHarness().read("/")
    for route in ROUTES:
        assert f"{route.method} {route.path}" in page
        assert route.summary.split(":")[0] in page.replace("&#x27;", "'")
    assert "://" not in page
    assert "<script" not in page
    links = set(re.findall(r"href='#(\w+)'", page))
    assert links <= set(re.findall(r"id='(\w+)'", page))


def test_metrics_of_subnets_grants_and_releases() -> None:
    harness = AppHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    state = leader.node("n1", wanted=9)
    leader.reconcile_one(item("n1", state, wanted=6, released=ids(state)[:3]))
    labels = '{network="vnet",subnet="pods"}'
    expected = {
        "capacity": 254,
        "reserved": 10,
        "cooling_down": 3,
        "batch": 16,
        "grants_total": 10,
        "releases_total": 3,
    }
    assert expected == {name: harness.metric(f"podpool_subnet_{name}{labels}") for name in expected}


def test_metrics_of_requests_by_path_pattern_and_of_commits() -> None:
    harness = AppHarness()
    harness.subnet("10.0.0.0/24")
    for token in (harness.admin, harness.admin, "wrong"):
        harness.get(f"/v1/networks/{SUBNET.network}/subnets/{SUBNET.name}", token=token)
    harness.get("/v1/whatever/a/stranger/asks", token=harness.admin)
    path = 'path="/v1/networks/{network}/subnets/{subnet}"'
    assert 2 == harness.metric(f'podpool_ledger_requests_total{{method="GET",{path},status="200"}}')
    assert 1 == harness.metric(f'podpool_ledger_requests_total{{method="GET",{path},status="401"}}')
    assert 1 == harness.metric('podpool_ledger_requests_total{method="other",path="other",status="404"}')
    assert 3 == harness.metric(f'podpool_ledger_request_duration_seconds_count{{method="GET",{path}}}')
    assert harness.metric("podpool_ledger_commit_transactions_count") > 0
    assert "stranger" not in harness.metrics()


def test_admin_token_is_written_once_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db.admin-token"
    secret = admin_token(path, rng=Random(1))  # noqa: S311  reproducible
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert secret == admin_token(path, rng=Random(2))  # noqa: S311  reproducible
    path.write_text("\n")
    with pytest.raises(InvalidInput):
        admin_token(path, rng=Random(3))  # noqa: S311  reproducible


def test_revoked_admin_token_stays_revoked_after_a_restart() -> None:
    harness = AppHarness()
    (row,) = run(harness.client.tokens()).tokens
    run(harness.client.revoke_token(row.name))
    harness.clock.now += 5.0
    assert 401 == harness.get("/v1/subnets", token=harness.admin).status
    assert not run(harness.ledger.admin.accept_admin(harness.admin))
    harness.clock.now += 5.0
    assert 401 == harness.get("/v1/subnets", token=harness.admin).status
    assert run(harness.ledger.admin.accept_admin("podpool_3_4"))
    harness.clock.now += 5.0
    assert 200 == harness.get("/v1/subnets", token="podpool_3_4").status  # noqa: S106  not a real one
