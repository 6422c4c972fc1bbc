"""Scopes: a token sees and uses only its networks and subnets, and a refusal names them and what to do."""

import msgspec
import pytest

from podpool.ledger.admin_messages import CreateTokenRequest, TokenInfo
from podpool.ledger.errors import Forbidden, Invalid
from podpool.ledger.messages import (
    NetworkContainerResult,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetChange,
    SubnetName,
    SubnetSpec,
)
from podpool.runtime.transport import Request
from tests.ledger.harness import SUBNET, AuthHarness, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")

OTHER = SubnetName(network="vnet", name="other")
LAB = SubnetName(network="lab", name="pods")
CLUSTER = "c1"


class Caller:
    """A controller that calls through the authorization."""

    def __init__(self, harness: AuthHarness, token: TokenInfo) -> None:
        self.client = harness.caller(token)
        self.term = run(self.client.open_term(OpenTermRequest(cluster=CLUSTER, network="vnet"))).term
        self.number = 0

    def reconcile(self, *items: ReconcileItem) -> list[NetworkContainerResult]:
        self.number += 1
        request = ReconcileRequest(cluster=CLUSTER, network="vnet", term=self.term, number=self.number, items=items)
        return list(run(self.client.reconcile(request)).results)

    def state(self, requested: ReconcileItem) -> NetworkContainerState:
        (result,) = self.reconcile(requested)
        assert result.state is not None, result.error
        return result.state


@pytest.fixture
def harness() -> AuthHarness:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/24")
    harness.subnet("10.0.1.0/24", name="other")
    run(harness.client.create_subnet(SubnetSpec(network="lab", name="pods", cidr="10.0.0.0/24")))
    return harness


def test_token_sees_only_its_networks_and_subnets(harness: AuthHarness) -> None:
    pods = harness.caller(harness.token("pods", cluster="c1", scope=("vnet.pods",)))
    vnet = harness.caller(harness.token("vnet", cluster="c2", scope=("vnet",)))
    assert ["vnet.pods"] == [str(each.subnet) for each in run(pods.subnets()).subnets]
    assert ["vnet.other", "vnet.pods"] == [str(each.subnet) for each in run(vnet.subnets()).subnets]
    (network,) = run(pods.networks()).networks
    assert ("vnet", ("pods",), 254) == (network.name, network.subnets, network.capacity)
    run(pods.subnet(SUBNET))
    for refused in (pods.subnet(OTHER), pods.details(OTHER), pods.occupancy(OTHER), pods.utilization(OTHER)):
        with pytest.raises(Forbidden, match=r"token pods may use vnet\.pods, and not subnet vnet\.other.*token rotate"):
            run(refused)


def test_refusal_does_not_show_whether_a_subnet_exists(harness: AuthHarness) -> None:
    caller = harness.caller(harness.token("pods", cluster="c1", scope=("vnet.pods",)))
    for name in ("other", "none"):
        with pytest.raises(Forbidden, match=f"not subnet vnet.{name}"):
            run(caller.subnet(SubnetName(network="vnet", name=name)))


def test_stream_has_only_subnets_of_the_scope(harness: AuthHarness) -> None:
    token = harness.token("pods", cluster="c1", scope=("vnet",))
    headers = {"authorization": f"Bearer {token.secret}"}

    async def follow() -> list[str]:
        subscribe = Request(method="GET", path="/v1/changes", query={"cluster": "c1"}, headers=headers)
        response = await harness.auth(subscribe)
        first = [await anext(response.stream) for _ in range(2)]
        for network in ("lab", "vnet"):
            await harness.ledger.admin.create_subnet(SubnetSpec(network=network, name="new", cidr="10.9.0.0/24"))
        found = [*first, await anext(response.stream)]
        await response.close()
        changes = [msgspec.json.decode(each[5:], type=SubnetChange) for each in found]
        return [str(each.state.subnet) for each in changes]

    assert ["vnet.other", "vnet.pods", "vnet.new"] == run(follow())


def test_nothing_is_granted_outside_of_the_scope(harness: AuthHarness) -> None:
    caller = Caller(harness, harness.token("pods", cluster=CLUSTER, scope=("vnet.pods",)))
    refused, granted = caller.reconcile(item("n1", wanted=2, subnet=OTHER), item("n2", wanted=2))
    assert granted.state is not None
    assert 2 == len(granted.state.grants)
    assert refused.error is not None
    assert ("forbidden", "subnet") == (refused.error.error, refused.error.field)
    assert "token pods may use vnet.pods" in refused.error.message
    assert [0, 3] == [state.reserved for state in (harness.state("other"), harness.state("pods"))]


def test_nc_outside_of_a_new_scope_keeps_and_releases_and_gets_nothing(harness: AuthHarness) -> None:
    caller = Caller(harness, harness.token("wide", cluster=CLUSTER))
    held = caller.state(item("n1", wanted=4, subnet=OTHER))
    run(harness.client.revoke_token("wide"))
    harness.clock.now += 2.0
    narrow = Caller(harness, harness.token("narrow", cluster=CLUSTER, scope=("vnet.pods",)))
    after = narrow.state(item("n1", held, wanted=6, released=ids(held)[:1], subnet=OTHER))
    assert (3, 3) == (len(after.grants), after.shortage)
    assert "token narrow may use vnet.pods" in (after.shortage_reason or "")
    assert narrow.state(item("n1", after, node_gone=True, subnet=OTHER)).closed


def test_results_keep_the_order_of_the_items(harness: AuthHarness) -> None:
    caller = Caller(harness, harness.token("pods", cluster=CLUSTER, scope=("vnet.pods",)))
    subnets = [OTHER, SUBNET, LAB, SUBNET, OTHER]
    results = caller.reconcile(*[item(f"n{index}", subnet=subnet) for index, subnet in enumerate(subnets)])
    assert [subnet == SUBNET for subnet in subnets] == [result.error is None for result in results]


@pytest.mark.parametrize("scope", [(), ("",), (".pods",), ("vnet.",), ("Vnet",), ("a" * 200,), ("vnet.*",)])
def test_invalid_scope_is_rejected(scope: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="scope"):
        run(AuthHarness().client.create_token(CreateTokenRequest(name="x", scope=scope)))


def test_admin_token_has_no_scope() -> None:
    with pytest.raises(Invalid, match="admin token has no scope"):
        run(AuthHarness().client.create_token(CreateTokenRequest(name="x", admin=True, scope=("vnet",))))


def test_scope_of_one_request_does_not_limit_the_next(harness: AuthHarness) -> None:
    callers = [
        harness.caller(harness.token(f"t{number}", cluster=f"c{number}", scope=(scope,)))
        for number, scope in enumerate(("vnet.pods", "lab", "vnet"))
    ]
    admin = harness.caller(harness.token("admin", admin=True))
    assert [1, 1, 2, 3] * 2 == [len(run(caller.subnets()).subnets) for caller in (*callers, admin) * 2]
