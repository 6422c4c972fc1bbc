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
from tests.kube.clusters import Cluster, Guest
from tests.kube.loops import in_loop

NNC = NODE_NETWORK_CONFIGS


def nnc(name: str, **meta: Any) -> NodeNetworkConfig:  # noqa: ANN401  whatever metadata has
    return NodeNetworkConfig(metadata=ObjectMeta(name=name, **meta), spec=NetworkConfigSpec(requested=16))


async def made(guest: Guest, name: str = "node-1", **meta: Any) -> NodeNetworkConfig:  # noqa: ANN401  same
    return await guest.client.create(NNC, nnc(name, **meta), namespace=guest.namespace)


class TestObjects:
    @in_loop
    async def test_what_was_created_is_read_back(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            new = await made(guest, labels={"a": "b"}, annotations={"c": "d"})
            read = await guest.client.get(NNC, "node-1", namespace=guest.namespace)
            assert read == new
            assert (read.spec.requested, read.metadata.labels, read.metadata.annotations) == (
                16,
                {"a": "b"},
                {"c": "d"},
            )
            assert read.metadata.uid
            assert read.metadata.creation_timestamp
            assert read.metadata.generation == 1
            assert read.key == f"{guest.namespace}/node-1"

    @in_loop
    async def test_a_decimal_is_written_as_it_stands(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            spec = ClusterSubnetSpec(scaler=SubnetScaler(batch=8, buffer=Decimal("0.25")))
            await guest.client.create(
                CLUSTER_SUBNETS, ClusterSubnet(metadata=ObjectMeta(name="s"), spec=spec), namespace=guest.namespace
            )
            read = await guest.client.get(CLUSTER_SUBNETS, "s", namespace=guest.namespace)
            assert read.spec.scaler == SubnetScaler(batch=8, buffer=Decimal("0.25"))

    @in_loop
    async def test_a_name_is_given_once(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            with pytest.raises(ApiAlreadyExists, match="create NodeNetworkConfig test-.*/node-1"):
                await made(guest)

    @in_loop
    async def test_what_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            with pytest.raises(ApiNotFound, match="get NodeNetworkConfig test-.*/missing"):
                await guest.client.get(NNC, "missing", namespace=guest.namespace)
            with pytest.raises(ApiNotFound):
                await guest.client.merge_patch(NNC, "missing", {"spec": {}}, namespace=guest.namespace)
            with pytest.raises(ApiNotFound):
                await guest.client.delete(NNC, "missing", namespace=guest.namespace)
            with pytest.raises(ApiNotFound, match="namespaces"):
                await guest.client.create(NNC, nnc("x"), namespace="no-such-place")

    @in_loop
    async def test_a_name_that_is_none_is_invalid(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            for name in ("", "Node_1"):
                with pytest.raises(ApiInvalid):
                    await made(guest, name)

    @in_loop
    async def test_what_breaks_the_schema_is_invalid(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            wrong = {"metadata": {"name": "x"}, "spec": {"requestedIPCount": "many"}}
            with pytest.raises(ApiInvalid, match="requestedIPCount"):
                await guest.client.create(NNC, wrong, namespace=guest.namespace)


class TestPatches:
    @in_loop
    async def test_a_merge_changes_what_it_names_and_null_removes(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            old = await made(guest, labels={"keep": "1", "drop": "2"})
            patch = {"metadata": {"labels": {"drop": None, "new": "3"}}, "spec": {"ipsNotInUse": ["g1"]}}
            new = await guest.client.merge_patch(NNC, "node-1", patch, namespace=guest.namespace)
            assert new.metadata.labels == {"keep": "1", "new": "3"}
            assert new.spec == NetworkConfigSpec(requested=16, pending_release=("g1",))
            assert int(new.metadata.resource_version) > int(old.metadata.resource_version)

    @in_loop
    async def test_a_precondition_that_holds_is_granted_and_one_that_does_not_is_a_conflict(
        self, cluster: Cluster
    ) -> None:
        async with cluster.guest() as guest:
            old = (await made(guest)).metadata.resource_version
            await guest.client.merge_patch(
                NNC, "node-1", {"spec": {"requestedIPCount": 17}}, namespace=guest.namespace, precondition=old
            )
            for sub in (None, "status"):
                with pytest.raises(ApiConflict, match="node-1"):
                    await guest.client.merge_patch(
                        NNC,
                        "node-1",
                        {"spec": {"requestedIPCount": 18}, "status": {"assignedIPCount": 1}},
                        namespace=guest.namespace,
                        subresource=sub,
                        precondition=old,
                    )
            assert (await guest.client.get(NNC, "node-1", namespace=guest.namespace)).spec.requested == 17

    @in_loop
    async def test_a_patch_that_changes_nothing_is_no_write(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            old = await made(guest)
            same = await guest.client.merge_patch(
                NNC, "node-1", {"spec": {"requestedIPCount": 16}}, namespace=guest.namespace
            )
            assert same == old

    @in_loop
    async def test_a_json_patch_is_applied_in_order(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            operations: list[dict[str, Any]] = [
                {"op": "add", "path": "/spec/ipsNotInUse", "value": ["a", "c"]},
                {"op": "add", "path": "/spec/ipsNotInUse/1", "value": "b"},
                {"op": "add", "path": "/spec/ipsNotInUse/-", "value": "d"},
                {"op": "remove", "path": "/spec/ipsNotInUse/0"},
                {"op": "test", "path": "/spec/requestedIPCount", "value": 16},
                {"op": "replace", "path": "/spec/requestedIPCount", "value": 32},
            ]
            new = await guest.client.json_patch(NNC, "node-1", operations, namespace=guest.namespace)
            assert new.spec == NetworkConfigSpec(requested=32, pending_release=("b", "c", "d"))

    @in_loop
    async def test_a_json_patch_whose_test_fails_changes_nothing(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            old = await made(guest)
            operations: list[dict[str, Any]] = [
                {"op": "replace", "path": "/spec/requestedIPCount", "value": 32},
                {"op": "test", "path": "/metadata/uid", "value": "another"},
            ]
            with pytest.raises(ApiInvalid):
                await guest.client.json_patch(NNC, "node-1", operations, namespace=guest.namespace)
            assert old == await guest.client.get(NNC, "node-1", namespace=guest.namespace)

    @in_loop
    async def test_a_patch_of_another_uid_or_name_is_refused(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            for meta in ({"uid": "another"}, {"name": "another"}):
                with pytest.raises((ApiInvalid, ApiConflict)):
                    await guest.client.merge_patch(NNC, "node-1", {"metadata": meta}, namespace=guest.namespace)

    @in_loop
    async def test_fields_that_we_do_not_know_survive(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            strange = {"metadata": {"name": "n"}, "spec": {"requestedIPCount": 1, "strange": {"deep": [1, 2.5, "x"]}}}
            await guest.client.create(NNC, strange, namespace=guest.namespace)
            await guest.client.merge_patch(NNC, "n", {"spec": {"requestedIPCount": 2}}, namespace=guest.namespace)
            test = [{"op": "test", "path": "/spec/strange", "value": {"deep": [1, 2.5, "x"]}}]
            assert (await guest.client.json_patch(NNC, "n", test, namespace=guest.namespace)).spec.requested == 2


class TestStatus:
    @in_loop
    async def test_status_and_the_rest_are_written_apart(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            both = {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"requestedIPCount": 32},
                "status": {"assignedIPCount": 5},
            }
            new = await guest.client.merge_patch(NNC, "node-1", both, namespace=guest.namespace, subresource="status")
            assert (new.spec.requested, new.status.assigned, new.metadata.labels) == (16, 5, {})
            new = await guest.client.merge_patch(
                NNC, "node-1", {**both, "status": {"assignedIPCount": 6}}, namespace=guest.namespace
            )
            assert (new.spec.requested, new.status.assigned, new.metadata.labels) == (32, 5, {"a": "b"})

    @in_loop
    async def test_the_generation_counts_changes_of_the_spec(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)

            async def generation(patch: dict[str, Any], sub: str | None = None) -> int:
                new = await guest.client.merge_patch(NNC, "node-1", patch, namespace=guest.namespace, subresource=sub)
                return new.metadata.generation

            assert await generation({"status": {"assignedIPCount": 5}}, "status") == 1
            assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
            assert await generation({"spec": {"requestedIPCount": 32}}) == 2

    @in_loop
    async def test_a_status_in_a_creating_request_is_dropped_except_of_a_node(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            obj = {"metadata": {"name": "n"}, "status": {"assignedIPCount": 5}}
            assert (await guest.client.create(NNC, obj, namespace=guest.namespace)).status.assigned == 0
            name = f"{guest.namespace}-node"
            node = {
                "metadata": {"name": name},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]},
            }
            assert (await guest.client.create(NODES, node)).internal_address == "10.0.0.4"
            patch = {"status": {"nodeInfo": {"bootID": "boot-1"}}}
            assert (await guest.client.merge_patch(NODES, name, patch)).boot_id == ""
            assert (await guest.client.merge_patch(NODES, name, patch, subresource="status")).boot_id == "boot-1"

    @in_loop
    async def test_a_kind_without_status_has_no_such_place(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await guest.client.create(LEASES, {"metadata": {"name": "l"}}, namespace=guest.namespace)
            with pytest.raises(ApiNotFound):
                await guest.client.merge_patch(
                    LEASES, "l", {"spec": {}}, namespace=guest.namespace, subresource="status"
                )


class TestDeletes:
    @in_loop
    async def test_what_is_deleted_is_gone(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            await guest.client.delete(NNC, "node-1", namespace=guest.namespace)
            with pytest.raises(ApiNotFound):
                await guest.client.get(NNC, "node-1", namespace=guest.namespace)

    @in_loop
    async def test_only_the_uid_and_version_that_were_named_are_deleted(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            meta = (await made(guest)).metadata
            with pytest.raises(ApiConflict):
                await guest.client.delete(NNC, "node-1", namespace=guest.namespace, uid="another")
            with pytest.raises(ApiConflict):
                await guest.client.delete(NNC, "node-1", namespace=guest.namespace, resource_version="1")
            await guest.client.delete(
                NNC, "node-1", namespace=guest.namespace, uid=meta.uid, resource_version=meta.resource_version
            )

    @in_loop
    async def test_a_finalizer_keeps_a_deleted_object_until_it_is_taken_off(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest, finalizers=("podpool.io/ledger",))
            await guest.client.delete(NNC, "node-1", namespace=guest.namespace)
            held = await guest.client.get(NNC, "node-1", namespace=guest.namespace)
            assert held.metadata.deletion_timestamp
            assert held.metadata.generation == 2
            await guest.client.delete(NNC, "node-1", namespace=guest.namespace)
            assert held == await guest.client.get(NNC, "node-1", namespace=guest.namespace), "twice changes nothing"

            more = {"metadata": {"finalizers": ["podpool.io/ledger", "podpool.io/other"]}}
            with pytest.raises(ApiInvalid):
                await guest.client.merge_patch(NNC, "node-1", more, namespace=guest.namespace)

            await guest.client.merge_patch(NNC, "node-1", {"metadata": {"finalizers": None}}, namespace=guest.namespace)
            with pytest.raises(ApiNotFound):
                await guest.client.get(NNC, "node-1", namespace=guest.namespace)

    @in_loop
    async def test_a_bound_pod_stays_until_its_grace_is_over_and_no_other_does(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            for name, node in (("bound", "n"), ("unbound", None)):
                await guest.client.create(PODS, pod(name, node=node), namespace=guest.namespace)
                await guest.client.delete(PODS, name, namespace=guest.namespace)
            left = await guest.client.list(PODS, namespace=guest.namespace)
            assert [("bound", True)] == [
                (each.metadata.name, bool(each.metadata.deletion_timestamp)) for each in left.items
            ]
            await guest.client.delete(PODS, "bound", namespace=guest.namespace, grace_seconds=0)
            assert [] == list((await guest.client.list(PODS, namespace=guest.namespace)).items)


class TestLists:
    @in_loop
    async def test_a_list_is_of_its_namespace_and_in_order(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            for name in ("b", "a", "c"):
                await made(guest, name)
            listed = await guest.client.list(NNC, namespace=guest.namespace)
            assert ["a", "b", "c"] == [each.metadata.name for each in listed.items]
            everywhere = await guest.client.list(NNC)
            assert {each.key for each in listed.items} <= {each.key for each in everywhere.items}

    @in_loop
    async def test_a_list_is_as_new_as_the_last_write(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            last = await made(guest)
            listed = await guest.client.list(NNC, namespace=guest.namespace)
            assert int(listed.resource_version) >= int(last.metadata.resource_version)

    @in_loop
    async def test_pages_are_put_together_as_of_one_version(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("podpool.kube.client.PAGE", 2)
        async with cluster.guest() as guest:
            for number in range(5):
                await made(guest, f"n-{number}")
            guest.road.sent.clear()
            listed = await guest.client.list(NNC, namespace=guest.namespace)
            assert [f"n-{number}" for number in range(5)] == [each.metadata.name for each in listed.items]
            assert [False, True, True] == ["continue" in each.query for each in guest.road.sent]

    @in_loop
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
    async def test_labels_select(self, cluster: Cluster, labels: str, expected: list[str]) -> None:
        async with cluster.guest() as guest:
            await made(guest, "web-1", labels={"app": "web", "tier": "1"})
            await made(guest, "web-2", labels={"app": "web", "tier": "2"})
            await made(guest, "db", labels={"app": "db"})
            await made(guest, "bare")
            listed = await guest.client.list(NNC, namespace=guest.namespace, labels=labels)
            assert expected == [each.metadata.name for each in listed.items]

    @in_loop
    async def test_fields_select(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await guest.client.create(PODS, pod("here", node="n-1"), namespace=guest.namespace)
            await guest.client.create(PODS, pod("there", node="n-2"), namespace=guest.namespace)
            await guest.client.create(PODS, pod("nowhere", node=None), namespace=guest.namespace)

            async def names(fields: str) -> list[str]:
                listed = await guest.client.list(PODS, namespace=guest.namespace, fields=fields)
                return [each.metadata.name for each in listed.items]

            assert ["here"] == await names("spec.nodeName=n-1")
            assert ["nowhere", "there"] == await names("spec.nodeName!=n-1")
            assert ["nowhere"] == await names("spec.nodeName=")
            assert ["there"] == await names("metadata.name=there")
            assert [] == await names("metadata.name=there,spec.nodeName=n-1")

    @in_loop
    async def test_a_selector_that_is_none_is_refused(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            with pytest.raises(ApiInvalid):
                await guest.client.list(NNC, namespace=guest.namespace, labels="a b")
            with pytest.raises(ApiInvalid):
                await guest.client.list(NNC, namespace=guest.namespace, fields="spec.requestedIPCount=1")


async def seen(
    guest: Guest,
    *,
    since: str,
    count: int,
    kind: Kind[Any] = NNC,
    labels: str | None = None,
    fields: str | None = None,
) -> list[tuple[str, str]]:
    """The next so many changes: what, and to which object."""
    changes: list[tuple[str, str]] = []
    told = guest.client.watch(kind, resource_version=since, namespace=guest.namespace, labels=labels, fields=fields)
    async with aclosing(told) as watch:
        async for change in watch:
            if change.type != "BOOKMARK":
                changes.append((change.type, change.object.metadata.name))
            if len(changes) == count:
                break
    return changes


class TestWatches:
    @in_loop
    async def test_a_watch_tells_what_happened_since_a_version(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            before = await made(guest, "before")
            await made(guest, "a")
            await guest.client.merge_patch(NNC, "a", {"spec": {"requestedIPCount": 1}}, namespace=guest.namespace)
            await guest.client.merge_patch(
                NNC, "a", {"status": {"assignedIPCount": 1}}, namespace=guest.namespace, subresource="status"
            )
            await guest.client.delete(NNC, "a", namespace=guest.namespace)
            assert [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")] == await seen(
                guest, since=before.metadata.resource_version, count=4
            )

    @in_loop
    async def test_versions_rise_along_a_watch_up_to_the_deletion(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            first = await made(guest, "a", finalizers=("podpool.io/ledger",))
            await guest.client.delete(NNC, "a", namespace=guest.namespace)
            await guest.client.merge_patch(NNC, "a", {"metadata": {"finalizers": []}}, namespace=guest.namespace)
            since = first.metadata.resource_version
            changes = []
            async with aclosing(guest.client.watch(NNC, resource_version=since, namespace=guest.namespace)) as watch:
                async for change in watch:
                    changes.append(change)
                    if change.type == "DELETED":
                        break
            assert [each.type for each in changes] == ["MODIFIED", "DELETED"]
            versions = [int(since), *(int(each.object.metadata.resource_version) for each in changes)]
            assert versions == sorted(set(versions))
            listed = await guest.client.list(NNC, namespace=guest.namespace)
            assert int(listed.resource_version) >= versions[-1]

    @in_loop
    async def test_what_leaves_a_selection_is_told_as_deleted_and_what_enters_it_as_added(
        self, cluster: Cluster
    ) -> None:
        async with cluster.guest() as guest:
            since = (await guest.client.list(NNC, namespace=guest.namespace)).resource_version
            await made(guest, "a")
            for value in ("yes", "no", "yes"):
                await guest.client.merge_patch(
                    NNC, "a", {"metadata": {"labels": {"mine": value}}}, namespace=guest.namespace
                )
            await made(guest, "other", labels={"mine": "no"})
            assert [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")] == await seen(
                guest, since=since, count=3, labels="mine=yes"
            )

    @in_loop
    async def test_a_watch_of_a_node_sees_only_its_pods(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            since = (await guest.client.list(PODS, namespace=guest.namespace)).resource_version
            await guest.client.create(PODS, pod("other", node="n-2"), namespace=guest.namespace)
            await guest.client.create(PODS, pod("mine", node="n-1"), namespace=guest.namespace)
            fields = "spec.nodeName=n-1"
            assert [("ADDED", "mine")] == await seen(guest, since=since, count=1, kind=PODS, fields=fields)

    @in_loop
    async def test_a_watch_ends_when_agreed_and_goes_on_from_where_it_was(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            first = await made(guest, "a")
            since = first.metadata.resource_version
            async with aclosing(
                guest.client.watch(NNC, resource_version=since, namespace=guest.namespace, timeout_seconds=1)
            ) as watch:
                await made(guest, "b")
                told = [change async for change in watch]
            assert ["b"] == [each.object.metadata.name for each in told if each.type == "ADDED"]
            await made(guest, "c")
            assert [("ADDED", "c")] == await seen(guest, since=told[-1].object.metadata.resource_version, count=1)

    @in_loop
    async def test_a_watch_from_a_forgotten_version_is_gone(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await made(guest)
            with pytest.raises(ApiExpired, match="watch nodenetworkconfigs in test-"):
                await seen(guest, since=guest.forgotten(), count=1)


def pod(name: str, *, node: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "none.invalid/none"}]}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}
