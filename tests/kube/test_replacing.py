"""Writing a whole object, and bringing a kind that may be there already."""

import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.crds import CRDS
from podpool.kube.crd_install import install_crds, merged_spec
from podpool.kube.errors import ApiConflict, ApiNotFound
from podpool.runtime.transport import Request, Response
from tests.kube.clusters import Cluster
from tests.kube.lamps import definition
from tests.kube.loops import in_loop

NNC = NODE_NETWORK_CONFIGS
STRANGE = {"deep": [1, 2.5, "x"]}


class TestReplacing:
    @in_loop
    async def test_what_was_read_is_written_whole(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            spec = {"requestedIPCount": 1, "ipsNotInUse": ["a"], "strange": STRANGE}
            await guest.client.create(NNC, {"metadata": {"name": "n"}, "spec": spec}, namespace=guest.namespace)
            read = await guest.client.get_raw(NNC, "n", namespace=guest.namespace)
            assert spec == read["spec"]
            del read["spec"]["ipsNotInUse"]
            new = await guest.client.replace(NNC, {**read, "spec": {**read["spec"], "requestedIPCount": 2}})
            assert (2, ()) == (new.spec.requested, new.spec.pending_release)
            assert STRANGE == (await guest.client.get_raw(NNC, "n", namespace=guest.namespace))["spec"]["strange"]

    @in_loop
    async def test_only_the_version_that_was_read_is_replaced(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await guest.client.create(NNC, {"metadata": {"name": "n"}}, namespace=guest.namespace)
            read = await guest.client.get_raw(NNC, "n", namespace=guest.namespace)
            await guest.client.replace(NNC, {**read, "spec": {"requestedIPCount": 1}})
            with pytest.raises(ApiConflict, match="replace NodeNetworkConfig test-.*/n"):
                await guest.client.replace(NNC, {**read, "spec": {"requestedIPCount": 2}})

    @in_loop
    async def test_a_status_is_replaced_apart(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            spec = {"requestedIPCount": 1}
            await guest.client.create(NNC, {"metadata": {"name": "n"}, "spec": spec}, namespace=guest.namespace)
            read = await guest.client.get_raw(NNC, "n", namespace=guest.namespace)
            both = {**read, "spec": {"requestedIPCount": 9}, "status": {"assignedIPCount": 5, "strange": STRANGE}}
            new = await guest.client.replace(NNC, both, subresource="status")
            assert (1, 5) == (new.spec.requested, new.status.assigned)
            kept = await guest.client.get_raw(NNC, "n", namespace=guest.namespace)
            assert STRANGE == kept["status"]["strange"]

    @in_loop
    async def test_what_is_not_there_is_neither_read_nor_replaced(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            with pytest.raises(ApiNotFound, match="get NodeNetworkConfig test-.*/none"):
                await guest.client.get_raw(NNC, "none", namespace=guest.namespace)
            gone = {"metadata": {"name": "none", "namespace": guest.namespace, "resourceVersion": "1"}}
            with pytest.raises(ApiNotFound):
                await guest.client.replace(NNC, gone)


class TestInstalling:
    @in_loop
    async def test_versions_of_others_stay_and_objects_are_stored_as_they_were(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            ours = definition("lamps", "Lamp", guest.namespace)
            name = ours["metadata"]["name"]
            newer = {**ours["spec"]["versions"][0], "name": "v2"}
            theirs = {**ours, "spec": {**ours["spec"], "versions": [newer]}}
            await install_crds(guest.client, [theirs])
            await install_crds(guest.client, [ours])
            await install_crds(guest.client, [ours])
            found = await guest.client.get_raw(CRDS, name)
            assert [("v2", True), ("v1", False)] == [
                (each["name"], each["storage"]) for each in found["spec"]["versions"]
            ]
            await guest.client.delete(CRDS, name)

    @in_loop
    async def test_who_comes_in_between_is_not_written_over(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            ours = definition("lamps", "Lamp", guest.namespace)
            name = ours["metadata"]["name"]
            await install_crds(guest.client, [ours])
            told: list[str] = []

            def once(request: Request) -> Response | None:
                if request.method != "PUT" or told:
                    return None
                told.append(request.path)
                return Response(409, b'{"reason": "Conflict"}')

            guest.road.answer = once
            await install_crds(guest.client, [ours])
            assert [CRDS.path(name=name)] == told
            await guest.client.delete(CRDS, name)

    def test_what_a_definition_has_beyond_ours_stays(self) -> None:
        ours = definition("lamps", "Lamp", "x")["spec"]
        there = {**ours, "conversion": {"strategy": "None"}, "preserveUnknownFields": False}
        assert there == merged_spec(there, ours)
