"""The whole service: what it shows to everybody, what Prometheus reads, and its admin token."""

import re
import stat
from pathlib import Path
from random import Random

import msgspec
import pytest

from podpool.core.errors import InvalidInput
from podpool.ledger.http.app import admin_token, front
from podpool.ledger.http.openapi import describe
from podpool.ledger.http.routes import ROUTES
from podpool.runtime.transport import Request, Response
from tests.ledger.offices import SUBNET, Leader, Office, done, ids, item

pytestmark = pytest.mark.usefixtures("books")


class Front(Office):
    """An office behind everything."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = front(self.ledger, self.store, clock=self.clock)
        self.admin = "podpool_1_2"
        done(self.ledger.administration.accept_admin(self.admin))

    def get(self, path: str, *, token: str = "") -> Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return done(self.handler(Request(method="GET", path=path, headers=headers)))

    def read(self, path: str) -> str:
        return done(self.get(path).read()).decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.read("/metrics"), re.MULTILINE)
        assert found, f"no {name}"
        return float(found[1])


def test_the_description_is_at_its_path() -> None:
    assert msgspec.json.encode(describe()).decode() == Front().read("/openapi.json")


def test_the_page_tells_of_every_call_and_asks_no_other_host() -> None:
    page = Front().read("/")
    for route in ROUTES:
        assert f"{route.method} {route.path}" in page
        assert route.sentence.split(":")[0] in page.replace("&#x27;", "'")
    assert "://" not in page
    assert "<script" not in page
    links = set(re.findall(r"href='#(\w+)'", page))
    assert links <= set(re.findall(r"id='(\w+)'", page))


def test_metrics_tell_of_subnets_grants_and_releases() -> None:
    office = Front()
    office.subnet("10.0.0.0/24")
    leader = Leader(office)
    state = leader.node("n1", wanted=9)
    leader.one(item("n1", state, wanted=6, released=ids(state)[:3]))
    labels = '{network="vnet",subnet="pods"}'
    expected = {"capacity": 254, "reserved": 10, "resting": 3, "batch": 16, "grants_total": 10, "releases_total": 3}
    assert expected == {name: office.metric(f"podpool_subnet_{name}{labels}") for name in expected}


def test_metrics_tell_of_calls_by_their_pattern_and_of_commits() -> None:
    office = Front()
    office.subnet("10.0.0.0/24")
    for token in (office.admin, office.admin, "wrong"):
        office.get(f"/v1/networks/{SUBNET.network}/subnets/{SUBNET.name}", token=token)
    office.get("/v1/whatever/a/stranger/asks", token=office.admin)
    path = 'path="/v1/networks/{network}/subnets/{subnet}"'
    assert 2 == office.metric(f'podpool_ledger_calls_total{{method="GET",{path},status="200"}}')
    assert 1 == office.metric(f'podpool_ledger_calls_total{{method="GET",{path},status="401"}}')
    assert 1 == office.metric('podpool_ledger_calls_total{method="other",path="other",status="404"}')
    assert 3 == office.metric(f'podpool_ledger_call_seconds_count{{method="GET",{path}}}')
    assert office.metric("podpool_ledger_commit_works_count") > 0
    assert "stranger" not in office.read("/metrics")


def test_the_admin_token_is_written_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db.admin-token"
    secret = admin_token(path, rng=Random(1))  # noqa: S311  the same each time
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert secret == admin_token(path, rng=Random(2))  # noqa: S311  the same each time
    path.write_text("\n")
    with pytest.raises(InvalidInput):
        admin_token(path, rng=Random(3))  # noqa: S311  the same each time


def test_the_admin_token_beside_the_books_counts_whatever_they_say() -> None:
    office = Front()
    (row,) = done(office.client.tokens()).tokens
    done(office.client.revoke_token(row.name))
    office.clock.now += 5.0
    assert 401 == office.get("/v1/subnets", token=office.admin).status
    done(office.ledger.administration.accept_admin(office.admin))
    assert 200 == office.get("/v1/subnets", token=office.admin).status
