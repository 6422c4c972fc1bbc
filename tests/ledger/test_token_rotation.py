"""Rotation: two tokens of a cluster are valid for a while; a token ends when it expires or is revoked."""

from typing import Any

import pytest

from podpool.ledger.admin_messages import CreateTokenRequest, RotateTokenRequest, TokenInfo
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized
from podpool.ledger.messages import OpenTermRequest
from podpool.runtime.transport import Request
from tests.ledger.harness import AuthHarness, run

pytestmark = pytest.mark.usefixtures("backend")

CACHED = 2.0
"""Seconds for which a replica may accept a token that is not valid any more."""


def rotate(harness: AuthHarness, name: str, **fields: Any) -> TokenInfo:  # noqa: ANN401  of RotateTokenRequest
    return run(harness.client.rotate_token(name, RotateTokenRequest(**fields)))


def is_valid(harness: AuthHarness, token: TokenInfo) -> bool:
    try:
        run(harness.caller(token).subnets())
    except Unauthorized:
        return False
    return True


def test_both_tokens_are_valid_for_the_overlap() -> None:
    harness = AuthHarness()
    harness.subnet()
    former = harness.token("mine", cluster="c1", scope=("vnet",))
    new = rotate(harness, "mine", overlap=60.0)
    assert (("mine", "c1", ("vnet",)), True) == ((new.name, new.cluster, new.scope), new.secret != former.secret)
    for token in (former, new):
        run(harness.caller(token).open_term(OpenTermRequest(cluster="c1")))
    harness.clock.now += 60.0 + CACHED
    assert (False, True) == (is_valid(harness, former), is_valid(harness, new))
    shown = {each.id: (each.expired, each.expires_at is None) for each in run(harness.client.tokens()).tokens}
    assert {former.id: (True, False), new.id: (False, True)} == shown


def test_rotation_changes_the_scope_and_never_lengthens_a_life() -> None:
    harness = AuthHarness()
    short = harness.token("short", cluster="c1", lifetime=10.0)
    new = rotate(harness, "short", overlap=3_600.0, scope=("vnet.pods",), lifetime=100.0)
    assert ("vnet.pods",) == new.scope
    harness.clock.now += 10.0 + CACHED
    assert (False, True) == (is_valid(harness, short), is_valid(harness, new))
    harness.clock.now += 90.0
    assert not is_valid(harness, new)


def test_revoking_a_name_ends_all_its_tokens_and_an_id_ends_one() -> None:
    harness = AuthHarness()
    first = harness.token("mine", cluster="c1")
    second = rotate(harness, "mine")
    harness.clock.now += 1.0
    third = rotate(harness, "mine")
    assert run(harness.client.revoke_token(first.id)).revoked
    harness.clock.now += CACHED
    assert [False, True, True] == [is_valid(harness, each) for each in (first, second, third)]
    assert third.id == run(harness.client.revoke_token("mine")).id
    harness.clock.now += CACHED
    assert [False] * 3 == [is_valid(harness, each) for each in (first, second, third)]
    with pytest.raises(NotFound, match="no valid token mine"):
        rotate(harness, "mine")


def test_token_without_a_cluster_cannot_be_rotated() -> None:
    harness = AuthHarness()
    harness.token("new")
    with pytest.raises(Conflict, match="was not used yet"):
        rotate(harness, "new")


def test_admin_token_is_rotated() -> None:
    harness = AuthHarness()
    harness.token("alice", admin=True)
    new = rotate(harness, "alice", overlap=0.0)
    run(harness.caller(new).tokens())
    with pytest.raises(Invalid, match="no scope"):
        rotate(harness, "alice", scope=("vnet",))


def test_expired_name_is_free_and_its_cluster_can_be_bound() -> None:
    harness = AuthHarness()
    harness.subnet()
    harness.token("mine", cluster="c1", lifetime=5.0)
    with pytest.raises(Forbidden, match="cluster c1 has token mine.*token create NAME --cluster c1"):
        run(harness.caller(harness.token("other")).open_term(OpenTermRequest(cluster="c1")))
    harness.clock.now += 5.0 + CACHED
    run(harness.caller(harness.token("mine")).open_term(OpenTermRequest(cluster="c1")))


@pytest.mark.parametrize("fields", [{"overlap": -1.0}, {"overlap": 1e12}, {"lifetime": 0.0}, {"lifetime": -1.0}])
def test_invalid_times_are_rejected(fields: dict[str, float]) -> None:
    harness = AuthHarness()
    harness.token("mine", cluster="c1")
    with pytest.raises(Invalid, match=next(iter(fields))):
        rotate(harness, "mine", **fields)


def test_stream_ends_when_its_token_is_revoked() -> None:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/24")
    token = harness.token("mine", cluster="c1")
    headers = {"authorization": f"Bearer {token.secret}"}

    async def follow() -> list[bytes]:
        subscribe = Request(method="GET", path="/v1/changes", query={"cluster": "c1"}, headers=headers)
        response = await harness.auth(subscribe)
        first = await anext(response.stream)
        await harness.ledger.admin.revoke_token("mine")
        harness.clock.now += CACHED
        await harness.ledger.admin.drain(harness_subnet, draining=True)
        rest = [chunk async for chunk in response.stream]
        await response.close()
        assert first
        return rest

    harness_subnet = harness.state().subnet
    assert [] == run(follow())


def test_tokens_that_are_not_valid_any_more_are_deleted_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podpool.ledger.domain.tokens._MAX_TOKENS", 3)
    harness = AuthHarness()
    admin = harness.token("admin", admin=True)
    run(harness.client.revoke_token("admin"))
    for number in range(8):
        harness.clock.now += 1
        harness.token(f"t{number}")
        run(harness.client.revoke_token(f"t{number}"))
    left = {each.name for each in run(harness.client.tokens()).tokens}
    assert {"admin", "t4", "t5", "t6", "t7"} == left, "a revoked admin token stays revoked"
    assert not is_valid(harness, admin)
    for number in range(3):
        harness.token(f"v{number}")
    with pytest.raises(Conflict, match="the maximum: revoke"):
        run(harness.client.create_token(CreateTokenRequest(name="more")))
