"""The page of the ledger's calls, from their table and from the structs that travel."""

import inspect
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.core.scaling import Scaler
from podpool.ledger import admin_messages, messages
from podpool.ledger.errors import error_classes
from podpool.ledger.http.openapi import describe
from podpool.ledger.http.routes import ROUTES, Route
from tools.reference.markdown import code, table, field_docs


def ledger_api_page() -> str:
    """Write every call, every struct and every refusal."""
    document = describe()
    structs = "\n\n".join(_struct(name, shape) for name, shape in sorted(document["components"]["schemas"].items()))
    refusals = sorted((each.status, each.code, each.__doc__ or "") for each in error_classes())
    return f"""# The ledger's interface

Made by `make docs` from the ledger's table of calls. A running ledger tells the same: `/` for people, `/openapi.json`
for programs. Bodies are JSON. A token goes into the header `Authorization: Bearer TOKEN`. Shares are in hundredths,
durations in seconds, moments as RFC 3339 has them.

## Calls

{table(("call", "what it does", "takes", "gives", "for"), map(_call, ROUTES))}

## Refusals

What is refused has changed nothing. The answer is a [Problem](#problem), whose `error` is one of these:

{table(("status", "error", "why"), ((str(status), code(word), why) for status, word, why in refusals))}

## Structs

Fields without a default must be sent.

{structs}
"""


def _call(route: Route) -> tuple[str, str, str, str, str]:
    query = "".join(f"; `?{name}=`" for name in route.query) + "".join(
        f"; `?{name}=` if wanted" for name in route.optional
    )
    gives = f"a stream of {_linked(route.gives)}" if route.stream else _linked(route.gives)
    takes = f"{_linked(route.takes)}{query}".strip("; ")
    return code(f"{route.method} {route.path}"), f"{route.sentence}.", takes, gives, route.access.value


def _linked(kind: Any) -> str:  # noqa: ANN401  a struct, or a list of them
    return "" if kind is None else _shape(msgspec.json.schema_components([kind], ref_template="{name}")[0][0])


def _struct(name: str, shape: Mapping[str, Any]) -> str:
    told = field_docs(_class(name))
    rows = [
        (code(field), _shape(kind), _default(field, kind, shape), told.get(field, ""))
        for field, kind in shape["properties"].items()
    ]
    sentence = " ".join(shape["description"].split())
    return f"### {name}\n\n{sentence}\n\n{table(('field', 'type', 'default', 'what it is'), rows)}"


def _class(name: str) -> type:
    for module in (messages, admin_messages):
        found = getattr(module, name, None)
        if inspect.isclass(found):
            return found
    return Scaler


def _default(field: str, kind: Mapping[str, Any], shape: Mapping[str, Any]) -> str:
    return "" if field in shape.get("required", ()) else code(json.dumps(kind.get("default")))


def _shape(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_shape, schema["anyOf"]))
    if "items" in schema:
        return f"list of {_shape(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_shape(schema['additionalProperties'])}"
    return str(schema.get("type", "anything"))
