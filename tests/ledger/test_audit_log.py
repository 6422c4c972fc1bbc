"""The audit log: who called what, on which object, with which result; never a secret."""

import json
import logging

import pytest

from podpool.ledger.admin_messages import CreateTokenRequest, RotateTokenRequest
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from podpool.ledger.messages import ResolveConflictRequest, SubnetGrowth, SubnetSpec
from tests.ledger.harness import SUBNET, AuthHarness, run

pytestmark = pytest.mark.usefixtures("backend")

PODS = SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24")


def entries(harness: AuthHarness) -> list[tuple[str, str, str]]:
    """Return action, object and result of each call, the first first."""
    found = run(harness.client.audit_log()).entries
    return [(each.action, each.object, each.result) for each in reversed(found)]


def test_each_change_is_recorded_with_object_and_result() -> None:
    harness = AuthHarness()
    admin = harness.caller(harness.token("alice", admin=True))
    run(admin.create_subnet(PODS))
    run(admin.grow_subnet(SUBNET, SubnetGrowth(cidr="10.0.0.0/23")))
    run(admin.create_token(CreateTokenRequest(name="mine", cluster="c1")))
    run(admin.rotate_token("mine", RotateTokenRequest()))
    with pytest.raises(Conflict):
        run(admin.create_token(CreateTokenRequest(name="mine")))
    with pytest.raises(NotFound):
        run(admin.retire("c9"))
    resolved = ResolveConflictRequest(subnet=SUBNET, address="10.0.0.9", nc_id="nc-1")
    with pytest.raises(NotFound):
        run(admin.resolve_conflict(resolved))
    run(admin.subnets())
    subnet = "/v1/networks/{network}/subnets/{subnet}"
    assert [
        ("POST /v1/subnets", "vnet.pods", "ok"),
        (f"POST {subnet}/grow", "vnet.pods", "ok"),
        ("POST /v1/tokens", "mine cluster c1", "ok"),
        ("POST /v1/tokens/{token}/rotate", "mine", "ok"),
        ("POST /v1/tokens", "mine", "conflict"),
        ("POST /v1/clusters/{cluster}/retire", "c9", "not-found"),
        ("POST /v1/recovery/resolve", "vnet.pods 10.0.0.9 nc-1", "not-found"),
    ] == entries(harness)


def test_entries_have_the_caller_and_no_secret() -> None:
    harness = AuthHarness()
    token = harness.token("alice", admin=True)
    made = run(harness.caller(token).create_token(CreateTokenRequest(name="mine")))
    (entry,) = run(harness.client.audit_log()).entries
    assert ("alice", token.id) == (entry.token, entry.token_id)
    for secret in (token.secret or "", made.secret or ""):
        assert secret.encode() not in harness.store.image()


def test_only_administrators_are_recorded() -> None:
    """Or a cluster could displace the entries of others."""
    harness = AuthHarness()
    cluster = harness.caller(harness.token("c", cluster="c1"))
    for _ in range(3):
        with pytest.raises(Forbidden):
            run(cluster.create_subnet(PODS))
    assert [] == entries(harness)
    with pytest.raises(Forbidden):
        run(cluster.audit_log())


def test_the_oldest_entries_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podpool.ledger.domain.audit_log.MAX_ENTRIES", 3)
    harness = AuthHarness()
    admin = harness.caller(harness.token("alice", admin=True))
    for number in range(5):
        run(admin.create_token(CreateTokenRequest(name=f"t{number}")))
    assert ["t2", "t3", "t4"] == [each[1] for each in entries(harness)]
    (latest,) = run(harness.client.audit_log(limit=1)).entries
    assert "t4" == latest.object


@pytest.mark.parametrize("limit", [0, 1_001])
def test_limit_is_bounded(limit: int) -> None:
    with pytest.raises(Invalid, match="limit"):
        run(AuthHarness().client.audit_log(limit=limit))


def test_bodies_that_are_not_json_are_recorded_too() -> None:
    harness = AuthHarness()
    authorization = f"Bearer {harness.token('alice', admin=True).secret}"
    bodies: list[object] = [[], {"name": 7}, {"name": "x" * 1_000}]
    for body in bodies:
        assert 400 == harness.status("POST", "/v1/subnets", authorization=authorization, body=body)
    assert [("", "invalid"), ("", "invalid"), ("x" * 256, "invalid")] == [each[1:] for each in entries(harness)]


def test_log_line_is_written_also_without_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = AuthHarness()
    admin = harness.caller(harness.token("alice", admin=True))

    async def away(**_: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(harness.ledger.admin, "record", away)
    with caplog.at_level(logging.INFO):
        run(admin.create_subnet(PODS))
    lines = [json.dumps(record.__dict__, default=str) for record in caplog.records]
    written = [line for line in lines if '"administrative call"' in line]
    assert 1 == len(written)
    assert all(word in written[0] for word in ("alice", "vnet.pods", "POST /v1/subnets"))
    assert any("not in the audit log of the database" in line for line in lines)
