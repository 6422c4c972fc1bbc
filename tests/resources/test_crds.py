"""The manifests: what a real API server makes of them, and what it then takes and refuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from parts.api import Api, ApiError
from parts.control_plane import ControlPlane
from parts.polling import until
from podpool.resources.crds import manifests


def schemas(value: object) -> Iterator[Mapping[str, Any]]:
    """All schemas inside a manifest's schema."""
    assert isinstance(value, Mapping)
    yield value
    for inner in (*value.get("properties", {}).values(), *([value["items"]] if "items" in value else [])):
        yield from schemas(inner)


def root(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_schemas_are_structural_and_keep_what_they_do_not_know() -> None:
    for manifest in manifests():
        for schema in schemas(root(manifest)):
            assert "type" in schema
            assert "$ref" not in schema
            assert schema["type"] != "object" or "properties" not in schema or keeps(schema)


def keeps(schema: Mapping[str, Any]) -> bool:
    return bool(schema["x-kubernetes-preserve-unknown-fields"])


def test_wire_names_are_azures_to_the_letter() -> None:
    nnc = root(manifests()[0])["properties"]
    assert ["requestedIPCount", "ipsNotInUse", "availabilityZone"] == list(nnc["spec"]["properties"])
    container = nnc["status"]["properties"]["networkContainers"]["items"]["properties"]
    assert {"subcriptionID", "primaryIP", "subnetAddressSpaceV6", "ipAssignments", "nodeIP"} < set(container)
    assert "" not in container["status"]["enum"]


@pytest.fixture(scope="module")
def api(started_control_plane: ControlPlane) -> Api:
    """A server that knows our kinds."""
    for manifest in manifests():
        started_control_plane.kubectl("apply", "-f", "-", manifest=manifest)
        started_control_plane.kubectl("wait", "--for=condition=Established", f"crd/{manifest['metadata']['name']}")
    until(lambda: all(served(started_control_plane.admin, path) for path in PATHS.values()), "our kinds are served")
    return started_control_plane.admin


PATHS = {
    "NodeNetworkConfig": "/apis/acn.azure.com/v1alpha/namespaces/default/nodenetworkconfigs",
    "ClusterSubnetState": "/apis/acn.azure.com/v1alpha1/namespaces/default/clustersubnetstates",
    "ClusterSubnet": "/apis/acn.azure.com/v1alpha1/namespaces/default/clustersubnets",
}


def served(api: Api, path: str) -> bool:
    try:
        return bool(api.get(path))
    except ApiError:
        return False


def put(api: Api, kind: str, name: str, **parts: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Write an object with its status, and give it back as the server has it."""
    path = PATHS[kind]
    version = path.split("/")[3]
    try:
        api.delete(f"{path}/{name}")
    except ApiError as error:
        if error.reason != "NotFound":
            raise
    api.post(path, {"apiVersion": f"acn.azure.com/{version}", "kind": kind, "metadata": {"name": name}, **parts})
    return (
        api.patch(f"{path}/{name}/status", {"status": parts["status"]})
        if "status" in parts
        else api.get(f"{path}/{name}")
    )


CONTAINER = {
    "id": "3b0f6f0c-0000-4000-8000-000000000001",
    "primaryIP": "10.0.0.4",
    "subcriptionID": "s",
    "subnetAddressSpace": "10.0.0.0/16",
    "ipAssignments": [{"name": "3b0f6f0c-0000-4000-8000-000000000002", "ip": "10.0.0.5"}],
    "version": 3,
    "status": "NCUpdateSuccess",
    "primaryIPV6": "fd00::4",
}
SCALER = {"batchSize": 16, "releaseThresholdPercent": 150, "requestThresholdPercent": 50, "maxIPCount": 250}


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
class TestRealServer:
    def test_a_whole_network_config_is_taken_with_fields_that_we_do_not_know(self, api: Api) -> None:
        status = {"assignedIPCount": 1, "scaler": SCALER, "status": "Updated", "networkContainers": [CONTAINER]}
        spec = {"requestedIPCount": 16, "ipsNotInUse": ["x"], "availabilityZone": 2, "strange": {"deep": [1]}}
        kept = put(api, "NodeNetworkConfig", "whole", spec=spec, status=status)
        assert spec == kept["spec"]
        assert {**status, "networkContainers": [{**CONTAINER, "assignmentMode": "dynamic", "type": "vnet"}]} == kept[
            "status"
        ]

    def test_what_is_not_said_has_azures_defaults(self, api: Api) -> None:
        kept = put(api, "NodeNetworkConfig", "bare", spec={}, status={"networkContainers": [{"id": "x"}]})
        assert {"requestedIPCount": 0} == kept["spec"]
        expected = {"id": "x", "assignmentMode": "dynamic", "type": "vnet", "version": 0}
        assert {"assignedIPCount": 0, "networkContainers": [expected]} == kept["status"]

    def test_subnet_objects_are_taken(self, api: Api) -> None:
        status = {"exhausted": True, "timestamp": "2026-01-01T00:00:00Z"}
        assert status == put(api, "ClusterSubnetState", "s", status=status)["status"]
        spec = {"scaler": {"batch": 8, "buffer": 0.25}}
        assert spec == put(api, "ClusterSubnet", "s", spec=spec, status={**status, **spec})["spec"]

    @pytest.mark.parametrize(
        ("kind", "parts", "field"),
        [
            ("NodeNetworkConfig", {"spec": {"requestedIPCount": -1}}, "requestedIPCount"),
            ("NodeNetworkConfig", {"spec": {"requestedIPCount": "16"}}, "requestedIPCount"),
            ("NodeNetworkConfig", {"spec": {"ipsNotInUse": [1]}}, "ipsNotInUse"),
            ("NodeNetworkConfig", {"status": {"status": "Fine"}}, "status.status"),
            ("NodeNetworkConfig", {"status": {"networkContainers": [{"status": "Fine"}]}}, "networkContainers"),
            ("NodeNetworkConfig", {"status": {"networkContainers": [{"assignmentMode": "x"}]}}, "assignmentMode"),
            ("ClusterSubnetState", {"status": {"exhausted": True}}, "timestamp"),
            ("ClusterSubnet", {"spec": {"scaler": {"batch": 0}}}, "batch"),
            ("ClusterSubnet", {"spec": {"scaler": {"batch": 257}}}, "batch"),
            ("ClusterSubnet", {"spec": {"scaler": {"buffer": 4.5}}}, "buffer"),
        ],
    )
    def test_what_is_wrong_is_refused_by_name(self, api: Api, kind: str, parts: dict[str, Any], field: str) -> None:
        with pytest.raises(ApiError, match=field) as refused:
            put(api, kind, "wrong", **parts)
        assert (422, "Invalid") == (refused.value.status, refused.value.reason)

    def test_columns_are_printed_under_the_short_name(self, api: Api, control_plane: ControlPlane) -> None:
        put(
            api,
            "NodeNetworkConfig",
            "printed",
            spec={},
            status={"assignedIPCount": 7, "networkContainers": [CONTAINER]},
        )
        table = control_plane.kubectl("get", "nnc", "printed", "-n", "default", "-o", "wide")
        assert "ALLOCATED IPS" in table
        assert "NC VERSION" in table
        assert "10.0.0.0/16" in table
        assert (
            json.loads(control_plane.kubectl("get", "nnc", "printed", "-o", "json"))["status"]["assignedIPCount"] == 7
        )
