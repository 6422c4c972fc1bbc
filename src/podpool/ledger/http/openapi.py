"""The description of the interface, made from the table of calls and from the structs that travel.

`/openapi.json` is for programs; `/` is the same for people, on one page that asks no other host for anything.
"""

import html
import re
from typing import Any

import msgspec

from podpool import __version__
from podpool.ledger.errors import LedgerError, kinds
from podpool.ledger.http.routes import ROUTES, Access, Route
from podpool.ledger.messages import Problem
from podpool.runtime.transport import Handler, Request, Response

DESCRIPTION, PAGE = "/openapi.json", "/"

_REF = "#/components/schemas/{name}"


def describe() -> dict[str, Any]:
    """Describe every call, as OpenAPI 3.1 has it."""
    types = [Problem, *(kind for route in ROUTES for kind in (route.takes, route.gives) if kind is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "podpool ledger",
            "version": __version__,
            "description": "The authority on subnets: who holds which address.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class Described:
    """A `Handler` before another, with the description and its page."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        document = describe()
        page = _page(document).encode()
        self._files = {
            DESCRIPTION: (msgspec.json.encode(document), "application/json"),
            PAGE: (page, "text/html; charset=utf-8"),
        }

    async def __call__(self, request: Request) -> Response:
        """Show the description, or pass a request on."""
        file = self._files.get(request.path) if request.method == "GET" else None
        if file is None:
            return await self._handler(request)
        return Response(200, file[0], headers={"content-type": file[1]})


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    inside = re.findall(r"{(\w+)}", route.path)
    media = "text/event-stream" if route.stream else "application/json"
    answer = {"description": "Done", "content": {media: {"schema": schema_of[str(route.gives)]}}}
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()} {route.path}").strip("_"),
        "summary": route.sentence,
        "description": f"For {route.access.value}.",
        "parameters": [
            *(_parameter(name, "path", required=True) for name in inside),
            *(_parameter(name, "query", required=True) for name in route.query),
            *(_parameter(name, "query", required=False) for name in route.optional),
        ],
        "responses": {"200": answer, **_refusals(route, schema_of[str(Problem)])},
    }
    if route.takes is not None:
        content = {"application/json": {"schema": schema_of[str(route.takes)]}}
        described["requestBody"] = {"required": True, "content": content}
    if route.access is not Access.OPEN:
        described["security"] = [{"token": []}]
    return described


def _parameter(name: str, place: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": {"type": "string", "minLength": 1}}


def _refusals(route: Route, problem: Any) -> dict[str, Any]:  # noqa: ANN401  a schema
    """List the ways in which a call may be refused, each with the codes that it may carry."""
    never = {401, 403, 429} if route.access is Access.OPEN else set()
    by_status: dict[int, list[type[LedgerError]]] = {}
    for kind in kinds():
        if kind.status not in never:
            by_status.setdefault(kind.status, []).append(kind)
    content = {"application/json": {"schema": problem}}
    return {
        str(status): {"description": "; ".join(f"`{kind.code}`: {kind.__doc__}" for kind in found), "content": content}
        for status, found in sorted(by_status.items())
    }


def _page(document: dict[str, Any]) -> str:
    """Write the description for people."""
    calls = "".join(
        f"<h3 id='{told['operationId']}'><code>{method.upper()} {html.escape(path)}</code></h3>"
        f"<p>{html.escape(told['summary'])}. {html.escape(told['description'])}</p>{_fields(told)}"
        for path, operations in document["paths"].items()
        for method, told in operations.items()
    )
    structs = "".join(
        f"<h3 id='{name}'>{name}</h3><p>{html.escape(schema.get('description', ''))}</p>"
        f"<table>{''.join(_row(field, kind, schema) for field, kind in schema.get('properties', {}).items())}</table>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    info = document["info"]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{info['title']}</title><style>{_STYLE}</style><h1>{info['title']} {info['version']}</h1>"
        f"<p>{info['description']} For programs: <a href={DESCRIPTION}>{DESCRIPTION}</a>.</p>"
        f"<h2>Calls</h2>{calls}<h2>Structs</h2>{structs}</html>"
    )


def _fields(told: dict[str, Any]) -> str:
    rows = [(each["name"], f"in the {each['in']}", not each["required"]) for each in told["parameters"]]
    takes = told.get("requestBody", {}).get("content", {}).values()
    parts = [f"<li><code>{name}</code> {place}{' (may be left out)' * spare}</li>" for name, place, spare in rows]
    parts += [f"<li>takes {_kind(each['schema'])}</li>" for each in takes]
    parts += [f"<li>gives {_kind(each['schema'])}</li>" for each in told["responses"]["200"]["content"].values()]
    return f"<ul>{''.join(parts)}</ul>"


def _row(field: str, kind: dict[str, Any], schema: dict[str, Any]) -> str:
    default = "" if field in schema.get("required", ()) else f"else {html.escape(repr(kind.get('default')))}"
    return f"<tr><td><code>{field}</code><td>{_kind(kind)}<td>{default}</tr>"


def _kind(schema: dict[str, Any]) -> str:
    """Name a type, with a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "items" in schema:
        return f"list of {_kind(schema['items'])}" if schema["items"] else "list"
    return html.escape(str(schema.get("type", "anything")))


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{background:#f3f3f3;padding:0 .2em}td{padding:.1em 1em .1em 0;vertical-align:top}h3{margin:1.5em 0 .2em}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}code{background:#2a2a2a}a{color:#8bf}}"
)
