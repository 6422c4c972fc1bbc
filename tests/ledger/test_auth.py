"""Authorization: a cluster's token sees and changes only its own; an admin token administers."""

import itertools
import tracemalloc

import msgspec
import pytest

from podpool.ledger.admin_messages import CreateTokenRequest, PodReport
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from podpool.ledger.http.rate_limit import RateLimiter, RateLimits
from podpool.ledger.http.routes import ROUTES, Access
from podpool.ledger.messages import ExcuseRequest, OpenTermRequest, ReconcileRequest, SubnetGrowth, SubnetSpec
from podpool.runtime.transport import Request
from tests.ledger.harness import SUBNET, AuthHarness, Leader, ManualClock, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Bearer podpool_000000000000_00",
        "Basic {secret}",
        "Bearer {secret}0",
        "{secret}",
    ],
)
def test_request_without_a_valid_token_gets_401(authorization: str) -> None:
    harness = AuthHarness()
    secret = harness.token(admin=True).secret
    assert 401 == harness.status("GET", "/v1/subnets", authorization=authorization.format(secret=secret))
    assert 200 == harness.status("GET", "/v1/subnets", authorization=f"bearer {secret}")


def test_every_route_needs_a_token() -> None:
    harness = AuthHarness()
    responses = {
        (route.access, harness.status(route.method, route.path.replace("{", "").replace("}", ""))) for route in ROUTES
    }
    assert {(access, 401) for access in Access} == responses


def test_secret_is_returned_once_and_never_stored() -> None:
    harness = AuthHarness()
    secret = harness.token("mine").secret or ""
    assert secret.encode() not in harness.store.image()
    (shown,) = run(harness.client.tokens()).tokens
    assert ("mine", None, False) == (shown.name, shown.secret, shown.revoked)


def test_revoked_token_is_invalid_and_its_name_free() -> None:
    harness = AuthHarness()
    caller = harness.caller(harness.token("mine"))
    run(caller.subnets())
    with pytest.raises(Conflict):
        harness.token("mine")
    assert run(harness.client.revoke_token("mine")).revoked
    harness.clock.now += 2.0  # for so long another replica would accept it
    with pytest.raises(Unauthorized):
        run(caller.subnets())
    with pytest.raises(NotFound):
        run(harness.client.revoke_token("mine"))
    run(harness.caller(harness.token("mine")).subnets())


def test_token_revoked_on_this_replica_is_invalid_at_once() -> None:
    harness = AuthHarness()
    admin, caller = harness.caller(harness.token("admin", admin=True)), harness.caller(harness.token("mine"))
    run(caller.subnets())
    run(admin.revoke_token("mine"))
    with pytest.raises(Unauthorized):
        run(caller.subnets())


def test_tokens_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = AuthHarness()
    harness.subnet()
    caller, reads = harness.caller(harness.token(cluster="c1")), itertools.count()
    read = harness.ledger.admin.token_rows

    async def counted() -> list[TokenRow]:
        next(reads)
        return await read()

    monkeypatch.setattr(harness.ledger.admin, "token_rows", counted)
    for _ in range(20):
        run(caller.open_term(OpenTermRequest(cluster="c1")))
    assert 1 == next(reads)


def test_token_is_bound_to_the_cluster_of_its_first_request() -> None:
    harness = AuthHarness()
    harness.subnet()
    caller = harness.caller(harness.token())
    run(caller.open_term(OpenTermRequest(cluster="c1")))
    with pytest.raises(Forbidden):
        run(caller.open_term(OpenTermRequest(cluster="c2")))
    run(caller.open_term(OpenTermRequest(cluster="c1")))
    assert ["c1"] == [each.cluster for each in run(harness.client.tokens()).tokens]


def test_first_request_cannot_bind_to_a_cluster_that_has_a_token() -> None:
    harness = AuthHarness()
    harness.subnet()
    run(harness.caller(harness.token("first")).open_term(OpenTermRequest(cluster="c1")))
    with pytest.raises(Forbidden):
        run(harness.caller(harness.token("thief")).open_term(OpenTermRequest(cluster="c1")))
    run(harness.caller(harness.token("next", cluster="c1")).open_term(OpenTermRequest(cluster="c1")))


def test_cluster_neither_sees_nor_changes_another() -> None:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/24")
    victim = Leader(harness, "c1")
    state = victim.node("n1", wanted=3)
    thief = harness.caller(harness.token(cluster="c2"))
    term = run(thief.open_term(OpenTermRequest(cluster="c2"))).term
    with pytest.raises(Forbidden):
        run(thief.network_containers("c1"))
    with pytest.raises(Forbidden):
        run(thief.reconcile(ReconcileRequest(cluster="c1", term=victim.term, number=99)))
    with pytest.raises(Forbidden):
        run(thief.report_pods(PodReport(cluster="c1")))
    with pytest.raises(Forbidden):
        run(thief.history(node="n1", cluster="c1"))
    theft = item("n1", state, node_gone=True)
    (result,) = run(thief.reconcile(ReconcileRequest(cluster="c2", term=term, number=1, items=(theft,)))).results
    assert result.error is not None
    assert "not-found" == result.error.error
    assert () == run(thief.network_containers("c2")).network_containers
    assert () == run(thief.details(SUBNET)).clusters
    assert () == run(thief.history(address=state.primary)).periods
    assert 4 == harness.reserved()


def test_cluster_token_cannot_administer_and_admin_token_has_no_cluster() -> None:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/24")
    cluster = harness.caller(harness.token("cluster", cluster="c1"))
    admin = harness.caller(harness.token("admin", admin=True))
    other = SubnetSpec(network="vnet", name="other", cidr="10.1.0.0/24")
    for refused in (
        cluster.create_subnet(other),
        cluster.grow_subnet(SUBNET, SubnetGrowth(cidr="10.0.0.0/23")),
        cluster.delete_subnet(SUBNET),
        cluster.create_token(CreateTokenRequest(name="more")),
        cluster.tokens(),
        cluster.clusters(),
        cluster.retire("c1"),
        cluster.excuse(ExcuseRequest(cluster="c1").cluster),
        cluster.recovery(),
        admin.open_term(OpenTermRequest(cluster="c1")),
        admin.reconcile(ReconcileRequest(cluster="c1", term=1, number=1)),
    ):
        with pytest.raises(Forbidden):
            run(refused)
    run(admin.create_subnet(other))
    assert 2 == len(run(cluster.subnets()).subnets)
    assert 254 == run(cluster.utilization(SUBNET))[0].capacity


@pytest.mark.parametrize("body", [None, {}, {"cluster": 7}, {"cluster": ""}, [], "c1"])
def test_request_without_a_cluster_is_rejected(body: object) -> None:
    harness = AuthHarness()
    authorization = f"Bearer {harness.token().secret}"
    assert 400 == harness.status("POST", "/v1/terms", authorization=authorization, body=body)


@pytest.mark.parametrize(
    "new",
    [
        CreateTokenRequest(name=""),
        CreateTokenRequest(name="x" * 300),
        CreateTokenRequest(name="x", cluster=""),
        CreateTokenRequest(name="x", cluster="c", admin=True),
    ],
)
def test_invalid_token_request_is_rejected(new: CreateTokenRequest) -> None:
    with pytest.raises(Invalid):
        run(AuthHarness().client.create_token(new))


def calls_until_refused(harness: AuthHarness, authorization: str) -> int:
    return next(
        count for count in itertools.count() if harness.status("GET", "/v1/subnets", authorization=authorization) == 429
    )


def test_rate_limit_is_per_caller() -> None:
    harness = AuthHarness(RateLimits(rate=2.0, burst=5.0))
    busy, calm = (f"Bearer {harness.token(name).secret}" for name in ("busy", "calm"))
    assert 5 == calls_until_refused(harness, busy)
    assert 200 == harness.status("GET", "/v1/subnets", authorization=calm)
    harness.clock.now += 1.0
    assert 2 == calls_until_refused(harness, busy)


def test_callers_that_have_been_idle_are_forgotten() -> None:
    """Not those that have used up their requests."""
    clock = ManualClock()
    limiter = RateLimiter(RateLimits(rate=1.0, burst=2.0), clock=clock)

    def call(name: object) -> None:
        limiter.enter(name, body_bytes=0)
        limiter.leave(name, body_bytes=0)

    middle = 0
    tracemalloc.start()
    for number in range(30_000):
        clock.now += 0.01
        call(number)
        if number == 15_000:
            middle, _ = tracemalloc.get_traced_memory()
    end, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert end < middle + 100_000
    for _ in range(2):
        call("busy")
    for number in range(1_100):
        call(f"other {number}")
    with pytest.raises(TooManyRequests):
        call("busy")


def test_concurrent_requests_and_streams_are_limited() -> None:
    harness = AuthHarness(RateLimits(concurrent=2))
    token = harness.token(cluster="c1")
    caller, headers = harness.caller(token), {"authorization": f"Bearer {token.secret}"}
    for _ in range(3):
        run(caller.subnets())
    subscribe = Request(method="GET", path="/v1/changes", query={"cluster": "c1"}, headers=headers)
    streams = [run(harness.auth(subscribe)) for _ in range(2)]
    with pytest.raises(TooManyRequests):
        run(caller.subnets())
    for stream in streams:
        run(stream.close())
    run(caller.subnets())


def test_bodies_of_open_requests_are_limited_together() -> None:
    harness = AuthHarness(RateLimits(body_bytes=60))
    harness.subnet()
    token = harness.token(cluster="c1")
    body = msgspec.json.encode({"cluster": "c1", "known_term": 0, "known_revision": 0})
    headers = {"authorization": f"Bearer {token.secret}"}
    request = Request(method="POST", path="/v1/terms", headers=headers, body=body)
    first, second = (run(harness.auth(request)) for _ in range(2))
    assert (200, 429, "1") == (first.status, second.status, second.headers["retry-after"])
    run(first.close())
    assert 200 == run(harness.auth(request)).status


def test_body_over_the_limit_of_its_route_is_rejected() -> None:
    harness = AuthHarness()
    authorization = f"Bearer {harness.token(admin=True).secret}"
    body = {"network": "vnet", "name": "pods", "cidr": "10.0.0.0/24", "more": "x" * 70_000}
    assert 413 == harness.status("POST", "/v1/subnets", authorization=authorization, body=body)
