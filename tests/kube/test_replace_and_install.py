"""Writing a whole object, and bringing a kind that may be there already."""

import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.crds import CRDS
from podpool.kube.crd_install import install_crds, merged_spec
from podpool.kube.errors import ApiConflict, ApiNotFound
from podpool.runtime.transport import Request, Response
from tests.kube.api_servers import ApiServerUnderTest
from tests.kube.event_loops import run_in_loop
from tests.kube.sample_crd import sample_crd

NNC = NODE_NETWORK_CONFIGS
STRANGE = {"deep": [1, 2.5, "x"]}


class TestReplacing:
    @run_in_loop
    async def test_what_was_read_is_written_whole(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            spec = {"requestedIPCount": 1, "ipsNotInUse": ["a"], "strange": STRANGE}
            await api.client.create(NNC, {"metadata": {"name": "n"}, "spec": spec}, namespace=api.namespace)
            read = await api.client.get_raw(NNC, "n", namespace=api.namespace)
            assert spec == read["spec"]
            del read["spec"]["ipsNotInUse"]
            new = await api.client.replace(NNC, {**read, "spec": {**read["spec"], "requestedIPCount": 2}})
            assert (2, ()) == (new.spec.requested, new.spec.pending_release)
            assert STRANGE == (await api.client.get_raw(NNC, "n", namespace=api.namespace))["spec"]["strange"]

    @run_in_loop
    async def test_only_the_version_that_was_read_is_replaced(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await api.client.create(NNC, {"metadata": {"name": "n"}}, namespace=api.namespace)
            read = await api.client.get_raw(NNC, "n", namespace=api.namespace)
            await api.client.replace(NNC, {**read, "spec": {"requestedIPCount": 1}})
            with pytest.raises(ApiConflict, match="replace NodeNetworkConfig test-.*/n"):
                await api.client.replace(NNC, {**read, "spec": {"requestedIPCount": 2}})

    @run_in_loop
    async def test_a_status_is_replaced_separately(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            spec = {"requestedIPCount": 1}
            await api.client.create(NNC, {"metadata": {"name": "n"}, "spec": spec}, namespace=api.namespace)
            read = await api.client.get_raw(NNC, "n", namespace=api.namespace)
            both = {**read, "spec": {"requestedIPCount": 9}, "status": {"assignedIPCount": 5, "strange": STRANGE}}
            new = await api.client.replace(NNC, both, subresource="status")
            assert (1, 5) == (new.spec.requested, new.status.assigned)
            kept = await api.client.get_raw(NNC, "n", namespace=api.namespace)
            assert STRANGE == kept["status"]["strange"]

    @run_in_loop
    async def test_a_missing_object_is_neither_read_nor_replaced(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            with pytest.raises(ApiNotFound, match="get NodeNetworkConfig test-.*/none"):
                await api.client.get_raw(NNC, "none", namespace=api.namespace)
            gone = {"metadata": {"name": "none", "namespace": api.namespace, "resourceVersion": "1"}}
            with pytest.raises(ApiNotFound):
                await api.client.replace(NNC, gone)


class TestInstalling:
    @run_in_loop
    async def test_other_versions_and_the_storage_version_stay(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            ours = sample_crd("lamps", "Lamp", api.namespace)
            name = ours["metadata"]["name"]
            newer = {**ours["spec"]["versions"][0], "name": "v2"}
            theirs = {**ours, "spec": {**ours["spec"], "versions": [newer]}}
            await install_crds(api.client, [theirs])
            await install_crds(api.client, [ours])
            await install_crds(api.client, [ours])
            found = await api.client.get_raw(CRDS, name)
            assert [("v2", True), ("v1", False)] == [
                (each["name"], each["storage"]) for each in found["spec"]["versions"]
            ]
            await api.client.delete(CRDS, name)

    @run_in_loop
    async def test_a_concurrent_change_is_not_overwritten(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            ours = sample_crd("lamps", "Lamp", api.namespace)
            name = ours["metadata"]["name"]
            await install_crds(api.client, [ours])
            rejected: list[str] = []

            def once(request: Request) -> Response | None:
                if request.method != "PUT" or rejected:
                    return None
                rejected.append(request.path)
                return Response(409, b'{"reason": "Conflict"}')

            api.transport.answer = once
            await install_crds(api.client, [ours])
            assert [CRDS.path(name=name)] == rejected
            await api.client.delete(CRDS, name)

    def test_other_fields_of_a_crd_stay(self) -> None:
        ours = sample_crd("lamps", "Lamp", "x")["spec"]
        there = {**ours, "conversion": {"strategy": "None"}, "preserveUnknownFields": False}
        assert there == merged_spec(there, ours)
