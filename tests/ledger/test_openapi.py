"""The OpenAPI document: generated requests get the documented responses, and no server error."""

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
from tests.ledger.ledger_server import ServedLedger, served_ledger

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
def ledger() -> Iterator[ServedLedger]:
    with served_ledger() as found:
        yield found


def test_every_route_is_documented() -> None:
    described = {(method.upper(), path) for path, each in openapi_document()["paths"].items() for method in each}
    assert {(route.method, route.path) for route in ROUTES} == described


@pytest.mark.integration
@schema.exclude(path="/v1/changes").parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_responses_conform_to_the_document(case: schemathesis.Case[Any], ledger: ServedLedger) -> None:
    for token in (ledger.admin, ledger.cluster, "none"):
        case.call_and_validate(base_url=ledger.url, headers={"authorization": f"Bearer {token}"}, checks=CHECKS)
