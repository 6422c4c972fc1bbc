"""The manifests: what a real API server makes of them, and what it then takes and refuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from parts.api import Api, ApiError
from parts.control_plane import ControlPlane, KubectlFailed
from podpool.api.crds import crd_manifests
from tests.api.sample_objects import CONTAINER, SCALER, WHOLE, apart, head, path
from tests.kube.cli_manifests import install_crds_with_kubectl


def schemas(value: object) -> Iterator[Mapping[str, Any]]:
    """All schemas inside a manifest's schema."""
    assert isinstance(value, Mapping)
    yield value
    inner = [value[each] for each in ("items", "additionalProperties") if each in value]
    for each in (*value.get("properties", {}).values(), *inner):
        yield from schemas(each)


def root(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_schemas_are_structural_and_keep_what_they_do_not_know() -> None:
    for manifest in crd_manifests():
        for schema in schemas(root(manifest)):
            assert "type" in schema
            assert "$ref" not in schema
            assert schema["type"] != "object" or "properties" not in schema or keeps(schema)


def keeps(schema: Mapping[str, Any]) -> bool:
    return bool(schema["x-kubernetes-preserve-unknown-fields"])


def test_wire_names_are_azures_to_the_letter() -> None:
    nnc = root(crd_manifests()[0])["properties"]
    assert ["requestedIPCount", "ipsNotInUse", "availabilityZone"] == list(nnc["spec"]["properties"])
    container = nnc["status"]["properties"]["networkContainers"]["items"]["properties"]
    assert {"subcriptionID", "primaryIP", "primaryIPV6", "subnetAddressSpaceV6", "ipAssignments", "nodeIP"} < set(
        container
    )


@pytest.fixture(scope="module")
def api(started_control_plane: ControlPlane) -> Api:
    """A server that knows our kinds, from what `podpool crds` prints."""
    install_crds_with_kubectl(started_control_plane)
    return started_control_plane.admin


def put(api: Api, kind: str, name: str, **parts: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    """Write an object with its status, and give it back as the server has it."""
    place = f"{path(kind)}/{name}"
    try:
        api.delete(place)
    except ApiError as error:
        if error.reason != "NotFound":
            raise
    api.post(path(kind), {**head(kind, name), **parts})
    if apart(kind) and "status" in parts:
        return api.patch(f"{place}/status", {"status": parts["status"]})
    return api.get(place)


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
class TestRealServer:
    @pytest.mark.parametrize("kind", WHOLE)
    def test_a_whole_object_is_taken_with_fields_that_we_do_not_know(self, api: Api, kind: str) -> None:
        strange = {part: {**content, "strange": {"deep": [1]}} for part, content in WHOLE[kind].items()}
        kept = put(api, kind, "whole", **strange)
        assert strange == {part: kept[part] for part in strange}

    def test_omitted_fields_have_azures_defaults(self, api: Api) -> None:
        kept = put(api, "NodeNetworkConfig", "bare", spec={}, status={"networkContainers": [{"id": "x"}]})
        assert {"requestedIPCount": 0} == kept["spec"]
        expected = {"id": "x", "assignmentMode": "dynamic", "type": "vnet", "version": 0}
        assert {"assignedIPCount": 0, "networkContainers": [expected]} == kept["status"]

    @pytest.mark.parametrize(
        ("kind", "parts", "message"),
        [
            ("NodeNetworkConfig", {"spec": {"requestedIPCount": -1}}, "should be greater than or equal to 0"),
            ("NodeNetworkConfig", {"spec": {"requestedIPCount": "16"}}, "must be of type integer"),
            ("NodeNetworkConfig", {"spec": {"ipsNotInUse": [1]}}, "must be of type string"),
            ("NodeNetworkConfig", {"status": {"status": "Fine"}}, 'supported values: "Updating", "Updated", "Error"'),
            ("NodeNetworkConfig", {"status": {"networkContainers": [{"status": "Fine"}]}}, "NCUpdateSuccess"),
            ("NodeNetworkConfig", {"status": {"networkContainers": [{"assignmentMode": "x"}]}}, '"dynamic", "static"'),
            ("NodeNetworkConfig", {"status": {"networkContainers": [{"primaryIP": "nine"}]}}, "primaryIP in body"),
            (
                "NodeNetworkConfig",
                {"status": {"networkContainers": [{"ipAssignments": [{"name": "x", "ip": "10.0.0"}, {"ip": "?"}]}]}},
                r"ipAssignments\[1\].ip in body should match",
            ),
            (
                "NodeNetworkConfig",
                {"status": {"scaler": {**SCALER, "releaseThresholdPercent": 50}}},
                "releaseThresholdPercent must be above requestThresholdPercent",
            ),
            ("ClusterSubnetState", {"status": {"exhausted": True}}, "timestamp: Required value"),
            ("ClusterSubnet", {"spec": {"scaler": {"batch": 0}}}, "should be greater than or equal to 1"),
            ("ClusterSubnet", {"spec": {"scaler": {"batch": 257}}}, "should be less than or equal to 256"),
            ("ClusterSubnet", {"spec": {"scaler": {"buffer": 4.5}}}, "should be less than or equal to 4"),
            ("ClusterSubnet", {"spec": {"scaler": {"buffer": 0.125}}}, "must have at most two decimals"),
            ("IPPool", {"spec": {"range": "10.0.0.0/24"}}, "spec.allocations: Required value"),
            ("IPPool", {"spec": {"allocations": {}}}, "spec.range: Required value"),
            ("IPPool", {"spec": {"range": "10.0.0.0", "allocations": {}}}, "spec.range in body should match"),
            ("IPPool", {"spec": {"range": "::/64", "allocations": {"1": {"id": "c"}}}}, "podref: Required value"),
            ("OverlappingRangeIPReservation", {}, "spec: Required value"),
            ("OverlappingRangeIPReservation", {"spec": {"ifname": "x"}}, "spec.podref: Required value"),
            ("NodeSlicePool", {"spec": {"range": "10.0.0.0/8"}}, "spec.sliceSize: Required value"),
            ("NodeSlicePool", {"spec": {"range": "10.0.0.0/8", "sliceSize": "large"}}, "spec.sliceSize in body"),
            (
                "NodeSlicePool",
                {**WHOLE["NodeSlicePool"], "status": {"allocations": [{"nodeName": "n", "sliceRange": "here"}]}},
                r"status.allocations\[0\].sliceRange in body should match",
            ),
            ("NodeSlices", {"spec": {"assignments": [{"id": "a", "range": "10.0.0.0/8"}]}}, "slice: Required value"),
            ("NodeSlices", {"spec": {"assignments": [{"slice": "here"}]}}, r"assignments\[0\].slice in body"),
            ("NodeSlices", {"status": {"slices": [{"held": True}]}}, r"slices\[0\].id: Required value"),
        ],
    )
    def test_what_is_wrong_is_refused_with_a_sentence(
        self, api: Api, kind: str, parts: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ApiError, match=message) as refused:
            put(api, kind, "wrong", **parts)
        assert (422, "Invalid") == (refused.value.status, refused.value.reason)

    @pytest.mark.parametrize("buffer", [0, 0.07, 0.29, 0.57, 1.13, 3.99, 4])
    def test_every_hundredth_is_a_buffer(self, api: Api, buffer: float) -> None:
        scaler = {"batch": 16, "buffer": buffer}
        assert scaler == put(api, "ClusterSubnet", "hundredths", spec={"scaler": scaler})["spec"]["scaler"]


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
@pytest.mark.usefixtures("api")
class TestKubectl:
    @pytest.mark.parametrize(
        ("kind", "word", "columns"),
        [
            ("NodeNetworkConfig", "nnc", ["NAME", "ALLOCATED IPS", "NC MODE", "NC VERSION"]),
            ("ClusterSubnetState", "clustersubnetstate", ["NAME", "EXHAUSTED", "UPDATED"]),
            ("ClusterSubnet", "clustersubnets", ["NAME", "EXHAUSTED", "BATCH", "BUFFER", "UPDATED"]),
            ("IPPool", "ippools", ["NAME", "RANGE", "AGE"]),
            (
                "OverlappingRangeIPReservation",
                "overlappingrangeipreservations",
                ["NAME", "POD", "INTERFACE", "AGE"],
            ),
            ("NodeSlicePool", "nodeslicepool", ["NAME", "RANGE", "SLICE SIZE", "AGE"]),
            ("NodeSlices", "nodeslices", ["NAME", "PROTOCOL", "AGE"]),
        ],
    )
    def test_it_prints_the_columns(
        self, api: Api, control_plane: ControlPlane, kind: str, word: str, columns: list[str]
    ) -> None:
        put(api, kind, "printed", **WHOLE[kind])
        table = control_plane.kubectl("get", word, "printed", "-n", "default")
        assert columns == [each.strip() for each in table.splitlines()[0].split("   ") if each.strip()]
        assert "printed" in table

    def test_it_prints_more_when_asked(self, api: Api, control_plane: ControlPlane) -> None:
        put(api, "NodeNetworkConfig", "printed", **WHOLE["NodeNetworkConfig"])
        table = control_plane.kubectl("get", "nnc", "printed", "-n", "default", "-o", "wide")
        for column in ("REQUESTED IPS", "AVAILABILITY ZONE", "SUBNET", "SUBNET CIDR V6", "NC ID", "NC TYPE"):
            assert column in table
        assert "10.0.0.0/16" in table
        whole = json.loads(control_plane.kubectl("get", "nnc", "printed", "-o", "json"))
        assert [CONTAINER] == whole["status"]["networkContainers"]

    def test_it_explains(self, control_plane: ControlPlane) -> None:
        assert "A node's request and assignment" in control_plane.kubectl("explain", "nnc")
        assert "requestedIPCount" in control_plane.kubectl("explain", "nnc.spec")

    def test_the_error_names_the_field_of_an_invalid_object(self, control_plane: ControlPlane) -> None:
        bad = {**head("ClusterSubnet", "bad"), "spec": {"scaler": {"batch": 0}}}
        with pytest.raises(KubectlFailed, match="spec.scaler.batch in body should be greater than or equal to 1"):
            control_plane.kubectl("apply", "-f", "-", manifest=bad)
