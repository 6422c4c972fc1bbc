"""What is written to the API server: objects outlive the version that wrote them, and others read them."""

import importlib
import pkgutil
from collections import defaultdict
from typing import Any

import msgspec

from podpool import api
from podpool.api import admission, crds, rbac
from podpool.api.azure import AgentReport
from podpool.api.meta import Kind
from podpool.core.addresses import parse_address
from podpool.core.ranges import parse_prefix
from podpool.kube.codec import ENCODER
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name, slice_pool_name
from tests.golden.files import DATA, matches_json, matches_lines, on_the_wire
from tests.golden.samples import sample
from tests.golden.sources import keyword_values, names_under


def kinds() -> list[Kind[Any]]:
    """Find the kinds that are read and written."""
    names = [each.name for each in pkgutil.iter_modules(api.__path__, f"{api.__name__}.")]
    found = {id(each): each for name in names for each in vars(importlib.import_module(name)).values()}
    return [each for each in found.values() if isinstance(each, Kind)]


def without_words(value: Any) -> Any:  # noqa: ANN401  JSON
    """Leave out sentences for people."""
    if isinstance(value, dict):
        words = ("description", "message", "messageExpression")
        return {key: without_words(each) for key, each in value.items() if key not in words or isinstance(each, dict)}
    return [without_words(each) for each in value] if isinstance(value, list) else value


def test_annotations_labels_taints_and_finalizers() -> None:
    found = [*names_under("node-restriction.kubernetes.io/"), *names_under("podpool.io/")]
    matches_lines("kubernetes/names.txt", found)


def test_values_of_annotations() -> None:
    """What the agent tells as JSON in `podpool.io/agent`."""
    reports = {"podpool.io/agent": AgentReport}
    matches_json("kubernetes/annotations.json", {name: on_the_wire(sample(each)) for name, each in reports.items()})
    golden = msgspec.json.decode((DATA / "kubernetes/annotations.json").read_bytes())
    for name, report in reports.items():
        assert sample(report) == msgspec.convert(golden[name], report)


def test_objects_have_their_keys() -> None:
    """A kind that is read into several structs has several samples."""
    found = defaultdict(list)
    for kind in kinds():
        shown = {
            "path": kind.path(namespace="NAMESPACE"),
            "object": msgspec.json.decode(ENCODER.encode(sample(kind.type))),
        }
        found[f"{kind.api_version} {kind.kind}"].append(shown)
    ordered = {name: sorted(each, key=lambda shown: str(shown["object"])) for name, each in found.items()}
    matches_json("kubernetes/objects.json", ordered)


def test_names_of_objects() -> None:
    """IPPools, Leases, reservations and NodeSlicePools are found by names that are made of what they are about."""
    slice_, v6 = parse_prefix("10.9.0.16/28"), parse_prefix("fd00:0:0:10::/64")
    address = parse_address("fd00::1")
    matches_lines(
        "kubernetes/object-names.txt",
        [
            f"IPPool of a range: {PoolIdentifier(range=slice_).name}",
            f"IPPool of a range of a network: {PoolIdentifier(range=v6, network='wide').name}",
            f"IPPool of a slice: {PoolIdentifier(range=slice_, network='wide', node='node-1').name}",
            f"Lease of a range: {PoolIdentifier(range=slice_).lease}",
            f"Lease of a slice: {PoolIdentifier(range=slice_, network='wide', node='node-1').lease}",
            f"OverlappingRangeIPReservation: {reservation_name(address)}",
            f"OverlappingRangeIPReservation of a network: {reservation_name(address, network='wide')}",
            f"NodeSlicePool: {slice_pool_name(network='wide', name='cni')}",
            f"NodeSlicePool without a network name: {slice_pool_name(network='', name='cni')}",
        ],
    )


def test_definitions() -> None:
    """`podpool crds`."""
    matches_json("kubernetes/crds.json", without_words([*crds.crd_manifests()]))


def test_accounts_roles_and_policies() -> None:
    """`podpool rbac --shared-ranges`."""
    manifests = [*rbac.rbac_manifests(), *rbac.shared_range_manifests(), *admission.admission_manifests()]
    matches_json("kubernetes/rbac.json", without_words(manifests))


def test_reasons_and_actions_of_events() -> None:
    matches_lines("kubernetes/event-reasons.txt", keyword_values("reason", beside=("action", "note")))
    matches_lines("kubernetes/event-actions.txt", keyword_values("action", beside=("reason", "note")))
    matches_lines("kubernetes/event-components.txt", keyword_values("component", beside=("instance",)))


def test_types_and_reasons_of_conditions() -> None:
    matches_lines("kubernetes/condition-types.txt", keyword_values("type", beside=("status", "reason", "message")))
    matches_lines("kubernetes/condition-reasons.txt", keyword_values("reason", beside=("status", "type", "message")))
