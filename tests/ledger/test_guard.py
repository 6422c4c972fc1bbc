"""Who may call: a token for each cluster, which sees and touches only its own; an admin token for the rest."""

import itertools

import pytest

from podpool.ledger.admin_messages import CreateTokenRequest, PodReport
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from podpool.ledger.http.limits import RateLimits
from podpool.ledger.http.routes import ROUTES, Access
from podpool.ledger.messages import ExcuseRequest, SubnetGrowth, SubnetSpec, OpenTermRequest, ReconcileRequest
from podpool.ledger.domain.rows import TokenRow
from podpool.runtime.transport import Request
from tests.ledger.guarded import Gatehouse
from tests.ledger.offices import SUBNET, Leader, done, item

pytestmark = pytest.mark.usefixtures("books")


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
def test_without_a_good_token_the_answer_is_401(authorization: str) -> None:
    office = Gatehouse()
    secret = office.token(admin=True).secret
    assert 401 == office.status("GET", "/v1/subnets", authorization=authorization.format(secret=secret))
    assert 200 == office.status("GET", "/v1/subnets", authorization=f"bearer {secret}")


def test_only_health_is_for_everybody() -> None:
    office = Gatehouse()
    answers = {
        (route.access, office.status(route.method, route.path.replace("{", "").replace("}", ""))) for route in ROUTES
    }
    assert {(access, 401) for access in Access if access is not Access.OPEN} | {(Access.OPEN, 200)} == answers


def test_the_secret_is_told_once_and_kept_nowhere() -> None:
    office = Gatehouse()
    secret = office.token("mine").secret or ""
    assert secret.encode() not in office.store.image()
    (shown,) = done(office.client.tokens()).tokens
    assert ("mine", None, False) == (shown.name, shown.secret, shown.revoked)


def test_a_revoked_token_is_no_token_and_its_name_is_free() -> None:
    office = Gatehouse()
    caller = office.caller(office.token("mine"))
    done(caller.subnets())
    with pytest.raises(Conflict):
        office.token("mine")
    assert done(office.client.revoke_token("mine")).revoked
    office.clock.now += 2.0  # another replica would have known it for so long
    with pytest.raises(Unauthorized):
        done(caller.subnets())
    with pytest.raises(NotFound):
        done(office.client.revoke_token("mine"))
    done(office.caller(office.token("mine")).subnets())


def test_a_token_that_is_revoked_here_is_none_at_once() -> None:
    office = Gatehouse()
    admin, caller = office.caller(office.token("admin", admin=True)), office.caller(office.token("mine"))
    done(caller.subnets())
    done(admin.revoke_token("mine"))
    with pytest.raises(Unauthorized):
        done(caller.subnets())


def test_tokens_are_not_read_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Gatehouse()
    caller, reads = office.caller(office.token(cluster="c1")), itertools.count()
    read = office.ledger.admin.token_rows

    async def counted() -> list[TokenRow]:
        next(reads)
        return await read()

    monkeypatch.setattr(office.ledger.admin, "token_rows", counted)
    for _ in range(20):
        done(caller.open_term(OpenTermRequest(cluster="c1")))
    assert 1 == next(reads)


def test_a_token_speaks_for_the_cluster_that_it_first_spoke_for() -> None:
    office = Gatehouse()
    caller = office.caller(office.token())
    done(caller.open_term(OpenTermRequest(cluster="c1")))
    with pytest.raises(Forbidden):
        done(caller.open_term(OpenTermRequest(cluster="c2")))
    done(caller.open_term(OpenTermRequest(cluster="c1")))
    assert ["c1"] == [each.cluster for each in done(office.client.tokens()).tokens]


def test_no_new_token_can_take_over_a_cluster_that_has_one() -> None:
    office = Gatehouse()
    done(office.caller(office.token("first")).open_term(OpenTermRequest(cluster="c1")))
    with pytest.raises(Forbidden):
        done(office.caller(office.token("thief")).open_term(OpenTermRequest(cluster="c1")))
    done(office.caller(office.token("next", cluster="c1")).open_term(OpenTermRequest(cluster="c1")))


def test_a_cluster_sees_and_touches_nothing_of_another() -> None:
    office = Gatehouse()
    office.subnet("10.0.0.0/24")
    victim = Leader(office, "c1")
    state = victim.node("n1", wanted=3)
    thief = office.caller(office.token(cluster="c2"))
    term = done(thief.open_term(OpenTermRequest(cluster="c2"))).term
    with pytest.raises(Forbidden):
        done(thief.containers("c1"))
    with pytest.raises(Forbidden):
        done(thief.reconcile(ReconcileRequest(cluster="c1", term=victim.term, number=99)))
    with pytest.raises(Forbidden):
        done(thief.report_pods(PodReport(cluster="c1")))
    with pytest.raises(Forbidden):
        done(thief.history(node="n1", cluster="c1"))
    theft = item("n1", state, gone=True)
    (result,) = done(thief.reconcile(ReconcileRequest(cluster="c2", term=term, number=1, items=(theft,)))).results
    assert result.error is not None
    assert "not-found" == result.error.error
    assert () == done(thief.containers("c2")).network_containers
    assert () == done(thief.details(SUBNET)).holders
    assert () == done(thief.history(address=state.primary)).periods
    assert 4 == office.reserved()


def test_a_cluster_manages_nothing_and_an_admin_speaks_for_nobody() -> None:
    office = Gatehouse()
    office.subnet("10.0.0.0/24")
    cluster = office.caller(office.token("cluster", cluster="c1"))
    admin = office.caller(office.token("admin", admin=True))
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
            done(refused)
    done(admin.create_subnet(other))
    assert 2 == len(done(cluster.subnets()).subnets)
    assert 254 == done(cluster.utilization(SUBNET))[0].capacity


@pytest.mark.parametrize("body", [None, {}, {"cluster": 7}, {"cluster": ""}, [], "c1"])
def test_a_call_that_does_not_say_for_whom_it_is_is_refused(body: object) -> None:
    office = Gatehouse()
    authorization = f"Bearer {office.token().secret}"
    assert 400 == office.status("POST", "/v1/terms", authorization=authorization, body=body)


@pytest.mark.parametrize(
    "new",
    [
        CreateTokenRequest(name=""),
        CreateTokenRequest(name="x" * 300),
        CreateTokenRequest(name="x", cluster=""),
        CreateTokenRequest(name="x", cluster="c", admin=True),
    ],
)
def test_a_token_that_cannot_be_meant_is_refused(new: CreateTokenRequest) -> None:
    with pytest.raises(Invalid):
        done(Gatehouse().client.create_token(new))


def calls_until_refused(office: Gatehouse, authorization: str) -> int:
    return next(
        count for count in itertools.count() if office.status("GET", "/v1/subnets", authorization=authorization) == 429
    )


def test_who_calls_too_often_is_told_to_wait_and_others_are_not() -> None:
    office = Gatehouse(RateLimits(rate=2.0, burst=5.0))
    busy, calm = (f"Bearer {office.token(name).secret}" for name in ("busy", "calm"))
    assert 5 == calls_until_refused(office, busy)
    assert 200 == office.status("GET", "/v1/subnets", authorization=calm)
    office.clock.now += 1.0
    assert 2 == calls_until_refused(office, busy)


def test_guessing_is_slow() -> None:
    office = Gatehouse(RateLimits(strangers=3.0))
    good = f"Bearer {office.token().secret}"
    assert 6 == calls_until_refused(office, "Bearer guess")
    assert 200 == office.status("GET", "/v1/subnets", authorization=good)


def test_streams_and_calls_at_once_are_bounded_and_counted_down() -> None:
    office = Gatehouse(RateLimits(at_once=2))
    token = office.token(cluster="c1")
    caller, headers = office.caller(token), {"authorization": f"Bearer {token.secret}"}
    for _ in range(3):
        done(caller.subnets())
    subscribe = Request(method="GET", path="/v1/changes", query={"cluster": "c1"}, headers=headers)
    streams = [done(office.guard(subscribe)) for _ in range(2)]
    with pytest.raises(TooManyRequests):
        done(caller.subnets())
    for stream in streams:
        done(stream.close())
    done(caller.subnets())


def test_a_body_larger_than_its_call_needs_is_refused() -> None:
    office = Gatehouse()
    authorization = f"Bearer {office.token(admin=True).secret}"
    body = {"network": "vnet", "name": "pods", "cidr": "10.0.0.0/24", "more": "x" * 70_000}
    assert 413 == office.status("POST", "/v1/subnets", authorization=authorization, body=body)
