"""Validation of CRDs: the same as in kube-apiserver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from podpool.api.builtin import LEASES
from podpool.api.crds import CRDS
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_in_loop
from tests.kube.sample_crd import sample_crd
from tests.lab.apiserver.test_parity import MERGE, call, wait_until_served

APPROVED = "api-approved.kubernetes.io"
LEASE_LIKE = ("coordination.k8s.io", "leases", "Lease")


def with_schema(api: NamespaceClient, spec: dict[str, Any]) -> dict[str, Any]:
    """Lamps with a schema for their spec."""
    manifest = sample_crd("lamps", "Lamp", api.namespace)
    schema = {"type": "object", "properties": {"spec": spec}}
    manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return manifest


@asynccontextmanager
async def defined(api: NamespaceClient, manifest: dict[str, Any]) -> AsyncIterator[str]:
    """Create a CRD for the duration; returns the path of its objects."""
    spec, name = manifest["spec"], manifest["metadata"]["name"]
    await api.client.create(CRDS, manifest)
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    try:
        await wait_until_served(api, path, yes=True)
        yield path
    finally:
        await api.client.delete(CRDS, name)
        await wait_until_served(api, path, yes=False)


def of(manifest: dict[str, Any], name: str, **parts: object) -> dict[str, Any]:
    spec = manifest["spec"]
    version = f"{spec['group']}/{spec['versions'][0]['name']}"
    return {"apiVersion": version, "kind": spec["names"]["kind"], "metadata": {"name": name}, **parts}


async def rejected(api: NamespaceClient, manifest: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the code and the invalid fields of a rejected CRD."""
    code, body = await call(api, "POST", CRDS.path(), {**head(), **manifest})
    return code, sorted({each["field"] for each in body["details"]["causes"]})


def head() -> dict[str, str]:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


class TestAdditionalProperties:
    @run_in_loop
    @pytest.mark.parametrize("beside", [{}, {"properties": {"named": {"type": "string"}}}], ids=str)
    async def test_true_allows_any_field_and_empties_undescribed_objects(
        self, cluster: ApiServerUnderTest, beside: dict[str, Any]
    ) -> None:
        async with cluster.open_namespace() as api:
            manifest = with_schema(api, {"type": "object", "additionalProperties": True, **beside})
            sent = {"a": 1, "b": {"c": [1]}, "d": [{"e": 1}, 2, ["f"]], "named": "g"}
            async with defined(api, manifest) as path:
                code, created = await call(api, "POST", path, of(manifest, "a", spec=sent))
                assert (201, {**sent, "b": {}, "d": [{}, 2, ["f"]]}) == (code, created.get("spec")), created
                code, kept = await call(api, "PATCH", f"{path}/a", {"spec": {"b": 5}}, media=MERGE)
                assert (200, 5) == (code, kept["spec"]["b"])

    @run_in_loop
    async def test_false_allows_no_other_field(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            manifest = with_schema(api, {"type": "object", "additionalProperties": False})
            async with defined(api, manifest) as path:
                assert 201 == (await call(api, "POST", path, of(manifest, "a", spec={})))[0]
                assert 422 == (await call(api, "POST", path, of(manifest, "b", spec={"a": 1})))[0]

    @run_in_loop
    async def test_a_schema_applies_to_additional_properties(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
            manifest = with_schema(api, {"type": "object", "additionalProperties": inner})
            async with defined(api, manifest) as path:
                code, created = await call(api, "POST", path, of(manifest, "a", spec={"k": {"x": 1, "y": 2}}))
                assert (201, {"k": {"x": 1}}) == (code, created["spec"])
                assert 422 == (await call(api, "POST", path, of(manifest, "b", spec={"k": {"x": "1"}})))[0]

    @run_in_loop
    @pytest.mark.parametrize("others", [False, {"type": "string"}], ids=str)
    async def test_properties_and_additional_properties_exclude_each_other(
        self, cluster: ApiServerUnderTest, others: object
    ) -> None:
        async with cluster.open_namespace() as api:
            both = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": others}
            code, fields = await rejected(api, with_schema(api, both))
            assert (422, ["additionalProperties"]) == (code, [each.rpartition(".")[2] for each in fields])

    @run_in_loop
    async def test_additional_properties_are_forbidden_at_the_root(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            manifest = with_schema(api, {"type": "object"})
            manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["additionalProperties"] = True
            code, (field,) = await rejected(api, manifest)
            assert (422, "openAPIV3Schema.additionalProperties") == (code, ".".join(field.split(".")[-2:]))


class TestIdentity:
    @run_in_loop
    @pytest.mark.parametrize(
        ("change", "fields"),
        [
            ({"scope": "Namespaced"}, ["spec.scope"]),
            ({"names": {"kind": "Candle", "listKind": "CandleList"}}, ["spec.names.kind"]),
            ({"names": {"plural": "candles"}}, ["spec.names.plural"]),
        ],
    )
    async def test_identity_fields_are_immutable(
        self, cluster: ApiServerUnderTest, change: dict[str, Any], fields: list[str]
    ) -> None:
        async with cluster.open_namespace() as api:
            manifest = sample_crd("lamps", "Lamp", api.namespace)
            async with defined(api, manifest) as path:
                await call(api, "POST", path, of(manifest, "a"))
                crd = CRDS.path(name=manifest["metadata"]["name"])
                code, body = await call(api, "PATCH", crd, {"spec": change}, media=MERGE)
                assert (422, fields) == (code, sorted({each["field"] for each in body["details"]["causes"]})), body
                assert 200 == (await call(api, "GET", f"{path}/a"))[0]


class TestBuiltinGroups:
    def like_leases(self, version: str, **annotations: str) -> dict[str, Any]:
        """Return a CRD with the name of Leases, in another version and with its own schema."""
        group, plural, kind = LEASE_LIKE
        manifest = sample_crd(plural, kind, "x")
        manifest["metadata"] = {"name": f"{plural}.{group}", "annotations": annotations}
        manifest["spec"] |= {"group": group}
        manifest["spec"]["versions"][0]["name"] = version
        return manifest

    async def end(self, api: NamespaceClient, name: str) -> None:
        """Delete a CRD, and wait until its name is free."""
        await api.client.delete(CRDS, name)
        while (await call(api, "GET", CRDS.path(name=name)))[0] != 404:
            pass  # each request takes a moment

    @run_in_loop
    @pytest.mark.parametrize("annotations", [{}, {APPROVED: "yes"}], ids=str)
    async def test_a_protected_group_needs_an_approval(
        self, cluster: ApiServerUnderTest, annotations: dict[str, str]
    ) -> None:
        async with cluster.open_namespace() as api:
            code, fields = await rejected(api, self.like_leases("v9", **annotations))
            assert (422, [f"metadata.annotations[{APPROVED}]"]) == (code, fields)

    @run_in_loop
    @pytest.mark.parametrize("version", ["v1", "v9"])
    async def test_an_approved_crd_does_not_change_a_builtin_resource(
        self, cluster: ApiServerUnderTest, version: str
    ) -> None:
        """A CRD adds nothing to a built-in group."""
        async with cluster.open_namespace() as api:
            manifest = self.like_leases(version, **{APPROVED: "unapproved, a test"})
            await api.client.create(CRDS, manifest)
            mine = LEASES.path(namespace=api.namespace)
            try:
                lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
                code, created = await call(api, "POST", mine, lease)
                assert (201, "me") == (code, created["spec"]["holderIdentity"])
                assert "power" not in created
                code, _ = await call(api, "GET", "/apis/coordination.k8s.io/v9/leases")
                assert 404 == code
            finally:
                await self.end(api, manifest["metadata"]["name"])
            assert 200 == (await call(api, "GET", f"{mine}/a"))[0], "a Lease outlives the definition"
