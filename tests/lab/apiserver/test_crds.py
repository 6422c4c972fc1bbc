"""Validation of CRDs: the same as in kube-apiserver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from podpool.api.builtin import LEASES
from podpool.api.crds import CRDS
from tests.kube.clusters import Cluster, Guest
from tests.kube.lamps import definition
from tests.kube.loops import in_loop
from tests.lab.apiserver.test_parity import MERGE, call, wait_until_served

APPROVED = "api-approved.kubernetes.io"
LEASE_LIKE = ("coordination.k8s.io", "leases", "Lease")


def with_schema(guest: Guest, spec: dict[str, Any]) -> dict[str, Any]:
    """Lamps with a schema for their spec."""
    manifest = definition("lamps", "Lamp", guest.namespace)
    schema = {"type": "object", "properties": {"spec": spec}}
    manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return manifest


@asynccontextmanager
async def defined(guest: Guest, manifest: dict[str, Any]) -> AsyncIterator[str]:
    """Create a CRD for the duration; returns the path of its objects."""
    spec, name = manifest["spec"], manifest["metadata"]["name"]
    await guest.client.create(CRDS, manifest)
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    try:
        await wait_until_served(guest, path, yes=True)
        yield path
    finally:
        await guest.client.delete(CRDS, name)
        await wait_until_served(guest, path, yes=False)


def of(manifest: dict[str, Any], name: str, **parts: object) -> dict[str, Any]:
    spec = manifest["spec"]
    version = f"{spec['group']}/{spec['versions'][0]['name']}"
    return {"apiVersion": version, "kind": spec["names"]["kind"], "metadata": {"name": name}, **parts}


async def refused(guest: Guest, manifest: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the code and the invalid fields of a rejected CRD."""
    code, body = await call(guest, "POST", CRDS.path(), {**head(), **manifest})
    return code, sorted({each["field"] for each in body["details"]["causes"]})


def head() -> dict[str, str]:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


class TestAdditionalProperties:
    @in_loop
    @pytest.mark.parametrize("beside", [{}, {"properties": {"named": {"type": "string"}}}], ids=str)
    async def test_true_allows_any_field_and_empties_undescribed_objects(
        self, cluster: Cluster, beside: dict[str, Any]
    ) -> None:
        async with cluster.guest() as guest:
            manifest = with_schema(guest, {"type": "object", "additionalProperties": True, **beside})
            sent = {"a": 1, "b": {"c": [1]}, "d": [{"e": 1}, 2, ["f"]], "named": "g"}
            async with defined(guest, manifest) as path:
                code, made = await call(guest, "POST", path, of(manifest, "a", spec=sent))
                assert (201, {**sent, "b": {}, "d": [{}, 2, ["f"]]}) == (code, made.get("spec")), made
                code, kept = await call(guest, "PATCH", f"{path}/a", {"spec": {"b": 5}}, media=MERGE)
                assert (200, 5) == (code, kept["spec"]["b"])

    @in_loop
    async def test_false_allows_no_other_field(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            manifest = with_schema(guest, {"type": "object", "additionalProperties": False})
            async with defined(guest, manifest) as path:
                assert 201 == (await call(guest, "POST", path, of(manifest, "a", spec={})))[0]
                assert 422 == (await call(guest, "POST", path, of(manifest, "b", spec={"a": 1})))[0]

    @in_loop
    async def test_a_schema_applies_to_additional_properties(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
            manifest = with_schema(guest, {"type": "object", "additionalProperties": inner})
            async with defined(guest, manifest) as path:
                code, made = await call(guest, "POST", path, of(manifest, "a", spec={"k": {"x": 1, "y": 2}}))
                assert (201, {"k": {"x": 1}}) == (code, made["spec"])
                assert 422 == (await call(guest, "POST", path, of(manifest, "b", spec={"k": {"x": "1"}})))[0]

    @in_loop
    @pytest.mark.parametrize("others", [False, {"type": "string"}], ids=str)
    async def test_properties_and_additional_properties_exclude_each_other(
        self, cluster: Cluster, others: object
    ) -> None:
        async with cluster.guest() as guest:
            both = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": others}
            code, fields = await refused(guest, with_schema(guest, both))
            assert (422, ["additionalProperties"]) == (code, [each.rpartition(".")[2] for each in fields])

    @in_loop
    async def test_additional_properties_are_forbidden_at_the_root(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            manifest = with_schema(guest, {"type": "object"})
            manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["additionalProperties"] = True
            code, (field,) = await refused(guest, manifest)
            assert (422, "openAPIV3Schema.additionalProperties") == (code, ".".join(field.split(".")[-2:]))


class TestIdentity:
    @in_loop
    @pytest.mark.parametrize(
        ("change", "fields"),
        [
            ({"scope": "Namespaced"}, ["spec.scope"]),
            ({"names": {"kind": "Candle", "listKind": "CandleList"}}, ["spec.names.kind"]),
            ({"names": {"plural": "candles"}}, ["spec.names.plural"]),
        ],
    )
    async def test_identity_fields_are_immutable(
        self, cluster: Cluster, change: dict[str, Any], fields: list[str]
    ) -> None:
        async with cluster.guest() as guest:
            manifest = definition("lamps", "Lamp", guest.namespace)
            async with defined(guest, manifest) as path:
                await call(guest, "POST", path, of(manifest, "a"))
                crd = CRDS.path(name=manifest["metadata"]["name"])
                code, body = await call(guest, "PATCH", crd, {"spec": change}, media=MERGE)
                assert (422, fields) == (code, sorted({each["field"] for each in body["details"]["causes"]})), body
                assert 200 == (await call(guest, "GET", f"{path}/a"))[0]


class TestBuiltinGroups:
    def like_leases(self, version: str, **annotations: str) -> dict[str, Any]:
        """Return a CRD with the name of Leases, in another version and with its own schema."""
        group, plural, kind = LEASE_LIKE
        manifest = definition(plural, kind, "x")
        manifest["metadata"] = {"name": f"{plural}.{group}", "annotations": annotations}
        manifest["spec"] |= {"group": group}
        manifest["spec"]["versions"][0]["name"] = version
        return manifest

    async def end(self, guest: Guest, name: str) -> None:
        """Delete a CRD, and wait until its name is free."""
        await guest.client.delete(CRDS, name)
        while (await call(guest, "GET", CRDS.path(name=name)))[0] != 404:
            pass  # each request takes a moment

    @in_loop
    @pytest.mark.parametrize("annotations", [{}, {APPROVED: "yes"}], ids=str)
    async def test_a_protected_group_needs_an_approval(self, cluster: Cluster, annotations: dict[str, str]) -> None:
        async with cluster.guest() as guest:
            code, fields = await refused(guest, self.like_leases("v9", **annotations))
            assert (422, [f"metadata.annotations[{APPROVED}]"]) == (code, fields)

    @in_loop
    @pytest.mark.parametrize("version", ["v1", "v9"])
    async def test_an_approved_crd_does_not_change_a_builtin_resource(self, cluster: Cluster, version: str) -> None:
        """A CRD adds nothing to a built-in group."""
        async with cluster.guest() as guest:
            manifest = self.like_leases(version, **{APPROVED: "unapproved, a test"})
            await guest.client.create(CRDS, manifest)
            mine = LEASES.path(namespace=guest.namespace)
            try:
                lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}
                code, made = await call(guest, "POST", mine, lease)
                assert (201, "me") == (code, made["spec"]["holderIdentity"])
                assert "power" not in made
                code, _ = await call(guest, "GET", "/apis/coordination.k8s.io/v9/leases")
                assert 404 == code
            finally:
                await self.end(guest, manifest["metadata"]["name"])
            assert 200 == (await call(guest, "GET", f"{mine}/a"))[0], "a Lease outlives the definition"
