"""What travels between the ledger and its clients: controllers and ledgers of different versions talk to each other."""

import inspect as python
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from podpool.ledger import admin_messages, messages
from podpool.ledger.errors import error_classes
from podpool.ledger.http.openapi import openapi_document
from podpool.ledger.http.routes import ROUTES
from tests.golden.files import DATA, matches_json, on_the_wire
from tests.golden.samples import sample


def bodies() -> Iterator[tuple[str, Any]]:
    """Every body by the call that it belongs to, and what is answered to a call that is refused."""
    yield "refusal", messages.ErrorResponse
    for route in ROUTES:
        call = f"{route.method} {route.path}"
        for direction, body in (("request", route.request), ("response", route.response)):
            if body is not None:
                yield f"{call} {direction}", body


def structs_in(info: inspect.Type) -> Iterator[type]:
    """Find the structs that a type is made of."""
    for each in inspect.multi_type_info([info.cls]) if isinstance(info, inspect.StructType) else [info]:
        if isinstance(each, inspect.StructType):
            yield each.cls
            for field in each.fields:
                yield from structs_in(field.type)
        for name in ("item_type", "value_type", "type"):
            if isinstance(inner := getattr(each, name, None), inspect.Type):
                yield from structs_in(inner)
        for inner in getattr(each, "types", ()):
            yield from structs_in(inner)


def test_every_body_has_its_keys() -> None:
    matches_json("ledger/bodies.json", {name: on_the_wire(sample(body)) for name, body in bodies()})


def test_every_body_is_read() -> None:
    """What another version wrote is read to the same values."""
    golden = msgspec.json.decode((DATA / "ledger/bodies.json").read_bytes())
    for name, body in bodies():
        assert sample(body) == msgspec.json.decode(msgspec.json.encode(golden[name]), type=body), name


def test_every_message_is_part_of_some_body() -> None:
    """The golden file covers all structs of the interface but the base class."""
    reached = {each for _, body in bodies() for each in structs_in(inspect.type_info(body))}
    defined = {
        each
        for module in (messages, admin_messages)
        for _, each in python.getmembers(module, python.isclass)
        if issubclass(each, messages.LedgerMessage)
    }
    assert {messages.LedgerMessage} == defined - reached


def test_codes_of_refusals() -> None:
    matches_json("ledger/refusals.json", {kind.code: kind.status for kind in error_classes()})


def test_the_description_has_its_calls() -> None:
    """Parameters and status codes of each call; the bodies are in another file."""
    calls = {
        f"{method.upper()} {path}": {
            "operationId": told["operationId"],
            "parameters": [
                f"{each['in']} {each['name']}{'' if each['required'] else '?'}" for each in told["parameters"]
            ],
            "media": sorted(told["responses"]["200"]["content"]),
            "statuses": " ".join(told["responses"]),
            "security": "security" in told,
        }
        for path, operations in openapi_document()["paths"].items()
        for method, told in operations.items()
    }
    matches_json("ledger/openapi-paths.json", calls)


def test_the_description_has_its_schemas() -> None:
    """The name of a schema is the name of its class, and clients that are generated from the document have it."""
    matches_json("ledger/openapi-schemas.json", unnamed(openapi_document()["components"]["schemas"]))


def unnamed(schema: Any) -> Any:  # noqa: ANN401  JSON
    """Leave out what is for people and the names of other schemas, so that a name is in one place."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return "a schema"
        return {
            key: unnamed(each)
            for key, each in schema.items()
            if key not in ("description", "title") or not isinstance(each, str)
        }
    return [unnamed(each) for each in schema] if isinstance(schema, list) else schema
