"""The description of the interface is true: whatever it allows is answered as it says, and nothing fails."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from podpool.ledger.http.openapi import openapi_document
from podpool.ledger.http.routes import ROUTES
from tests.ledger.ledger_server import Open, served_ledger

schema = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(openapi_document())))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


@pytest.fixture(scope="module")
def ledger() -> Iterator[Open]:
    with served_ledger() as found:
        yield found


def test_every_call_is_described() -> None:
    described = {(method.upper(), path) for path, each in openapi_document()["paths"].items() for method in each}
    assert {(route.method, route.path) for route in ROUTES} == described


@schema.exclude(path="/v1/changes").parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_no_answer_is_undocumented_and_none_is_a_failure(case: schemathesis.Case[Any], ledger: Open) -> None:
    for token in (ledger.admin, ledger.cluster, "none"):
        case.call_and_validate(base_url=ledger.url, headers={"authorization": f"Bearer {token}"}, checks=CHECKS)
