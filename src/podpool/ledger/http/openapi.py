"""The OpenAPI document, generated from the route table and the message structs.

`/openapi.json` is for programs; `/` is the same for people, on one page without resources of other hosts.
"""

import html
import re
from typing import Any

import msgspec

from podpool import __version__
from podpool.ledger.errors import LedgerError, error_classes
from podpool.ledger.http.routes import ROUTES, Route
from podpool.ledger.messages import ErrorResponse
from podpool.runtime.transport import Handler, Request, Response

DOCUMENT_PATH, PAGE_PATH = "/openapi.json", "/"

_REF = "#/components/schemas/{name}"


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of all routes."""
    types = [ErrorResponse, *(each for route in ROUTES for each in (route.request, route.response) if each is not None)]
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
            "description": "The authority for subnets: which network container holds which address.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


class OpenAPIMiddleware:
    """Serves the document and its page, and passes other requests on."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        document = openapi_document()
        page = _page(document).encode()
        encoded = msgspec.json.encode(document)
        self._files = {DOCUMENT_PATH: (encoded, "application/json"), PAGE_PATH: (page, "text/html; charset=utf-8")}

    async def __call__(self, request: Request) -> Response:
        """Return the document or its page, or pass the request on."""
        file = self._files.get(request.path) if request.method == "GET" else None
        if file is None:
            return await self._handler(request)
        return Response(200, file[0], headers={"content-type": file[1]})


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    path_parameters = re.findall(r"{(\w+)}", route.path)
    media = "text/event-stream" if route.stream else "application/json"
    success = {"description": "Success", "content": {media: {"schema": schema_of[str(route.response)]}}}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()} {route.path}").strip("_"),
        "summary": route.summary,
        "description": f"Access: {route.access.value}.",
        "parameters": [
            *(_parameter(name, "path", required=True) for name in path_parameters),
            *(_parameter(name, "query", required=True) for name in route.query),
            *(_parameter(name, "query", required=False) for name in route.optional),
        ],
        "responses": {"200": success, **_error_responses(schema_of[str(ErrorResponse)])},
    }
    if route.request is not None:
        content = {"application/json": {"schema": schema_of[str(route.request)]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["security"] = [{"token": []}]
    return operation


def _parameter(name: str, location: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": location, "required": required, "schema": {"type": "string", "minLength": 1}}


def _error_responses(error_schema: Any) -> dict[str, Any]:  # noqa: ANN401  a schema
    """Return the error responses of a route by status, each with its codes."""
    by_status: dict[int, list[type[LedgerError]]] = {}
    for error in error_classes():
        by_status.setdefault(error.status, []).append(error)
    content = {"application/json": {"schema": error_schema}}
    return {
        str(code): {"description": "; ".join(f"`{error.code}`: {error.__doc__}" for error in found), "content": content}
        for code, found in sorted(by_status.items())
    }


def _page(document: dict[str, Any]) -> str:
    """Return the document as an HTML page."""
    routes = "".join(
        f"<h3 id='{operation['operationId']}'><code>{method.upper()} {html.escape(path)}</code></h3>"
        f"<p>{html.escape(operation['summary'])}. {html.escape(operation['description'])}</p>{_fields(operation)}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    )
    structs = "".join(
        f"<h3 id='{name}'>{name}</h3><p>{html.escape(schema.get('description', ''))}</p>"
        f"<table>{''.join(_row(field, each, schema) for field, each in schema.get('properties', {}).items())}</table>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    info = document["info"]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{info['title']}</title><style>{_STYLE}</style><h1>{info['title']} {info['version']}</h1>"
        f"<p>{info['description']} OpenAPI document: <a href={DOCUMENT_PATH}>{DOCUMENT_PATH}</a>.</p>"
        f"<h2>Routes</h2>{routes}<h2>Structs</h2>{structs}</html>"
    )


def _fields(operation: dict[str, Any]) -> str:
    rows = [(each["name"], f"in the {each['in']}", not each["required"]) for each in operation["parameters"]]
    requests = operation.get("requestBody", {}).get("content", {}).values()
    parts = [f"<li><code>{name}</code> {location}{' (optional)' * optional}</li>" for name, location, optional in rows]
    parts += [f"<li>request: {_type_name(each['schema'])}</li>" for each in requests]
    responses = operation["responses"]["200"]["content"].values()
    parts += [f"<li>response: {_type_name(each['schema'])}</li>" for each in responses]
    return f"<ul>{''.join(parts)}</ul>"


def _row(field: str, field_schema: dict[str, Any], schema: dict[str, Any]) -> str:
    default = "" if field in schema.get("required", ()) else f"default {html.escape(repr(field_schema.get('default')))}"
    return f"<tr><td><code>{field}</code><td>{_type_name(field_schema)}<td>{default}</tr>"


def _type_name(schema: dict[str, Any]) -> str:
    """Return the name of a type, with a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(map(_type_name, schema["anyOf"]))
    if "items" in schema:
        return f"list of {_type_name(schema['items'])}" if schema["items"] else "list"
    return html.escape(str(schema.get("type", "anything")))


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{background:#f3f3f3;padding:0 .2em}td{padding:.1em 1em .1em 0;vertical-align:top}h3{margin:1.5em 0 .2em}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}code{background:#2a2a2a}a{color:#8bf}}"
)
