"""What the client promises, on both servers."""

from contextlib import aclosing
from decimal import Decimal
from typing import Any

import pytest

from podpool.api.azure import (
    CLUSTER_SUBNETS,
    NODE_NETWORK_CONFIGS,
    ClusterSubnet,
    ClusterSubnetSpec,
    NetworkConfigSpec,
    NodeNetworkConfig,
    SubnetScaler,
)
from podpool.api.builtin import LEASES, NODES, PODS
from podpool.api.meta import Kind, ObjectMeta
from podpool.kube.errors import ApiAlreadyExists, ApiConflict, ApiExpired, ApiInvalid, ApiNotFound
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.event_loops import run_in_loop

NNC = NODE_NETWORK_CONFIGS


def nnc(name: str, **meta: Any) -> NodeNetworkConfig:  # noqa: ANN401  whatever metadata has
    return NodeNetworkConfig(metadata=ObjectMeta(name=name, **meta), spec=NetworkConfigSpec(requested=16))


async def made(api: NamespaceClient, name: str = "node-1", **meta: Any) -> NodeNetworkConfig:  # noqa: ANN401  same
    return await api.client.create(NNC, nnc(name, **meta), namespace=api.namespace)


class TestObjects:
    @run_in_loop
    async def test_what_was_created_is_read_back(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            new = await made(api, labels={"a": "b"}, annotations={"c": "d"})
            read = await api.client.get(NNC, "node-1", namespace=api.namespace)
            assert read == new
            assert (read.spec.requested, read.metadata.labels, read.metadata.annotations) == (
                16,
                {"a": "b"},
                {"c": "d"},
            )
            assert read.metadata.uid
            assert read.metadata.creation_timestamp
            assert read.metadata.generation == 1
            assert read.key == f"{api.namespace}/node-1"

    @run_in_loop
    async def test_a_decimal_is_written_as_it_stands(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            spec = ClusterSubnetSpec(scaler=SubnetScaler(batch=8, buffer=Decimal("0.25")))
            await api.client.create(
                CLUSTER_SUBNETS, ClusterSubnet(metadata=ObjectMeta(name="s"), spec=spec), namespace=api.namespace
            )
            read = await api.client.get(CLUSTER_SUBNETS, "s", namespace=api.namespace)
            assert read.spec.scaler == SubnetScaler(batch=8, buffer=Decimal("0.25"))

    @run_in_loop
    async def test_a_name_is_given_once(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            with pytest.raises(ApiAlreadyExists, match="create NodeNetworkConfig test-.*/node-1"):
                await made(api)

    @run_in_loop
    async def test_what_is_not_there_is_not_found(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            with pytest.raises(ApiNotFound, match="get NodeNetworkConfig test-.*/missing"):
                await api.client.get(NNC, "missing", namespace=api.namespace)
            assert await api.client.find(NNC, "missing", namespace=api.namespace) is None
            with pytest.raises(ApiNotFound):
                await api.client.merge_patch(NNC, "missing", {"spec": {}}, namespace=api.namespace)
            with pytest.raises(ApiNotFound):
                await api.client.delete(NNC, "missing", namespace=api.namespace)
            with pytest.raises(ApiNotFound, match="namespaces"):
                await api.client.create(NNC, nnc("x"), namespace="no-such-place")

    @run_in_loop
    async def test_a_name_that_is_none_is_invalid(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            for name in ("", "Node_1"):
                with pytest.raises(ApiInvalid):
                    await made(api, name)

    @run_in_loop
    async def test_what_breaks_the_schema_is_invalid(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            wrong = {"metadata": {"name": "x"}, "spec": {"requestedIPCount": "many"}}
            with pytest.raises(ApiInvalid, match="requestedIPCount"):
                await api.client.create(NNC, wrong, namespace=api.namespace)


class TestPatches:
    @run_in_loop
    async def test_a_merge_changes_what_it_names_and_null_removes(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            old = await made(api, labels={"keep": "1", "drop": "2"})
            patch = {"metadata": {"labels": {"drop": None, "new": "3"}}, "spec": {"ipsNotInUse": ["g1"]}}
            new = await api.client.merge_patch(NNC, "node-1", patch, namespace=api.namespace)
            assert new.metadata.labels == {"keep": "1", "new": "3"}
            assert new.spec == NetworkConfigSpec(requested=16, pending_release=("g1",))
            assert int(new.metadata.resource_version) > int(old.metadata.resource_version)

    @run_in_loop
    async def test_a_precondition_that_holds_is_granted_and_one_that_does_not_is_a_conflict(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            old = (await made(api)).metadata.resource_version
            await api.client.merge_patch(
                NNC, "node-1", {"spec": {"requestedIPCount": 17}}, namespace=api.namespace, precondition=old
            )
            for sub in (None, "status"):
                with pytest.raises(ApiConflict, match="node-1"):
                    await api.client.merge_patch(
                        NNC,
                        "node-1",
                        {"spec": {"requestedIPCount": 18}, "status": {"assignedIPCount": 1}},
                        namespace=api.namespace,
                        subresource=sub,
                        precondition=old,
                    )
            assert (await api.client.get(NNC, "node-1", namespace=api.namespace)).spec.requested == 17

    @run_in_loop
    async def test_a_patch_that_changes_nothing_is_no_write(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            old = await made(api)
            same = await api.client.merge_patch(
                NNC, "node-1", {"spec": {"requestedIPCount": 16}}, namespace=api.namespace
            )
            assert same == old

    @run_in_loop
    async def test_a_json_patch_is_applied_in_order(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            operations: list[dict[str, Any]] = [
                {"op": "add", "path": "/spec/ipsNotInUse", "value": ["a", "c"]},
                {"op": "add", "path": "/spec/ipsNotInUse/1", "value": "b"},
                {"op": "add", "path": "/spec/ipsNotInUse/-", "value": "d"},
                {"op": "remove", "path": "/spec/ipsNotInUse/0"},
                {"op": "test", "path": "/spec/requestedIPCount", "value": 16},
                {"op": "replace", "path": "/spec/requestedIPCount", "value": 32},
            ]
            new = await api.client.json_patch(NNC, "node-1", operations, namespace=api.namespace)
            assert new.spec == NetworkConfigSpec(requested=32, pending_release=("b", "c", "d"))

    @run_in_loop
    async def test_a_json_patch_whose_test_fails_changes_nothing(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            old = await made(api)
            operations: list[dict[str, Any]] = [
                {"op": "replace", "path": "/spec/requestedIPCount", "value": 32},
                {"op": "test", "path": "/metadata/uid", "value": "another"},
            ]
            with pytest.raises(ApiInvalid):
                await api.client.json_patch(NNC, "node-1", operations, namespace=api.namespace)
            assert old == await api.client.get(NNC, "node-1", namespace=api.namespace)

    @run_in_loop
    async def test_a_patch_of_another_uid_or_name_is_refused(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            for meta in ({"uid": "another"}, {"name": "another"}):
                with pytest.raises((ApiInvalid, ApiConflict)):
                    await api.client.merge_patch(NNC, "node-1", {"metadata": meta}, namespace=api.namespace)

    @run_in_loop
    async def test_fields_that_we_do_not_know_survive(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            strange = {"metadata": {"name": "n"}, "spec": {"requestedIPCount": 1, "strange": {"deep": [1, 2.5, "x"]}}}
            await api.client.create(NNC, strange, namespace=api.namespace)
            await api.client.merge_patch(NNC, "n", {"spec": {"requestedIPCount": 2}}, namespace=api.namespace)
            test = [{"op": "test", "path": "/spec/strange", "value": {"deep": [1, 2.5, "x"]}}]
            assert (await api.client.json_patch(NNC, "n", test, namespace=api.namespace)).spec.requested == 2


class TestStatus:
    @run_in_loop
    async def test_status_and_the_rest_are_written_apart(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            both = {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"requestedIPCount": 32},
                "status": {"assignedIPCount": 5},
            }
            new = await api.client.merge_patch(NNC, "node-1", both, namespace=api.namespace, subresource="status")
            assert (new.spec.requested, new.status.assigned, new.metadata.labels) == (16, 5, {})
            new = await api.client.merge_patch(
                NNC, "node-1", {**both, "status": {"assignedIPCount": 6}}, namespace=api.namespace
            )
            assert (new.spec.requested, new.status.assigned, new.metadata.labels) == (32, 5, {"a": "b"})

    @run_in_loop
    async def test_the_generation_counts_changes_of_the_spec(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)

            async def generation(patch: dict[str, Any], sub: str | None = None) -> int:
                new = await api.client.merge_patch(NNC, "node-1", patch, namespace=api.namespace, subresource=sub)
                return new.metadata.generation

            assert await generation({"status": {"assignedIPCount": 5}}, "status") == 1
            assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
            assert await generation({"spec": {"requestedIPCount": 32}}) == 2

    @run_in_loop
    async def test_a_status_in_a_creating_request_is_dropped_except_of_a_node(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            obj = {"metadata": {"name": "n"}, "status": {"assignedIPCount": 5}}
            assert (await api.client.create(NNC, obj, namespace=api.namespace)).status.assigned == 0
            name = f"{api.namespace}-node"
            node = {
                "metadata": {"name": name},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]},
            }
            assert (await api.client.create(NODES, node)).internal_address == "10.0.0.4"
            patch = {"status": {"nodeInfo": {"bootID": "boot-1"}}}
            assert (await api.client.merge_patch(NODES, name, patch)).boot_id == ""
            assert (await api.client.merge_patch(NODES, name, patch, subresource="status")).boot_id == "boot-1"

    @run_in_loop
    async def test_a_kind_without_status_has_no_such_place(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await api.client.create(LEASES, {"metadata": {"name": "l"}}, namespace=api.namespace)
            with pytest.raises(ApiNotFound):
                await api.client.merge_patch(LEASES, "l", {"spec": {}}, namespace=api.namespace, subresource="status")


class TestDeletes:
    @run_in_loop
    async def test_what_is_deleted_is_gone(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            await api.client.delete(NNC, "node-1", namespace=api.namespace)
            with pytest.raises(ApiNotFound):
                await api.client.get(NNC, "node-1", namespace=api.namespace)

    @run_in_loop
    async def test_only_the_uid_and_version_that_were_named_are_deleted(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            meta = (await made(api)).metadata
            with pytest.raises(ApiConflict):
                await api.client.delete(NNC, "node-1", namespace=api.namespace, uid="another")
            with pytest.raises(ApiConflict):
                await api.client.delete(NNC, "node-1", namespace=api.namespace, resource_version="1")
            await api.client.delete(
                NNC, "node-1", namespace=api.namespace, uid=meta.uid, resource_version=meta.resource_version
            )

    @run_in_loop
    async def test_a_finalizer_keeps_a_deleted_object_until_it_is_taken_off(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api, finalizers=("podpool.io/ledger",))
            await api.client.delete(NNC, "node-1", namespace=api.namespace)
            held = await api.client.get(NNC, "node-1", namespace=api.namespace)
            assert held.metadata.deletion_timestamp
            assert held.metadata.generation == 2
            await api.client.delete(NNC, "node-1", namespace=api.namespace)
            assert held == await api.client.get(NNC, "node-1", namespace=api.namespace), "twice changes nothing"

            more = {"metadata": {"finalizers": ["podpool.io/ledger", "podpool.io/other"]}}
            with pytest.raises(ApiInvalid):
                await api.client.merge_patch(NNC, "node-1", more, namespace=api.namespace)

            await api.client.merge_patch(NNC, "node-1", {"metadata": {"finalizers": None}}, namespace=api.namespace)
            with pytest.raises(ApiNotFound):
                await api.client.get(NNC, "node-1", namespace=api.namespace)

    @run_in_loop
    async def test_a_bound_pod_stays_until_its_grace_is_over_and_no_other_does(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            for name, node in (("bound", "n"), ("unbound", None)):
                await api.client.create(PODS, pod(name, node=node), namespace=api.namespace)
                await api.client.delete(PODS, name, namespace=api.namespace)
            left = await api.client.list(PODS, namespace=api.namespace)
            assert [("bound", True)] == [
                (each.metadata.name, bool(each.metadata.deletion_timestamp)) for each in left.items
            ]
            await api.client.delete(PODS, "bound", namespace=api.namespace, grace_seconds=0)
            assert [] == list((await api.client.list(PODS, namespace=api.namespace)).items)


class TestLists:
    @run_in_loop
    async def test_a_list_is_of_its_namespace_and_in_order(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            for name in ("b", "a", "c"):
                await made(api, name)
            listed = await api.client.list(NNC, namespace=api.namespace)
            assert ["a", "b", "c"] == [each.metadata.name for each in listed.items]
            everywhere = await api.client.list(NNC)
            assert {each.key for each in listed.items} <= {each.key for each in everywhere.items}

    @run_in_loop
    async def test_a_list_is_as_new_as_the_last_write(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            last = await made(api)
            listed = await api.client.list(NNC, namespace=api.namespace)
            assert int(listed.resource_version) >= int(last.metadata.resource_version)

    @run_in_loop
    async def test_pages_are_put_together_as_of_one_version(
        self, cluster: ApiServerUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("podpool.kube.client.PAGE", 2)
        async with cluster.open_namespace() as api:
            for number in range(5):
                await made(api, f"n-{number}")
            api.transport.sent.clear()
            listed = await api.client.list(NNC, namespace=api.namespace)
            assert [f"n-{number}" for number in range(5)] == [each.metadata.name for each in listed.items]
            assert [False, True, True] == ["continue" in each.query for each in api.transport.sent]

    @run_in_loop
    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ("app=web", ["web-1", "web-2"]),
            ("app==web,tier=1", ["web-1"]),
            ("app!=web", ["bare", "db"]),
            ("app in (web, db),tier notin (2)", ["db", "web-1"]),
            ("app", ["db", "web-1", "web-2"]),
            ("!app", ["bare"]),
            ("app notin (web)", ["bare", "db"]),
        ],
    )
    async def test_labels_select(self, cluster: ApiServerUnderTest, labels: str, expected: list[str]) -> None:
        async with cluster.open_namespace() as api:
            await made(api, "web-1", labels={"app": "web", "tier": "1"})
            await made(api, "web-2", labels={"app": "web", "tier": "2"})
            await made(api, "db", labels={"app": "db"})
            await made(api, "bare")
            listed = await api.client.list(NNC, namespace=api.namespace, labels=labels)
            assert expected == [each.metadata.name for each in listed.items]

    @run_in_loop
    async def test_fields_select(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await api.client.create(PODS, pod("here", node="n-1"), namespace=api.namespace)
            await api.client.create(PODS, pod("there", node="n-2"), namespace=api.namespace)
            await api.client.create(PODS, pod("nowhere", node=None), namespace=api.namespace)

            async def names(fields: str) -> list[str]:
                listed = await api.client.list(PODS, namespace=api.namespace, fields=fields)
                return [each.metadata.name for each in listed.items]

            assert ["here"] == await names("spec.nodeName=n-1")
            assert ["nowhere", "there"] == await names("spec.nodeName!=n-1")
            assert ["nowhere"] == await names("spec.nodeName=")
            assert ["there"] == await names("metadata.name=there")
            assert [] == await names("metadata.name=there,spec.nodeName=n-1")

    @run_in_loop
    async def test_a_selector_that_is_none_is_refused(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            with pytest.raises(ApiInvalid):
                await api.client.list(NNC, namespace=api.namespace, labels="a b")
            with pytest.raises(ApiInvalid):
                await api.client.list(NNC, namespace=api.namespace, fields="spec.requestedIPCount=1")


async def seen(
    api: NamespaceClient,
    *,
    since: str,
    count: int,
    kind: Kind[Any] = NNC,
    labels: str | None = None,
    fields: str | None = None,
) -> list[tuple[str, str]]:
    """The next so many changes: what, and to which object."""
    changes: list[tuple[str, str]] = []
    events = api.client.watch(kind, resource_version=since, namespace=api.namespace, labels=labels, fields=fields)
    async with aclosing(events) as watch:
        async for change in watch:
            if change.type != "BOOKMARK":
                changes.append((change.type, change.object.metadata.name))
            if len(changes) == count:
                break
    return changes


class TestWatches:
    @run_in_loop
    async def test_a_watch_has_the_changes_since_a_version(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            before = await made(api, "before")
            await made(api, "a")
            await api.client.merge_patch(NNC, "a", {"spec": {"requestedIPCount": 1}}, namespace=api.namespace)
            await api.client.merge_patch(
                NNC, "a", {"status": {"assignedIPCount": 1}}, namespace=api.namespace, subresource="status"
            )
            await api.client.delete(NNC, "a", namespace=api.namespace)
            assert [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")] == await seen(
                api, since=before.metadata.resource_version, count=4
            )

    @run_in_loop
    async def test_versions_rise_along_a_watch_up_to_the_deletion(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            first = await made(api, "a", finalizers=("podpool.io/ledger",))
            await api.client.delete(NNC, "a", namespace=api.namespace)
            await api.client.merge_patch(NNC, "a", {"metadata": {"finalizers": []}}, namespace=api.namespace)
            since = first.metadata.resource_version
            changes = []
            async with aclosing(api.client.watch(NNC, resource_version=since, namespace=api.namespace)) as watch:
                async for change in watch:
                    changes.append(change)
                    if change.type == "DELETED":
                        break
            assert [each.type for each in changes] == ["MODIFIED", "DELETED"]
            versions = [int(since), *(int(each.object.metadata.resource_version) for each in changes)]
            assert versions == sorted(set(versions))
            listed = await api.client.list(NNC, namespace=api.namespace)
            assert int(listed.resource_version) >= versions[-1]

    @run_in_loop
    async def test_what_leaves_a_selection_is_reported_as_deleted_and_what_enters_it_as_added(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            since = (await api.client.list(NNC, namespace=api.namespace)).resource_version
            await made(api, "a")
            for value in ("yes", "no", "yes"):
                await api.client.merge_patch(
                    NNC, "a", {"metadata": {"labels": {"mine": value}}}, namespace=api.namespace
                )
            await made(api, "other", labels={"mine": "no"})
            assert [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")] == await seen(
                api, since=since, count=3, labels="mine=yes"
            )

    @run_in_loop
    async def test_a_watch_of_a_node_sees_only_its_pods(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            since = (await api.client.list(PODS, namespace=api.namespace)).resource_version
            await api.client.create(PODS, pod("other", node="n-2"), namespace=api.namespace)
            await api.client.create(PODS, pod("mine", node="n-1"), namespace=api.namespace)
            fields = "spec.nodeName=n-1"
            assert [("ADDED", "mine")] == await seen(api, since=since, count=1, kind=PODS, fields=fields)

    @run_in_loop
    async def test_a_watch_ends_when_agreed_and_goes_on_from_where_it_was(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            first = await made(api, "a")
            since = first.metadata.resource_version
            async with aclosing(
                api.client.watch(NNC, resource_version=since, namespace=api.namespace, timeout_seconds=1)
            ) as watch:
                await made(api, "b")
                received = [change async for change in watch]
            assert ["b"] == [each.object.metadata.name for each in received if each.type == "ADDED"]
            await made(api, "c")
            assert [("ADDED", "c")] == await seen(api, since=received[-1].object.metadata.resource_version, count=1)

    @run_in_loop
    async def test_a_watch_from_a_forgotten_version_is_gone(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await made(api)
            with pytest.raises(ApiExpired, match="watch nodenetworkconfigs in test-"):
                await seen(api, since=api.expired_version(), count=1)


def pod(name: str, *, node: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "none.invalid/none"}]}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}
